//! Signed URLs without a sandbox id.
//!
//! A client with one origin for all sandboxes signs `<origin>/files?…`, which names no sandbox. The
//! signature depends on the sandbox's token, so the gateway finds the sandbox by trying each.

use http::{Method, Uri};
use shoal_core::auth::Token;
use shoal_core::routes::RouteTable;
use shoal_protocol::ENVD_PORT;
use shoal_protocol::signature::{Claim, Operation, Prepared, Signature, parse_expiration};

use crate::target::Target;

/// The maximum length of a path or user, in bytes; no system opens longer ones. These requests need no
/// key, so their cost must be bounded.
const NAME_MAX: usize = 4096;

/// The sandbox whose token signed this request, if any.
pub(crate) fn find(method: &Method, uri: &Uri, routes: &dyn RouteTable) -> Option<Target> {
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
    // The daemon checks the expiration.
    let signed_it = |token: &Token| claim.is_signed(token.reveal(), &signature);
    let sandbox = routes.find_by_token(&signed_it)?;
    Some(Target {
        sandbox,
        port: ENVD_PORT,
    })
}

/// Decodes a query value: `+` is a space, `%xx` a byte.
fn decode(value: &str) -> String {
    let blanks = value.replace('+', " ");
    percent_encoding::percent_decode_str(&blanks)
        .decode_utf8_lossy()
        .into_owned()
}
