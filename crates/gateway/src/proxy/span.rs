//! The span of a forwarded request.

use http::HeaderMap;
use tracing::Span;

use crate::target::Target;

/// The caller's id of a request.
const REQUEST_ID: &str = "x-request-id";

/// The longest id that is logged, in bytes.
const ID_MAX: usize = 128;

/// The span of a request to a sandbox. If its caller sent an id, every line that is logged of it shows
/// that id; otherwise the span is only for traces, and costs nothing without a collector.
pub(super) fn span_of(headers: &HeaderMap, target: &Target) -> Span {
    let (sandbox, port) = (&target.sandbox, target.port);
    match request_id(headers) {
        Some(id) => {
            tracing::error_span!("gateway.proxy", sandbox.id = %sandbox, port, request.id = id)
        }
        None => tracing::debug_span!("gateway.proxy", sandbox.id = %sandbox, port),
    }
}

fn request_id(headers: &HeaderMap) -> Option<&str> {
    let id = headers.get(REQUEST_ID)?.to_str().ok()?;
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    ((1..=ID_MAX).contains(&id.len()) && id.bytes().all(plain)).then_some(id)
}
