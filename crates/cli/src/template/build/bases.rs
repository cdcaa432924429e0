//! The templates among the bases in `FROM`.

use shoal_core::template::{DEFAULT_TAG, TemplateRef};
use shoal_dockerfile::TemplateBase;
use shoal_protocol::native::Template;

use crate::calls::encode;
use crate::connection::Connection;
use crate::failure::{Failure, Kind};

/// The names that are templates of the caller's team or of the installation.
///
/// # Errors
/// When the server cannot be reached.
pub(super) async fn templates(
    server: &Connection,
    names: Vec<TemplateRef>,
) -> Result<Vec<TemplateBase>, Failure> {
    let mut found = Vec::new();
    for name in names {
        let path = format!("/templates/{}", encode(&name.to_string()));
        match server.native_get::<Template>(&path).await {
            Ok(template) if has(&template, &name) => found.push(TemplateBase {
                name: name.to_string(),
                user: template.user,
                workdir: template.workdir,
            }),
            Ok(_) => {}
            Err(failure) if failure.kind() == Kind::NotFound => {}
            Err(failure) => return Err(failure),
        }
    }
    Ok(found)
}

/// Whether sandboxes can start from `name`. A template over an image has only the default tag.
fn has(template: &Template, name: &TemplateRef) -> bool {
    let tag = name.tag.as_deref().unwrap_or(DEFAULT_TAG);
    let tagged = template.tags.iter().any(|known| known == tag);
    template.state == Template::READY && (tagged || template.tags.is_empty() && tag == DEFAULT_TAG)
}
