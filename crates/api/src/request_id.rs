//! The id of each request, in the response and in every log line about it.

use axum::extract::Request;
use axum::middleware::Next;
use axum::response::Response;
use http::{HeaderName, HeaderValue};
use tracing::Instrument;
use uuid::Uuid;

/// The header with the id, in requests and responses.
pub(crate) const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// The longest id that is accepted from a client.
const MAX: usize = 128;

/// Gives the request an id, the client's own if it is plain text, and a span.
pub(crate) async fn identify(mut request: Request, next: Next) -> Response {
    let own = request
        .headers()
        .get(&REQUEST_ID)
        .filter(|id| is_plain(id))
        .cloned();
    let id = own.unwrap_or_else(|| {
        let fresh = Uuid::new_v4().simple().to_string();
        HeaderValue::from_str(&fresh).unwrap_or_else(|_| HeaderValue::from_static("none"))
    });
    request.headers_mut().insert(REQUEST_ID, id.clone());
    // At level error, so that the filter of the log hides no id.
    let span = tracing::error_span!(
        "request",
        http.request.method = %request.method(),
        url.path = request.uri().path(),
        request.id = id.to_str().unwrap_or_default(),
        http.response.status_code = tracing::field::Empty,
    );
    let begun = std::time::Instant::now();
    let mut response = next.run(request).instrument(span.clone()).await;
    span.record("http.response.status_code", response.status().as_u16());
    span.in_scope(|| tracing::debug!(elapsed = ?begun.elapsed(), "answered"));
    response.headers_mut().insert(REQUEST_ID, id);
    response
}

fn is_plain(id: &HeaderValue) -> bool {
    let bytes = id.as_bytes();
    (1..=MAX).contains(&bytes.len())
        && bytes
            .iter()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
}
