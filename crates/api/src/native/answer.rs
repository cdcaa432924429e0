//! The envelope of every response.

use axum::Json;
use axum::extract::Request;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use serde::Serialize;
use shoal_protocol::native::Envelope;

use crate::error::ApiError;

/// A successful response with data.
pub(super) struct Answer<T>(pub(super) StatusCode, pub(super) T);

impl<T> Answer<T> {
    pub(super) fn ok(data: T) -> Self {
        Self(StatusCode::OK, data)
    }

    pub(super) fn created(data: T) -> Self {
        Self(StatusCode::CREATED, data)
    }
}

impl<T: Serialize> IntoResponse for Answer<T> {
    fn into_response(self) -> Response {
        (self.0, Json(Envelope::ok(self.1))).into_response()
    }
}

/// Wraps errors of inner layers into this API's envelope. These include errors of authentication
/// and of the rate limit, which other APIs share.
pub(crate) async fn enveloped(request: Request, next: Next) -> Response {
    envelope(next.run(request).await)
}

/// Puts a failure into the envelope; other answers stay as they are.
pub(crate) fn envelope(response: Response) -> Response {
    let Some(error) = response.extensions().get::<ApiError>() else {
        return response;
    };
    let status = response.status();
    let body = Envelope::<()>::failed(status.as_u16(), error.message());
    let (mut parts, _) = response.into_parts();
    parts.headers.remove(CONTENT_TYPE);
    parts.headers.remove(CONTENT_LENGTH);
    let mut response = (status, Json(body)).into_response();
    response.headers_mut().extend(parts.headers);
    response
}
