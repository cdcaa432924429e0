//! HTTP responses.

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderValue, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Empty, Full};
use serde::Serialize;
use shoal_protocol::error::ErrorBody;

/// Error while a body is sent. The connection is reset, so that the client does not take a part for
/// the whole.
pub(crate) type BodyError = Box<dyn std::error::Error + Send + Sync>;

/// Body of a response.
pub(crate) type Body = UnsyncBoxBody<Bytes, BodyError>;

/// A response.
pub(crate) type HttpResponse = Response<Body>;

/// A complete body.
pub(crate) fn full(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into())
        .map_err(|never| match never {})
        .boxed_unsync()
}

/// An empty body.
pub(crate) fn empty() -> Body {
    Empty::new().map_err(|never| match never {}).boxed_unsync()
}

/// A response without a body.
pub(crate) fn status(status: StatusCode) -> HttpResponse {
    let mut answer = Response::new(empty());
    *answer.status_mut() = status;
    answer
}

/// A response with a JSON body.
pub(crate) fn json(status: StatusCode, body: &impl Serialize) -> HttpResponse {
    // Response bodies always serialise.
    let body = serde_json::to_vec(body).unwrap_or_default();
    let mut answer = Response::new(full(body));
    *answer.status_mut() = status;
    let json = HeaderValue::from_static("application/json; charset=utf-8");
    answer.headers_mut().insert(CONTENT_TYPE, json);
    answer
}

/// An error response.
pub(crate) fn error(status: StatusCode, message: impl Into<String>) -> HttpResponse {
    json(status, &ErrorBody::new(status, message))
}

/// Adds `Cache-Control: no-store`.
pub(crate) fn not_stored(mut answer: HttpResponse) -> HttpResponse {
    let no_store = HeaderValue::from_static("no-store");
    answer.headers_mut().insert(CACHE_CONTROL, no_store);
    answer
}
