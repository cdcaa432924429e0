//! Announcing template builds as older clients do. Those then pushed an image to a registry of
//! E2B's, which Shoal does not have; an announced build is started like any other.

use axum::extract::{Path, State};
use axum::{Extension, Json};
use http::StatusCode;
use serde::Deserialize;
use shoal_core::auth::Principal;
use shoal_protocol::build::NewBuild;

use super::builds::announced;
use super::tags::find;
use super::templates::{Template, check_team, view_to_come};
use crate::backend::Backend;
use crate::body::RequiredBody;
use crate::error::ApiError;

/// A build as these clients ask for it. `dockerfile`, `startCmd` and `readyCmd` are not read: what a
/// build does is said when it is begun.
#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "LegacyBuild"))]
#[serde(rename_all = "camelCase")]
pub(super) struct Request {
    alias: Option<String>,
    #[serde(rename = "teamID")]
    team_id: Option<String>,
    cpu_count: Option<u32>,
    #[serde(rename = "memoryMB")]
    memory_mb: Option<u32>,
}

/// `POST /templates` and `POST /v2/templates`: announces a build.
pub(super) async fn announce(
    State(backend): State<Backend>,
    Extension(principal): Extension<Principal>,
    RequiredBody(body): RequiredBody<Request>,
) -> Result<(StatusCode, Json<Template>), ApiError> {
    announce_as(&backend, &principal, body).await
}

/// `POST /templates/{id}`: announces another build of a template.
pub(super) async fn announce_again(
    State(backend): State<Backend>,
    Extension(principal): Extension<Principal>,
    Path(id): Path<String>,
    RequiredBody(mut body): RequiredBody<Request>,
) -> Result<(StatusCode, Json<Template>), ApiError> {
    let template = find(&backend, &principal, &id)?;
    if template.team != Some(principal.team) {
        return Err(ApiError::not_found(format!("template {id:?} not found")));
    }
    let name = template.names.first();
    let name = name.ok_or_else(|| ApiError::invalid("the template has no name"))?;
    body.alias = Some(name.to_string());
    announce_as(&backend, &principal, body).await
}

/// `POST /templates/{id}/builds/{build}`: would start a build of a pushed image.
pub(super) async fn begin() -> ApiError {
    ApiError::new(
        StatusCode::BAD_REQUEST,
        "builds of pushed images are not supported: begin the build with POST \
         /v2/templates/{templateID}/builds/{buildID}, and `fromImage` or `fromTemplate`",
    )
}

async fn announce_as(
    backend: &Backend,
    principal: &Principal,
    body: Request,
) -> Result<(StatusCode, Json<Template>), ApiError> {
    check_team(body.team_id.as_deref(), principal)?;
    let new = NewBuild {
        alias: body.alias,
        cpu_count: body.cpu_count,
        memory_mb: body.memory_mb,
        ..NewBuild::default()
    };
    let build = announced(backend, principal, new).await?;
    let view = view_to_come(backend, principal, &build);
    Ok((StatusCode::ACCEPTED, Json(view)))
}
