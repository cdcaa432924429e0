//! Listing, showing and removing templates.

use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use http::{HeaderValue, StatusCode};
use serde::{Deserialize, Serialize};
use shoal_core::auth::Principal;
use shoal_core::build::BuildRecord;
use shoal_core::ports::snapshots::SnapshotError;
use shoal_core::ports::templates::TemplateError;
use shoal_core::template::{Template as Stored, TemplateRef};
use shoal_protocol::ENVD_VERSION;

use super::builds::template_id;
use super::list::{NEXT_TOKEN, limit};
use super::meanings;
use crate::backend::Backend;
use crate::error::ApiError;
use crate::query::Query;

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "E2bTemplate"))]
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
    build_count: usize,
    envd_version: &'static str,
    build_status: &'static str,
    is_default: bool,
    description: String,
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "TemplateBuild"))]
#[serde(rename_all = "camelCase")]
pub(super) struct Build {
    #[serde(rename = "buildID")]
    pub(super) build_id: String,
    pub(super) status: &'static str,
    pub(super) created_at: String,
    pub(super) updated_at: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) finished_at: Option<String>,
    pub(super) cpu_count: u32,
    #[serde(rename = "memoryMB")]
    pub(super) memory_mb: u32,
    #[serde(rename = "diskSizeMB")]
    pub(super) disk_size_mb: u32,
    pub(super) envd_version: &'static str,
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub(super) struct TemplateWithBuilds {
    #[serde(rename = "templateID")]
    pub(super) template_id: String,
    pub(super) public: bool,
    pub(super) aliases: Vec<String>,
    pub(super) names: Vec<String>,
    pub(super) created_at: String,
    pub(super) updated_at: String,
    pub(super) last_spawned_at: Option<String>,
    pub(super) spawn_count: u64,
    pub(super) builds: Vec<Build>,
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "TemplateAlias"))]
pub(super) struct Alias {
    #[serde(rename = "templateID")]
    template_id: String,
    public: bool,
}

/// A template's names, without and with its namespace. The installation's templates have no
/// namespace.
fn names(backend: &Backend, template: &Stored) -> (Vec<String>, Vec<String>) {
    let aliases: Vec<String> = template.names.iter().map(ToString::to_string).collect();
    let names = match template.team.and_then(|team| backend.teams.slug(team)) {
        Some(slug) => aliases
            .iter()
            .map(|alias| format!("{slug}/{alias}"))
            .collect(),
        None => aliases.clone(),
    };
    (aliases, names)
}

fn view(backend: &Backend, template: &Stored) -> Template {
    let (aliases, names) = names(backend, template);
    let starts = backend.templates.starts(&template.id);
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
        build_count: backend.builds.of_template(&template.id).len().max(1),
        envd_version: ENVD_VERSION,
        build_status: "ready",
        is_default: template.team.is_none(),
        description: template.description.clone(),
    }
}

/// The name of a template without a finished build, with its namespace if it has one.
fn name_to_come(principal: &Principal, build: &BuildRecord) -> String {
    if build.builtin {
        return build.name.to_string();
    }
    format!("{}/{}", principal.slug, build.name)
}

/// A template without a finished build, as its latest build describes it.
pub(super) fn view_to_come(
    backend: &Backend,
    principal: &Principal,
    build: &BuildRecord,
) -> Template {
    Template {
        template_id: build.template.to_string(),
        build_id: build.id.to_string(),
        cpu_count: build.resources.cpu.whole(),
        memory_mb: build.resources.memory.0,
        disk_size_mb: build.resources.disk.0,
        public: build.builtin || build.public,
        aliases: vec![build.name.to_string()],
        names: vec![name_to_come(principal, build)],
        created_at: build.created_at.to_string(),
        updated_at: build.updated_at.to_string(),
        created_by: None,
        last_spawned_at: None,
        spawn_count: 0,
        build_count: backend.builds.of_template(&build.template).len(),
        envd_version: ENVD_VERSION,
        build_status: build.status.as_str(),
        is_default: build.builtin,
        description: String::new(),
    }
}

