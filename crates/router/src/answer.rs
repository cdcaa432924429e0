//! The router's own answers. The texts are the reference router's: clients show them.

use bytes::Bytes;
use http::header::{CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderValue, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};
use shoal_gateway::{GatewayBody, OwnAnswer};

use crate::authenticate::NotAllowed;
use crate::headers::InvalidHeader;

/// Why a request does not reach a sandbox.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Refusal {
    #[error(transparent)]
    Invalid(#[from] InvalidHeader),
    #[error(transparent)]
    NotAllowed(#[from] NotAllowed),
    #[error("Could not connect to the backend sandbox: {0}")]
    Unreachable(String),
    #[error("The sandbox did not answer in time: {0}")]
    TimedOut(String),
    #[error("The router is stopping: try again in a few seconds.")]
    Stopping,
    /// The gateway's own reason.
    #[error("{1}")]
    Gateway(StatusCode, String),
}

impl Refusal {
    fn status(&self) -> StatusCode {
        match self {
            Self::Invalid(_) => StatusCode::BAD_REQUEST,
            Self::NotAllowed(NotAllowed::Missing | NotAllowed::Invalid) => StatusCode::UNAUTHORIZED,
            Self::NotAllowed(NotAllowed::Forbidden) => StatusCode::FORBIDDEN,
            Self::NotAllowed(NotAllowed::Unknown(_)) => StatusCode::INTERNAL_SERVER_ERROR,
            Self::Unreachable(_) => StatusCode::BAD_GATEWAY,
            Self::TimedOut(_) => StatusCode::GATEWAY_TIMEOUT,
            Self::Stopping => StatusCode::SERVICE_UNAVAILABLE,
            Self::Gateway(status, _) => *status,
        }
    }

    /// The answer.
    pub(crate) fn answer(&self) -> Response<GatewayBody> {
        let mut answer = json(self.status(), &json!({"detail": self.to_string()}));
        let headers = answer.headers_mut();
        match self.status() {
            StatusCode::UNAUTHORIZED => {
                headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            }
            StatusCode::SERVICE_UNAVAILABLE => {
                headers.insert(RETRY_AFTER, HeaderValue::from_static("5"));
            }
            _ => {}
        }
        answer
    }
}

/// The answer to a health check.
pub(crate) fn healthy() -> Response<GatewayBody> {
    json(StatusCode::OK, &json!({"status": "ok"}))
}

/// Turns an answer of the gateway's own into the router's; others are a sandbox's, and stay.
pub(crate) async fn translated(
    answer: Response<GatewayBody>,
    id: &str,
) -> Result<Response<GatewayBody>, Refusal> {
    if answer.extensions().get::<OwnAnswer>().is_none() {
        return Ok(answer);
    }
    let status = answer.status();
    if status == StatusCode::BAD_GATEWAY {
        return Err(Refusal::Unreachable(id.to_owned()));
    }
    let body = answer.into_body().collect().await;
    let body = body.map(|body| body.to_bytes()).unwrap_or_default();
    let message = serde_json::from_slice(&body)
        .ok()
        .and_then(|body: Value| Some(body.get("message")?.as_str()?.to_owned()));
    let reason = || status.canonical_reason().unwrap_or_default().to_owned();
    Err(Refusal::Gateway(status, message.unwrap_or_else(reason)))
}

fn json(status: StatusCode, body: &Value) -> Response<GatewayBody> {
    let body = Full::new(Bytes::from(body.to_string()));
    let mut answer = Response::new(body.map_err(|never| match never {}).boxed_unsync());
    *answer.status_mut() = status;
    let kind = HeaderValue::from_static("application/json");
    answer.headers_mut().insert(CONTENT_TYPE, kind);
    answer
}
