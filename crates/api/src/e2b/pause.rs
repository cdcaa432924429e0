//! `POST /sandboxes/{id}/pause` and `/resume`, and connecting to a paused sandbox.

use std::time::Duration;

use axum::extract::{Path, State};
use axum::{Extension, Json};
use http::StatusCode;
use serde::Deserialize;
use shoal_core::auth::Principal;
use shoal_core::snapshot::Contents;

use super::sandbox_id;
use super::view::Sandbox;
use crate::backend::Backend;
use crate::body::JsonBody;
use crate::config::ApiConfig;
use crate::error::ApiError;

/// The default timeout of a resume.
const RESUME_TIMEOUT: i64 = 15;

#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub(super) struct PauseBody {
    memory: Option<bool>,
    #[serde(default)]
    require_healthy_guest: bool,
}

/// Responds when everything is on disk.
pub(super) async fn pause(
    State(backend): State<Backend>,
    Extension(principal): Extension<Principal>,
    Path(id): Path<String>,
    body: JsonBody<PauseBody>,
) -> Result<StatusCode, ApiError> {
    let (permit, _) = backend
        .sandboxes
        .authorize(&principal, &sandbox_id(&id)?)
        .await?;
    let PauseBody {
        memory,
        require_healthy_guest,
    } = body.value;
    let contents = memory.map(Contents::with_memory);
    backend
        .sandboxes
        .pause(&permit, contents, require_healthy_guest)
        .await?;
    Ok(StatusCode::NO_CONTENT)
}

#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub(super) struct ResumeBody {
    timeout: Option<i64>,
    memory: Option<bool>,
}

/// Deprecated in favour of connect, which old clients do not have.
pub(super) async fn resume(
    State(backend): State<Backend>,
    Extension(principal): Extension<Principal>,
    Extension(config): Extension<ApiConfig>,
    Path(id): Path<String>,
    body: JsonBody<ResumeBody>,
) -> Result<(StatusCode, Json<Sandbox>), ApiError> {
    let (permit, _) = backend
        .sandboxes
        .authorize(&principal, &sandbox_id(&id)?)
        .await?;
    let seconds = u64::try_from(body.value.timeout.unwrap_or(RESUME_TIMEOUT))
        .map_err(|_| ApiError::invalid("`timeout`: must not be negative"))?;
    let memory = body.value.memory.unwrap_or(true);
    let record = backend
        .sandboxes
        .resume(&permit, Duration::from_secs(seconds), memory)
        .await?;
    let view = Sandbox::of(&backend, &record, config.domain);
    Ok((StatusCode::CREATED, Json(view)))
}
