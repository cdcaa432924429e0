//! `GET /sandbox/{id}/objects`.

use axum::Extension;
use axum::extract::{Path, State};
use shoal_core::auth::Principal;
use shoal_core::ports::backing::BackingRole;
use shoal_protocol::native::{SandboxObject, SandboxObjects};

use super::answer::Answer;
use crate::backend::Backend;
use crate::error::ApiError;

/// Answers with the objects of a cluster behind a sandbox. Nodes are for admins.
pub(super) async fn list(
    State(backend): State<Backend>,
    Extension(principal): Extension<Principal>,
    Path(id): Path<String>,
) -> Result<Answer<SandboxObjects>, ApiError> {
    let (permit, _) = backend.sandboxes.find(&principal, &id).await?;
    let objects = backend.sandboxes.backing_objects(&permit)?;
    let objects = objects
        .into_iter()
        .filter(|object| principal.admin || object.role != BackingRole::Node)
        .map(|object| SandboxObject {
            role: object.role.as_str().to_owned(),
            api_version: object.api_version,
            kind: object.kind,
            namespace: object.namespace,
            name: object.name,
            state: object.state,
        });
    Ok(Answer::ok(SandboxObjects {
        objects: objects.collect(),
    }))
}
