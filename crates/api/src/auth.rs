//! Authentication: an API key becomes a [`Principal`].

use axum::body::{Body, HttpBody};
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use futures_util::future::Shared;
use futures_util::{FutureExt, StreamExt, stream};
use http::header::{AUTHORIZATION, SEC_WEBSOCKET_PROTOCOL};
use http::{HeaderMap, HeaderName, StatusCode};
use shoal_core::BoxFuture;
use shoal_core::auth::{ApiKey, Principal};

use crate::audit;
use crate::backend::Backend;
use crate::error::ApiError;

/// The header with the key of E2B's clients.
const API_KEY: HeaderName = HeaderName::from_static("x-api-key");
/// The scheme with the key of Agent-Sandbox's clients.
const BEARER: &str = "Bearer ";
/// The prefix of the WebSocket subprotocol in which a web page sends the key.
const KEY_PROTOCOL: &str = "shoal-key.";
/// The header in which they name a team; it must be the key's own.
const TEAM: HeaderName = HeaderName::from_static("x-team-id");

/// The key was deleted during the response, which is cut off.
#[derive(Debug, thiserror::Error)]
#[error("the API key was deleted")]
struct KeyDeleted;

/// Signals the deletion of a call's key. Everything that outlives the call watches it, so that a
/// deleted key has no effect any more.
#[derive(Clone)]
pub(crate) struct KeyLifetime(Shared<BoxFuture<'static, ()>>);

impl KeyLifetime {
    fn of(backend: &Backend, principal: &Principal) -> Self {
        Self(backend.keys.deleted(principal).shared())
    }

    /// Resolves when the key is deleted; immediately if it already is.
    pub(crate) async fn ended(&self) {
        // A shared future must not be polled after it has completed, so each wait uses a clone.
        self.0.clone().await;
    }
}

/// Requires a valid key, and adds its principal to the request.
pub(crate) async fn require_key(
    State(backend): State<Backend>,
    mut request: Request,
    next: Next,
) -> Result<Response, ApiError> {
    let principal = authenticate(&backend, request.headers()).await?;
    audit::caller(&principal);
    let lifetime = KeyLifetime::of(&backend, &principal);
    request.extensions_mut().insert(principal);
    request.extensions_mut().insert(lifetime.clone());
    // A slow request body or response must not outlast the deletion of its key.
    let response = tokio::select! {
        biased;
        response = next.run(request) => response,
        () = lifetime.ended() => {
            let message = "the API key is not valid";
            return Err(ApiError::new(StatusCode::UNAUTHORIZED, message));
        }
    };
    Ok(while_good(response, lifetime))
}

/// Cuts off a response that outlasts its key. Buffered data is still sent.
fn while_good(response: Response, lifetime: KeyLifetime) -> Response {
    if response.body().size_hint().exact().is_some() {
        return response;
    }
    response.map(|body| {
        let state = Some((body.into_data_stream(), lifetime));
        Body::from_stream(stream::unfold(state, |state| async {
            let (mut data, lifetime) = state?;
            tokio::select! {
                biased;
                () = lifetime.ended() => {
                    Some((Err(axum::Error::new(KeyDeleted)), None))
                }
                next = data.next() => Some((next?, Some((data, lifetime)))),
            }
        }))
    })
}

/// The key in a request, as text if it is valid text; `None` without a key. Cookies, which a
/// browser sends by itself, are never used.
fn offered(headers: &HeaderMap) -> Option<Option<&str>> {
    if let Some(key) = headers.get(&API_KEY) {
        return Some(key.to_str().ok());
    }
    if let Some(said) = headers.get(AUTHORIZATION) {
        let said = said.to_str().ok();
        return said.and_then(|said| said.strip_prefix(BEARER)).map(Some);
    }
    // A web page can choose no header of a WebSocket except its subprotocols.
    let protocols = headers.get_all(SEC_WEBSOCKET_PROTOCOL).iter();
    protocols
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .find_map(|protocol| protocol.trim().strip_prefix(KEY_PROTOCOL))
        .map(Some)
}

async fn authenticate(backend: &Backend, headers: &HeaderMap) -> Result<Principal, ApiError> {
    let unauthorized = |message: &str| ApiError::new(StatusCode::UNAUTHORIZED, message);
    let offered = offered(headers)
        .ok_or_else(|| unauthorized("no API key: send it in the header X-API-Key"))?;
    let key = offered.and_then(|text| ApiKey::parse(text).ok());
    let invalid = || unauthorized("the API key is not valid");
    let principal = backend
        .keys
        .authenticate(&key.ok_or_else(invalid)?)
        .await?
        .ok_or_else(invalid)?;
    if let Some(team) = headers.get(&TEAM)
        && team.to_str().ok() != Some(principal.team.to_string().as_str())
    {
        return Err(unauthorized("the API key belongs to another team"));
    }
    Ok(principal)
}