/// Every template that the caller may use, and the team's templates without a finished build.
fn views(backend: &Backend, principal: &Principal) -> Vec<Template> {
    let to_come = backend.builds.pending_templates(principal);
    let to_come = to_come
        .iter()
        .map(|build| view_to_come(backend, principal, build));
    let there = backend.templates.list(principal);
    let there = there.iter().map(|template| view(backend, template));
    to_come.chain(there).collect()
}

fn build_view(build: &BuildRecord) -> Build {
    Build {
        build_id: build.id.to_string(),
        status: build.status.as_str(),
        created_at: build.created_at.to_string(),
        updated_at: build.updated_at.to_string(),
        finished_at: build.finished_at.map(|at| at.to_string()),
        cpu_count: build.resources.cpu.whole(),
        memory_mb: build.resources.memory.0,
        disk_size_mb: build.resources.disk.0,
        envd_version: ENVD_VERSION,
    }
}

/// The builds of a template. One without builds is shown with a single build.
fn builds(backend: &Backend, template: &Stored) -> Vec<Build> {
    let builds = backend.builds.of_template(&template.id);
    if !builds.is_empty() {
        return builds.iter().map(|build| build_view(build)).collect();
    }
    let updated = template.updated_at.to_string();
    vec![Build {
        build_id: template.build.to_string(),
        status: "ready",
        created_at: updated.clone(),
        updated_at: updated.clone(),
        finished_at: Some(updated),
        cpu_count: template.resources.cpu.whole(),
        memory_mb: template.resources.memory.0,
        disk_size_mb: template.resources.disk.0,
        envd_version: ENVD_VERSION,
    }]
}

/// `GET /templates`: all templates.
pub(super) async fn v1(
    State(backend): State<Backend>,
    Extension(principal): Extension<Principal>,
    Query(query): Query<ListQuery>,
) -> Result<Json<Vec<Template>>, ApiError> {
    check_team(query.team_id.as_deref(), &principal)?;
    Ok(Json(views(&backend, &principal)))
}

/// `GET /default-templates`: the installation's templates.
pub(super) async fn defaults(
    State(backend): State<Backend>,
    Extension(principal): Extension<Principal>,
) -> Json<Vec<Template>> {
    let mut templates = views(&backend, &principal);
    templates.retain(|template| template.is_default);
    Json(templates)
}

#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub(super) struct ListQuery {
    /// Team id; must be the key's own.
    #[serde(rename = "teamID")]
    team_id: Option<String>,
    /// Size of a page: 1 to 100 (default).
    #[cfg_attr(test, schemars(with = "Option<u32>"))]
    limit: Option<String>,
    /// Token of the page, from `X-Next-Token`.
    next_token: Option<String>,
}

/// Refuses a team other than the key's own.
pub(super) fn check_team(team: Option<&str>, principal: &Principal) -> Result<(), ApiError> {
    match team.filter(|team| !team.is_empty()) {
        Some(team) if team != principal.team.to_string() => Err(ApiError::new(
            StatusCode::FORBIDDEN,
            "the API key belongs to another team",
        )),
        _ => Ok(()),
    }
}

/// `GET /v2/templates`: a page.
pub(super) async fn v2(
    State(backend): State<Backend>,
    Extension(principal): Extension<Principal>,
    Query(query): Query<ListQuery>,
) -> Result<Response, ApiError> {
    check_team(query.team_id.as_deref(), &principal)?;
    let limit = limit(query.limit.as_deref())?;
    let mut all = views(&backend, &principal);
    let begin = match query
        .next_token
        .as_deref()
        .filter(|token| !token.is_empty())
    {
        None => 0,
        Some(last) => {
            1 + all
                .iter()
                .position(|template| template.template_id == last)
                .ok_or_else(|| ApiError::invalid("invalid next token"))?
        }
    };
    let more = begin + limit < all.len();
    all.truncate(begin + limit);
    let page = all.split_off(begin);
    let last = page.last().filter(|_| more);
    let token = last.and_then(|last| HeaderValue::from_str(&last.template_id).ok());
    let mut response = Json(page).into_response();
    if let Some(token) = token {
        response.headers_mut().insert(NEXT_TOKEN, token);
    }
    Ok(response)
}

