//! Responses to failed calls: one table from the ports' errors to HTTP statuses.
//!
//! The body is E2B's: `{"code", "message", "error_code"?}`. `code` is the HTTP status, because one
//! of E2B's SDKs reads it instead of the status line.

mod of_ports;
mod of_sessions;
mod wording;

use axum::Json;
use axum::response::{IntoResponse, Response};
use http::header::{CONNECTION, RETRY_AFTER};
use http::{HeaderName, HeaderValue, StatusCode};
use serde::Serialize;
use shoal_core::detail::Chain;

/// Tells E2B's clients whether to retry automatically.
const SHOULD_RETRY: HeaderName = HeaderName::from_static("should-retry");

/// The code of a request that comes while the server stops.
pub(crate) const SERVER_STOPPING: &str = "server_stopping";

/// A failed call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ApiError {
    status: StatusCode,
    message: String,
    error_code: Option<&'static str>,
    retry_after: Option<u64>,
    /// Details for the log only.
    detail: Option<String>,
}

/// The body of an error.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "Error"))]
pub(crate) struct ErrorBody<'a> {
    code: u16,
    message: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    error_code: Option<&'static str>,
}

impl ApiError {
    pub(crate) fn new(status: StatusCode, message: impl Into<String>) -> Self {
        Self {
            status,
            message: message.into(),
            error_code: None,
            retry_after: None,
            detail: None,
        }
    }

    /// The request itself is invalid.
    pub(crate) fn invalid(message: impl std::fmt::Display) -> Self {
        Self::new(
            StatusCode::BAD_REQUEST,
            format!("validation error: {message}"),
        )
    }

    pub(crate) fn not_found(message: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, message)
    }

    pub(crate) fn with_code(mut self, error_code: &'static str) -> Self {
        self.error_code = Some(error_code);
        self
    }

    /// Adds the cause for the log; clients do not see it.
    pub(crate) fn caused_by(mut self, error: &(dyn std::error::Error + 'static)) -> Self {
        let told = Chain(error).to_string();
        self.detail = Some(told).filter(|told| *told != self.message);
        self
    }

    pub(crate) fn with_retry_after(mut self, seconds: u64) -> Self {
        self.retry_after = Some(seconds);
        self
    }

    /// The body, as a part of a combined response.
    pub(crate) fn body(&self) -> serde_json::Value {
        let body = ErrorBody {
            code: self.status.as_u16(),
            message: &self.message,
            error_code: self.error_code,
        };
        // Strings and numbers always serialize.
        serde_json::to_value(body).unwrap_or_default()
    }

    pub(crate) fn status(&self) -> StatusCode {
        self.status
    }

    pub(crate) fn message(&self) -> &str {
        &self.message
    }

    fn internal(message: impl Into<String>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, message).with_code("internal_server_error")
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        // A stop is logged once, not for every refused request. A call that is not served is no failure.
        let told =
            self.error_code == Some(SERVER_STOPPING) || self.status == StatusCode::NOT_IMPLEMENTED;
        if self.status.is_server_error() && !told {
            // The only place that logs it.
            tracing::error!(
                status = self.status.as_u16(),
                message = self.message,
                detail = self.detail,
                "a call failed"
            );
        }
        let body = ErrorBody {
            code: self.status.as_u16(),
            message: &self.message,
            error_code: self.error_code,
        };
        let mut response = (self.status, Json(body)).into_response();
        let headers = response.headers_mut();
        if self.status == StatusCode::PAYLOAD_TOO_LARGE {
            // The rest of the body is not read, so the connection cannot be reused. Without this
            // header, a client would send its next request on it.
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
        }
        match self.retry_after {
            Some(seconds) => {
                headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
            }
            // A limit that does not lift by itself is reported immediately, not after three
            // automatic retries.
            None if matches!(
                self.status,
                StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE
            ) =>
            {
                headers.insert(SHOULD_RETRY, HeaderValue::from_static("false"));
            }
            None => {}
        }
        // An API with another body format than E2B's replaces the body.
        response.extensions_mut().insert(self);
        response
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;
    use shoal_core::ports::sandboxes::QuotaExceeded;

    use super::*;

    #[tokio::test]
    async fn the_body_repeats_the_status_and_a_lasting_limit_is_told_at_once() {
        let response = ApiError::from(QuotaExceeded::Team(20)).into_response();
        assert_eq!(response.status(), 429);
        assert_eq!(response.headers()[SHOULD_RETRY], "false");
        let body = response.into_body().collect().await.unwrap().to_bytes();
        let body: serde_json::Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(body["code"], 429);
        assert_eq!(
            body["message"],
            "you have reached the limit of 20 sandboxes at once"
        );
        let passing = ApiError::new(StatusCode::TOO_MANY_REQUESTS, "x").with_retry_after(2);
        let response = passing.into_response();
        assert_eq!(response.headers()[RETRY_AFTER], "2");
        assert!(!response.headers().contains_key(SHOULD_RETRY));
    }
}
