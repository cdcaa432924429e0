//! Plain HTTP answers.

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderValue, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Empty, Full};
use serde::Serialize;
use shoal_protocol::error::ErrorBody;

/// What can go wrong while a body is being sent. The connection is cut then, so that the client
/// does not take a part for the whole.
pub(crate) type BodyError = Box<dyn std::error::Error + Send + Sync>;

/// The body of any answer.
pub(crate) type Body = UnsyncBoxBody<Bytes, BodyError>;

/// Any answer.
pub(crate) type Answer = Response<Body>;

/// A body that is at hand.
pub(crate) fn full(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into())
        .map_err(|never| match never {})
        .boxed_unsync()
}

/// A body without bytes.
pub(crate) fn empty() -> Body {
    Empty::new().map_err(|never| match never {}).boxed_unsync()
}

/// An answer without a body.
pub(crate) fn status(status: StatusCode) -> Answer {
    let mut answer = Response::new(empty());
    *answer.status_mut() = status;
    answer
}

/// An answer with a JSON body.
pub(crate) fn json(status: StatusCode, body: &impl Serialize) -> Answer {
    // Our own bodies can always be written.
    let body = serde_json::to_vec(body).unwrap_or_default();
    let mut answer = Response::new(full(body));
    *answer.status_mut() = status;
    let json = HeaderValue::from_static("application/json; charset=utf-8");
    answer.headers_mut().insert(CONTENT_TYPE, json);
    answer
}

/// An answer that says what failed.
pub(crate) fn error(status: StatusCode, message: impl Into<String>) -> Answer {
    json(status, &ErrorBody::new(status, message))
}

/// The same answer, not to be kept.
pub(crate) fn not_stored(mut answer: Answer) -> Answer {
    let no_store = HeaderValue::from_static("no-store");
    answer.headers_mut().insert(CACHE_CONTROL, no_store);
    answer
}
