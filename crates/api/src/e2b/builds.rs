//! Builds of templates: announcing, starting, watching, cancelling.

use std::str::FromStr;
use std::sync::Arc;

use axum::extract::{Path, State};
use axum::{Extension, Json};
use http::StatusCode;
use shoal_core::auth::Principal;
use shoal_core::build::{BuildLogEntry, BuildRecord, LogLevel};
use shoal_core::id::{BuildId, TemplateId};
use shoal_core::ports::builds::BuildRequest;
use shoal_core::resources::{Mib, MilliCpu, Resources};
use shoal_core::template::TemplateRef;
use shoal_protocol::build::{self as wire, LOG_PAGE, Level, Progress, Reason, RequestedBuild};

use super::plan::plan_of;
use super::templates::reference;
use crate::audit;
use crate::backend::Backend;
use crate::body::JsonBody;
use crate::error::ApiError;
use crate::query::Query;

/// How many of the last log lines accompany the reason of a failure.
const REASON_LINES: usize = 20;

/// The maximum processors of a template, as in E2B.
const CPUS_MAX: u32 = 32;

/// The minimum memory of a template in MiB, as in E2B.
const MEMORY_MIN: u32 = 128;

/// `POST /v3/templates`: announces a build.
pub(super) async fn announce(
    State(backend): State<Backend>,
    Extension(principal): Extension<Principal>,
    body: JsonBody<wire::NewBuild>,
) -> Result<(StatusCode, Json<RequestedBuild>), ApiError> {
    let build = announced(&backend, &principal, body.value).await?;
    Ok((
        StatusCode::ACCEPTED,
        Json(requested(&backend, &principal, &build)),
    ))
}

/// Announces a build, for any of the routes.
pub(super) async fn announced(
    backend: &Backend,
    principal: &Principal,
    body: wire::NewBuild,
) -> Result<Arc<BuildRecord>, ApiError> {
    let resources = resources(&body)?;
    let name = body.name.or(body.alias);
    let name = name.ok_or_else(|| ApiError::invalid("`name`: the template needs one"))?;
    let name: TemplateRef = name.parse().map_err(ApiError::invalid)?;
    let tags = body.tags.unwrap_or_default();
    let tags = tags
        .iter()
        .map(|tag| tag_of(tag))
        .collect::<Result<_, _>>()?;
    let new = BuildRequest {
        name,
        tags,
        resources,
    };
    let build = backend.builds.announce(principal, new).await?;
    audit::target(&build.template);
    audit::target(build.id);
    Ok(build)
}

/// The resources of the template's sandboxes, by E2B's rules.
fn resources(body: &wire::NewBuild) -> Result<Resources, ApiError> {
    let mut resources = Resources::default();
    if let Some(cpus) = body.cpu_count {
        if !(cpus == 1 || cpus.is_multiple_of(2)) || !(1..=CPUS_MAX).contains(&cpus) {
            return Err(ApiError::invalid(format_args!(
                "`cpuCount`: 1, or an even number up to {CPUS_MAX}"
            )));
        }
        resources.cpu = MilliCpu(cpus * 1000);
    }
    if let Some(memory) = body.memory_mb {
        if !memory.is_multiple_of(2) || memory < MEMORY_MIN {
            return Err(ApiError::invalid(format_args!(
                "`memoryMB`: an even number from {MEMORY_MIN} on"
            )));
        }
        resources.memory = Mib(memory);
    }
    Ok(resources)
}

/// Parses a tag without its template's name.
pub(super) fn tag_of(text: &str) -> Result<String, ApiError> {
    let read = TemplateRef::from_str(&format!("x:{text}"));
    read.ok()
        .and_then(|reference| reference.tag)
        .ok_or_else(|| ApiError::invalid(format_args!("invalid tag {text:?}")))
}

fn requested(backend: &Backend, principal: &Principal, build: &BuildRecord) -> RequestedBuild {
    let known = backend.templates.by_id(&build.template);
    let aliases = vec![build.name.to_string()];
    RequestedBuild {
        template_id: build.template.to_string(),
        build_id: build.id.to_string(),
        public: known.map_or(build.public, |template| template.public),
        names: vec![format!("{}/{}", principal.slug, build.name)],
        tags: build.tags.clone(),
        aliases,
    }
}

/// `POST /v2/templates/{id}/builds/{build}`: starts an announced build with its plan.
pub(super) async fn begin(
    State(backend): State<Backend>,
    Extension(principal): Extension<Principal>,
    Path((template, build)): Path<(String, String)>,
    body: JsonBody<wire::BuildStart>,
) -> Result<StatusCode, ApiError> {
    let build = find(&backend, &principal, &template, &build).await?;
    let plan = plan_of(body.value)?;
    backend.builds.begin(&principal, build.id, plan).await?;
    Ok(StatusCode::ACCEPTED)
}

/// Announces a build and starts it, for routes whose requests have its plan.
pub(crate) async fn start(
    backend: &Backend,
    principal: &Principal,
    new: wire::NewBuild,
    start: wire::BuildStart,
) -> Result<RequestedBuild, ApiError> {
    let plan = plan_of(start)?;
    let build = announced(backend, principal, new).await?;
    if let Err(refused) = backend.builds.begin(principal, build.id, plan).await {
        // No other request starts it.
        if let Err(error) = backend.builds.cancel(principal, build.id).await {
            tracing::debug!(%error, build = %build.id, "a build that was not started stays announced");
        }
        return Err(refused.into());
    }
    Ok(requested(backend, principal, &build))
}

