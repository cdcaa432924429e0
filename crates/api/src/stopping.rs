//! Requests that come while the server stops.

use axum::response::{IntoResponse, Response};
use http::StatusCode;
use shoal_protocol::native;

use crate::error::{ApiError, SERVER_STOPPING};
use crate::native::envelope;

/// When to try again, in seconds: a restart takes that long.
const RETRY_AFTER: u64 = 5;

/// The answer to a request for this path that comes while the server stops.
#[must_use]
pub fn stopping(path: &str) -> Response {
    let error = ApiError::new(
        StatusCode::SERVICE_UNAVAILABLE,
        "the server is stopping: try again in a few seconds",
    );
    let error = error
        .with_code(SERVER_STOPPING)
        .with_retry_after(RETRY_AFTER);
    let response = error.into_response();
    let is_native = path.strip_prefix(native::PREFIX);
    if is_native.is_some_and(|rest| rest.is_empty() || rest.starts_with('/')) {
        envelope(response)
    } else {
        response
    }
}