pub(super) fn reference(text: &str) -> Result<TemplateRef, ApiError> {
    // An invalid reference cannot belong to a template.
    text.parse()
        .map_err(|_| ApiError::not_found(format!("template {text:?} not found")))
}

/// `GET /templates/{id}`: one template, by id or name.
pub(super) async fn one(
    State(backend): State<Backend>,
    Extension(principal): Extension<Principal>,
    Path(id): Path<String>,
) -> Result<Json<TemplateWithBuilds>, ApiError> {
    let Ok(reference) = reference(&id) else {
        return Ok(Json(meanings::shown(&backend, &principal, &id).await?));
    };
    // In this order: a first build that finishes in between is found as a template.
    if let Some(to_come) = to_come(&backend, &principal, &reference) {
        return Ok(Json(to_come));
    }
    let Some(template) = backend.templates.find(&principal, &reference) else {
        return Ok(Json(meanings::shown(&backend, &principal, &id).await?));
    };
    let (aliases, names) = names(&backend, &template);
    let starts = backend.templates.starts(&template.id);
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
        updated_at: updated,
        last_spawned_at: starts.last.map(|at| at.to_string()),
        spawn_count: starts.count,
        builds: builds(&backend, &template),
    }))
}

/// A template without a finished build, with its builds.
fn to_come(
    backend: &Backend,
    principal: &Principal,
    reference: &TemplateRef,
) -> Option<TemplateWithBuilds> {
    let latest = backend.builds.pending_template(principal, reference)?;
    let builds = backend.builds.of_template(&latest.template);
    Some(TemplateWithBuilds {
        template_id: latest.template.to_string(),
        public: latest.builtin || latest.public,
        aliases: vec![latest.name.to_string()],
        names: vec![name_to_come(principal, &latest)],
        created_at: latest.created_at.to_string(),
        updated_at: latest.updated_at.to_string(),
        last_spawned_at: None,
        spawn_count: 0,
        builds: builds.iter().map(|build| build_view(build)).collect(),
    })
}

/// `DELETE /templates/{id}`: a template, or a snapshot by its E2B id.
pub(super) async fn remove(
    State(backend): State<Backend>,
    Extension(principal): Extension<Principal>,
    Path(id): Path<String>,
) -> Result<StatusCode, ApiError> {
    let reference = reference(&id)?;
    match backend.templates.delete(&principal, &reference).await {
        Err(missing @ (TemplateError::NotFound(_) | TemplateError::NoTag { .. })) => {
            // A name without a tag means all its tags.
            match backend.snapshots.delete(&principal, &reference).await {
                Err(SnapshotError::NotFound(_)) => return Err(missing.into()),
                removed => removed?,
            }
        }
        removed => removed?,
    }
    Ok(StatusCode::NO_CONTENT)
}

/// `GET /templates/aliases/{alias}`: whether a name refers to a template. Names belong to a team,
/// so a name that only another team uses is free. Another team's private template looks like a
/// missing one.
pub(super) async fn alias(
    State(backend): State<Backend>,
    Extension(principal): Extension<Principal>,
    Path(alias): Path<String>,
) -> Result<Json<Alias>, ApiError> {
    let made = template_id(&backend, &principal, &alias);
    let template = made.or_else(|missing| {
        let meant = meanings::resolve(&backend, &principal, &alias);
        meant.map(|meant| meant.id).map_err(|_| missing)
    })?;
    let known = backend.templates.by_id(&template);
    Ok(Json(Alias {
        template_id: template.to_string(),
        public: known.is_some_and(|known| known.public),
    }))
}
