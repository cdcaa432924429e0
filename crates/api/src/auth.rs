//! Who calls: an API key becomes a [`Principal`].

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use http::{HeaderMap, HeaderName, StatusCode};
use shoal_core::auth::{ApiKey, Principal};
use shoal_engine::Engine;

use crate::error::ApiError;

/// Where the field's clients put the key.
const API_KEY: HeaderName = HeaderName::from_static("x-api-key");
/// Where they name a team; it must be the key's own.
const TEAM: HeaderName = HeaderName::from_static("x-team-id");

/// Lets only callers with a good key pass, and says who they are.
pub(crate) async fn require_key(
    State(engine): State<Engine>,
    mut request: Request,
    next: Next,
) -> Result<Response, ApiError> {
    let principal = authenticate(&engine, request.headers()).await?;
    request.extensions_mut().insert(principal);
    Ok(next.run(request).await)
}

async fn authenticate(engine: &Engine, headers: &HeaderMap) -> Result<Principal, ApiError> {
    let unauthorized = |message: &str| ApiError::new(StatusCode::UNAUTHORIZED, message);
    let offered = headers
        .get(&API_KEY)
        .ok_or_else(|| unauthorized("no API key: send it in the header X-API-Key"))?;
    let key = offered
        .to_str()
        .ok()
        .and_then(|text| ApiKey::parse(text).ok());
    let invalid = || unauthorized("the API key is not valid");
    let principal = engine
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