/// `DELETE /templates/{id}/builds/{build}`: cancels a build that has not finished.
pub(super) async fn cancel(
    State(backend): State<Backend>,
    Extension(principal): Extension<Principal>,
    Path((template, build)): Path<(String, String)>,
) -> Result<StatusCode, ApiError> {
    let build = find(&backend, &principal, &template, &build).await?;
    backend.builds.cancel(&principal, build.id).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// `GET /templates/{id}/builds/{build}/status`: the status and log of a build.
pub(super) async fn status(
    State(backend): State<Backend>,
    Extension(principal): Extension<Principal>,
    Path((template, build)): Path<(String, String)>,
    Query(query): Query<wire::StatusQuery>,
) -> Result<Json<wire::BuildStatus>, ApiError> {
    let build = find(&backend, &principal, &template, &build).await?;
    let level = query.level.map_or(LogLevel::Debug, level_of);
    let log = backend.builds.log(build.id, level).await?;
    let limit = query.limit.unwrap_or(LOG_PAGE).min(LOG_PAGE);
    let page: Vec<wire::LogEntry> = log
        .iter()
        .skip(query.logs_offset)
        .take(limit)
        .map(entry)
        .collect();
    let reason = build.failure.as_ref().map(|failure| Reason {
        message: failure.message.clone(),
        step: failure.part.map(|part| part.to_string()),
        log_entries: log[log.len().saturating_sub(REASON_LINES)..]
            .iter()
            .map(entry)
            .collect(),
    });
    Ok(Json(wire::BuildStatus {
        template_id: build.template.to_string(),
        build_id: build.id.to_string(),
        status: progress(&build),
        logs: page.iter().map(|entry| entry.message.clone()).collect(),
        log_entries: page,
        reason,
    }))
}

/// The wanted part of a build's log.
#[derive(Debug, serde::Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct LogsQuery {
    /// Time to begin at, in Unix milliseconds.
    cursor: Option<i64>,
    /// Number of entries: at most 100 (default).
    limit: Option<usize>,
    /// Order of the entries; `forward` by default.
    #[cfg_attr(test, schemars(extend("enum" = ["forward", "backward"])))]
    direction: Option<String>,
    /// Minimum level.
    level: Option<Level>,
}

/// A part of a build's log.
#[derive(Debug, serde::Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "BuildLogs"))]
pub(super) struct Logs {
    logs: Vec<wire::LogEntry>,
}

/// `GET /templates/{id}/builds/{build}/logs`: the log of a build, by time.
pub(super) async fn logs(
    State(backend): State<Backend>,
    Extension(principal): Extension<Principal>,
    Path((template, build)): Path<(String, String)>,
    Query(query): Query<LogsQuery>,
) -> Result<Json<Logs>, ApiError> {
    let build = find(&backend, &principal, &template, &build).await?;
    let backward = match query.direction.as_deref() {
        None | Some("forward") => false,
        Some("backward") => true,
        Some(other) => {
            return Err(ApiError::invalid(format_args!(
                "`direction`: forward or backward, not {other:?}"
            )));
        }
    };
    let level = query.level.map_or(LogLevel::Debug, level_of);
    let mut log = backend.builds.log(build.id, level).await?;
    if backward {
        log.reverse();
    }
    if let Some(cursor) = query.cursor {
        log.retain(|entry| {
            let at = entry.at.unix_millis();
            if backward { at <= cursor } else { at >= cursor }
        });
    }
    log.truncate(query.limit.unwrap_or(LOG_PAGE).min(LOG_PAGE));
    let logs = log.iter().map(entry).collect();
    Ok(Json(Logs { logs }))
}

/// A build of the caller's team, from its path.
async fn find(
    backend: &Backend,
    principal: &Principal,
    template: &str,
    build: &str,
) -> Result<Arc<BuildRecord>, ApiError> {
    let missing = || {
        ApiError::not_found(format!(
            "build {build:?} of template {template:?} was not found"
        ))
    };
    let id: BuildId = build.parse().map_err(|_| missing())?;
    let build = backend.builds.get(principal, id).await;
    let build = build.ok_or_else(missing)?;
    // This is polled frequently, and nearly always with the id.
    let of_it = build.template.as_str() == template
        || template_id(backend, principal, template)? == build.template;
    of_it.then_some(build).ok_or_else(missing)
}

/// The template id for a path: of a template, or of one without a finished build.
pub(super) fn template_id(
    backend: &Backend,
    principal: &Principal,
    text: &str,
) -> Result<TemplateId, ApiError> {
    let reference = reference(text)?;
    // In this order: a first build that finishes in between is found as a template.
    if let Some(build) = backend.builds.pending_template(principal, &reference) {
        return Ok(build.template.clone());
    }
    let found = backend.templates.find(principal, &reference);
    let found = found.ok_or_else(|| ApiError::not_found(format!("template {text:?} not found")))?;
    Ok(found.id.clone())
}

pub(super) fn progress(build: &BuildRecord) -> Progress {
    use shoal_core::build::BuildStatus;
    match build.status {
        BuildStatus::Waiting => Progress::Waiting,
        BuildStatus::Building => Progress::Building,
        BuildStatus::Ready => Progress::Ready,
        BuildStatus::Error => Progress::Error,
    }
}

fn level_of(level: Level) -> LogLevel {
    match level {
        Level::Debug => LogLevel::Debug,
        Level::Info => LogLevel::Info,
        Level::Warn => LogLevel::Warn,
        Level::Error => LogLevel::Error,
    }
}

fn entry(entry: &BuildLogEntry) -> wire::LogEntry {
    wire::LogEntry {
        timestamp: entry.at.to_string(),
        message: entry.message.clone(),
        level: match entry.level {
            LogLevel::Debug => Level::Debug,
            LogLevel::Info => Level::Info,
            LogLevel::Warn => Level::Warn,
            LogLevel::Error => Level::Error,
        },
        step: entry.part.map(|part| part.to_string()),
    }
}
