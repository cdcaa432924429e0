//! One sandbox: get, kill, connect, and its timeout.

use std::time::Duration;

use axum::extract::{Path, State};
use axum::{Extension, Json};
use http::StatusCode;
use serde::Deserialize;
use shoal_core::auth::Principal;
use shoal_core::ports::sandboxes::SandboxError;

use super::sandbox_id;
use super::view::{Sandbox, SandboxDetail};
use crate::backend::Backend;
use crate::body::JsonBody;
use crate::config::ApiConfig;
use crate::error::ApiError;

/// The default timeout of a connect.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(300);

/// The maximum duration of a refresh.
const REFRESH_MAX: u64 = 3600;

pub(super) async fn get(
    State(backend): State<Backend>,
    Extension(principal): Extension<Principal>,
    Extension(config): Extension<ApiConfig>,
    Path(id): Path<String>,
) -> Result<Json<SandboxDetail>, ApiError> {
    let (_, record) = backend
        .sandboxes
        .authorize(&principal, &sandbox_id(&id)?)
        .await?;
    Ok(Json(SandboxDetail::of(&backend, &record, config.domain)))
}

pub(super) async fn kill(
    State(backend): State<Backend>,
    Extension(principal): Extension<Principal>,
    Path(id): Path<String>,
) -> Result<StatusCode, ApiError> {
    let id = sandbox_id(&id)?;
    let sandboxes = &backend.sandboxes;
    match sandboxes.authorize(&principal, &id).await {
        Err(SandboxError::NotFound(_))
            if sandboxes.clear_failed(&principal, id.as_str()).await? => {}
        found => sandboxes.kill(&found?.0).await?,
    }
    Ok(StatusCode::NO_CONTENT)
}

#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct TimeoutBody {
    timeout: Option<i64>,
    /// Of a connect: whether a paused sandbox resumes with its memory.
    memory: Option<bool>,
}

impl TimeoutBody {
    fn seconds(&self) -> Result<Option<Duration>, ApiError> {
        let read = |seconds: i64| {
            u64::try_from(seconds)
                .map(Duration::from_secs)
                .map_err(|_| ApiError::invalid("`timeout`: must not be negative"))
        };
        self.timeout.map(read).transpose()
    }

    fn required(&self) -> Result<Duration, ApiError> {
        self.seconds()?
            .ok_or_else(|| ApiError::invalid("`timeout`: is missing"))
    }
}

pub(super) async fn connect_v1(
    state: State<Backend>,
    principal: Extension<Principal>,
    config: Extension<ApiConfig>,
    path: Path<String>,
    body: JsonBody<TimeoutBody>,
) -> Result<(StatusCode, Json<Sandbox>), ApiError> {
    let timeout = body.value.required()?;
    let memory = body.value.memory.unwrap_or(true);
    connect(state, principal, config, path, timeout, memory).await
}

pub(super) async fn connect_v2(
    state: State<Backend>,
    principal: Extension<Principal>,
    config: Extension<ApiConfig>,
    path: Path<String>,
    body: JsonBody<TimeoutBody>,
) -> Result<(StatusCode, Json<Sandbox>), ApiError> {
    let timeout = body.value.seconds()?.unwrap_or(CONNECT_TIMEOUT);
    let memory = body.value.memory.unwrap_or(true);
    connect(state, principal, config, path, timeout, memory).await
}

async fn connect(
    State(backend): State<Backend>,
    Extension(principal): Extension<Principal>,
    Extension(config): Extension<ApiConfig>,
    Path(id): Path<String>,
    timeout: Duration,
    memory: bool,
) -> Result<(StatusCode, Json<Sandbox>), ApiError> {
    let (permit, _) = backend
        .sandboxes
        .authorize(&principal, &sandbox_id(&id)?)
        .await?;
    let connected = backend.sandboxes.connect(&permit, timeout, memory).await?;
    let status = if connected.resumed {
        StatusCode::CREATED
    } else {
        StatusCode::OK
    };
    let view = Sandbox::of(&backend, &connected.record, config.domain);
    Ok((status, Json(view)))
}

pub(super) async fn set_timeout(
    State(backend): State<Backend>,
    Extension(principal): Extension<Principal>,
    Path(id): Path<String>,
    body: JsonBody<TimeoutBody>,
) -> Result<StatusCode, ApiError> {
    let timeout = body.value.required()?;
    let (permit, _) = backend
        .sandboxes
        .authorize(&principal, &sandbox_id(&id)?)
        .await?;
    backend.sandboxes.set_timeout(&permit, timeout).await?;
    Ok(StatusCode::NO_CONTENT)
}

#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct RefreshBody {
    duration: Option<u64>,
}

pub(super) async fn refresh(
    State(backend): State<Backend>,
    Extension(principal): Extension<Principal>,
    Path(id): Path<String>,
    body: JsonBody<RefreshBody>,
) -> Result<StatusCode, ApiError> {
    let seconds = body.value.duration.unwrap_or(0);
    if seconds > REFRESH_MAX {
        return Err(ApiError::invalid(format_args!(
            "`duration`: at most {REFRESH_MAX}"
        )));
    }
    let (permit, _) = backend
        .sandboxes
        .authorize(&principal, &sandbox_id(&id)?)
        .await?;
    backend
        .sandboxes
        .refresh(&permit, Duration::from_secs(seconds))
        .await?;
    Ok(StatusCode::NO_CONTENT)
}
