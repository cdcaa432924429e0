//! Signed URLs that name no sandbox.
//!
//! A client that was given one origin for all sandboxes signs `<origin>/files?…` without saying
//! whose file it is. The signature is made from a sandbox's token, so the sandbox can be found by
//! trying each.

use http::{Method, Uri};
use shoal_core::catalog::Catalog;
use shoal_protocol::ENVD_PORT;
use shoal_protocol::signature::{Claim, Operation, Prepared, Signature, parse_expiration};

use crate::target::Target;

/// The longest name of a file, or of a user, that is looked at, in bytes: no system opens a longer
/// one. Whoever asks need not show a key, so what each request costs is bounded.
const NAME_MAX: usize = 4096;

/// The sandbox whose token made the signature of this request, if there is one.
pub(crate) fn find(method: &Method, uri: &Uri, catalog: &dyn Catalog) -> Option<Target> {
    let operation = match *method {
        Method::GET | Method::HEAD => Operation::Read,
        Method::POST => Operation::Write,
        _ => return None,
    };
    if uri.path() != "/files" {
        return None;
    }
    let query = uri.query()?;
    let value = |name: &str| {
        query.split('&').find_map(|pair| {
            let (key, value) = pair.split_once('=')?;
            (key == name).then(|| decode(value))
        })
    };
    let signature = Signature::parse(&value("signature")?)?;
    let (path, username) = (
        value("path").unwrap_or_default(),
        value("username").unwrap_or_default(),
    );
    if path.len() > NAME_MAX || username.len() > NAME_MAX {
        return None;
    }
    let expiration = match value("signature_expiration") {
        Some(text) => Some(parse_expiration(&text)?),
        None => None,
    };
    let claim = Claim {
        path: &path,
        operation,
        username: &username,
        expiration,
    };
    let claim = Prepared::new(&claim);
    // Whether it is still good is for the daemon to say, which knows how to.
    catalog.routes().into_iter().find_map(|route| {
        let token = route.envd_access_token.as_ref()?;
        claim.is_signed(token.reveal(), &signature).then(|| Target {
            sandbox: route.sandbox.clone(),
            port: ENVD_PORT,
        })
    })
}

/// Decodes a value of a query: `+` is a blank, `%xx` a byte.
fn decode(value: &str) -> String {
    let blanks = value.replace('+', " ");
    percent_encoding::percent_decode_str(&blanks)
        .decode_utf8_lossy()
        .into_owned()
}
