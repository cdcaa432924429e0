//! Templates that there are.

use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use http::{HeaderValue, StatusCode};
use serde::{Deserialize, Serialize};
use shoal_core::auth::Principal;
use shoal_core::template::{Template as Stored, TemplateRef};
use shoal_engine::{Engine, TemplateError};
use shoal_protocol::ENVD_VERSION;

use super::list::{NEXT_TOKEN, limit};
use crate::error::ApiError;
use crate::query::Query;

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Template {
    #[serde(rename = "templateID")]
    template_id: String,
    #[serde(rename = "buildID")]
    build_id: String,
    cpu_count: u32,
    #[serde(rename = "memoryMB")]
    memory_mb: u32,
    #[serde(rename = "diskSizeMB")]
    disk_size_mb: u32,
    public: bool,
    aliases: Vec<String>,
    names: Vec<String>,
    created_at: String,
    updated_at: String,
    created_by: Option<()>,
    last_spawned_at: Option<String>,
    spawn_count: u64,
    build_count: u32,
    envd_version: &'static str,
    build_status: &'static str,
    is_default: bool,
    description: String,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Build {
    #[serde(rename = "buildID")]
    build_id: String,
    status: &'static str,
    created_at: String,
    updated_at: String,
    finished_at: String,
    cpu_count: u32,
    #[serde(rename = "memoryMB")]
    memory_mb: u32,
    #[serde(rename = "diskSizeMB")]
    disk_size_mb: u32,
    envd_version: &'static str,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct TemplateWithBuilds {
    #[serde(rename = "templateID")]
    template_id: String,
    public: bool,
    aliases: Vec<String>,
    names: Vec<String>,
    created_at: String,
    updated_at: String,
    last_spawned_at: Option<String>,
    spawn_count: u64,
    builds: Vec<Build>,
}

#[derive(Debug, Serialize)]
pub(super) struct Alias {
    #[serde(rename = "templateID")]
    template_id: String,
    public: bool,
}

fn names(template: &Stored, principal: &Principal) -> (Vec<String>, Vec<String>) {
    let aliases: Vec<String> = template.names.iter().map(ToString::to_string).collect();
    let names = match template.team {
        Some(team) if team == principal.team => aliases
            .iter()
            .map(|alias| format!("{}/{alias}", principal.slug))
            .collect(),
        _ => aliases.clone(),
    };
    (aliases, names)
}

fn view(engine: &Engine, principal: &Principal, template: &Stored) -> Template {
    let (aliases, names) = names(template, principal);
    let starts = engine.template_starts(&template.id);
    Template {
        template_id: template.id.to_string(),
        build_id: template.build.to_string(),
        cpu_count: template.resources.cpu.whole(),
        memory_mb: template.resources.memory.0,
        disk_size_mb: template.resources.disk.0,
        public: template.public,
        aliases,
        names,
        created_at: template.created_at.to_string(),
        updated_at: template.updated_at.to_string(),
        created_by: None,
        last_spawned_at: starts.last.map(|at| at.to_string()),
        spawn_count: starts.count,
        build_count: 1,
        envd_version: ENVD_VERSION,
        build_status: "ready",
        is_default: template.team.is_none(),
        description: template.description.clone(),
    }
}

/// `GET /templates`: all of them.
pub(super) async fn v1(
    State(engine): State<Engine>,
    Extension(principal): Extension<Principal>,
    Query(query): Query<ListQuery>,
) -> Result<Json<Vec<Template>>, ApiError> {
    query.check_team(&principal)?;
    let all = engine.templates(&principal);
    Ok(Json(
        all.iter()
            .map(|template| view(&engine, &principal, template))
            .collect(),
    ))
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ListQuery {
    #[serde(rename = "teamID")]
    team_id: Option<String>,
    limit: Option<String>,
    next_token: Option<String>,
}

impl ListQuery {
    fn check_team(&self, principal: &Principal) -> Result<(), ApiError> {
        match self.team_id.as_deref().filter(|team| !team.is_empty()) {
            Some(team) if team != principal.team.to_string() => Err(ApiError::new(
                StatusCode::FORBIDDEN,
                "the API key belongs to another team",
            )),
            _ => Ok(()),
        }
    }
}

/// `GET /v2/templates`: a page.
pub(super) async fn v2(
    State(engine): State<Engine>,
    Extension(principal): Extension<Principal>,
    Query(query): Query<ListQuery>,
) -> Result<Response, ApiError> {
    query.check_team(&principal)?;
    let limit = limit(query.limit.as_deref())?;
    let all = engine.templates(&principal);
    let begin = match query
        .next_token
        .as_deref()
        .filter(|token| !token.is_empty())
    {
        None => 0,
        Some(last) => {
            1 + all
                .iter()
                .position(|template| template.id.as_str() == last)
                .ok_or_else(|| ApiError::invalid("invalid next token"))?
        }
    };
    let page = &all[begin..all.len().min(begin + limit)];
    let views: Vec<Template> = page
        .iter()
        .map(|template| view(&engine, &principal, template))
        .collect();
    let mut response = Json(views).into_response();
    let more = begin + limit < all.len();
    if let Some(last) = page.last().filter(|_| more)
        && let Ok(token) = HeaderValue::from_str(last.id.as_str())
    {
        response.headers_mut().insert(NEXT_TOKEN, token);
    }
    Ok(response)
}

fn reference(text: &str) -> Result<TemplateRef, ApiError> {
    // What is no reference is no template's.
    text.parse()
        .map_err(|_| ApiError::not_found(format!("template {text:?} not found")))
}

/// `GET /templates/{id}`: one, by id or name.
pub(super) async fn one(
    State(engine): State<Engine>,
    Extension(principal): Extension<Principal>,
    Path(id): Path<String>,
) -> Result<Json<TemplateWithBuilds>, ApiError> {
    let template = engine.resolve_template(&principal, &reference(&id)?)?;
    let (aliases, names) = names(&template, &principal);
    let starts = engine.template_starts(&template.id);
    let (created, updated) = (
        template.created_at.to_string(),
        template.updated_at.to_string(),
    );
    Ok(Json(TemplateWithBuilds {
        template_id: template.id.to_string(),
        public: template.public,
        aliases,
        names,
        created_at: created,
        updated_at: updated.clone(),
        last_spawned_at: starts.last.map(|at| at.to_string()),
        spawn_count: starts.count,
        builds: vec![Build {
            build_id: template.build.to_string(),
            status: "ready",
            created_at: updated.clone(),
            updated_at: updated.clone(),
            finished_at: updated,
            cpu_count: template.resources.cpu.whole(),
            memory_mb: template.resources.memory.0,
            disk_size_mb: template.resources.disk.0,
            envd_version: ENVD_VERSION,
        }],
    }))
}

/// `DELETE /templates/{id}`: a template, or a snapshot by what E2B calls it.
pub(super) async fn remove(
    State(engine): State<Engine>,
    Extension(principal): Extension<Principal>,
    Path(id): Path<String>,
) -> Result<StatusCode, ApiError> {
    let reference = reference(&id)?;
    match engine.delete_template(&principal, &reference).await {
        Err(TemplateError::NotFound(_) | TemplateError::NoTag { .. })
            if engine.resolve_snapshot(&principal, &reference).is_ok() =>
        {
            engine.delete_snapshot(&principal, &reference).await?;
        }
        removed => removed?,
    }
    Ok(StatusCode::NO_CONTENT)
}

/// `GET /templates/aliases/{alias}`: whether a name is taken; 403 says that it is, by another.
pub(super) async fn alias(
    State(engine): State<Engine>,
    Extension(principal): Extension<Principal>,
    Path(alias): Path<String>,
) -> Result<Json<Alias>, ApiError> {
    let reference = reference(&alias)?;
    match engine.resolve_template(&principal, &reference) {
        Ok(template) => Ok(Json(Alias {
            template_id: template.id.to_string(),
            public: template.public,
        })),
        Err(_) if engine.template_is_hidden(&principal, &reference) => Err(ApiError::new(
            StatusCode::FORBIDDEN,
            "the name belongs to another team",
        )),
        Err(error) => Err(error.into()),
    }
}
