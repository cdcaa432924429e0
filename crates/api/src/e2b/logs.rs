//! The logs of sandboxes.

use std::collections::BTreeMap;

use axum::extract::{Path, State};
use axum::{Extension, Json};
use serde::{Deserialize, Serialize};
use serde_json::json;
use shoal_core::auth::Principal;
use shoal_core::clock::Timestamp;
use shoal_core::ports::observe::{LogEntry, LogLevel, LogQuery};

use super::sandbox_id;
use crate::backend::Backend;
use crate::error::ApiError;
use crate::query::Query;

/// The maximum and default number of entries in a response.
const LIMIT_MAX: usize = 1000;

/// The longest search text.
const SEARCH_MAX: usize = 256;

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "SandboxLogEntry"))]
struct Entry {
    timestamp: String,
    message: String,
    level: &'static str,
    fields: BTreeMap<String, String>,
}

impl From<LogEntry> for Entry {
    fn from(entry: LogEntry) -> Self {
        Self {
            timestamp: entry.at.to_string(),
            message: entry.message,
            level: entry.level.as_str(),
            fields: entry.fields,
        }
    }
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "SandboxLogLine"))]
struct Line {
    timestamp: String,
    line: String,
}

impl From<&LogEntry> for Line {
    /// The old form: the command line parses the line as JSON, and needs `level` in it.
    fn from(entry: &LogEntry) -> Self {
        let mut line = json!({
            "level": entry.level.as_str(), "message": entry.message, "logger": "envd",
        });
        if let Some(object) = line.as_object_mut() {
            for (name, value) in &entry.fields {
                object.insert(name.clone(), value.as_str().into());
            }
        }
        Self {
            timestamp: entry.at.to_string(),
            line: line.to_string(),
        }
    }
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "SandboxLogsV1"))]
#[serde(rename_all = "camelCase")]
pub(super) struct V1Logs {
    logs: Vec<Line>,
    log_entries: Vec<Entry>,
}

#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct V1Query {
    /// Time from which to show entries, in Unix milliseconds.
    start: Option<i64>,
    /// Number of entries: at most 1000 (default).
    #[cfg_attr(test, schemars(range(max = 1000)))]
    limit: Option<usize>,
}

/// `GET /sandboxes/{id}/logs`: from a time on, oldest first.
pub(super) async fn v1(
    State(backend): State<Backend>,
    Extension(principal): Extension<Principal>,
    Path(id): Path<String>,
    Query(query): Query<V1Query>,
) -> Result<Json<V1Logs>, ApiError> {
    let query = LogQuery {
        cursor: query.start.map(Timestamp::from_unix_millis),
        limit: limit(query.limit)?,
        ..LogQuery::default()
    };
    let entries = backend
        .telemetry
        .logs(&principal, &sandbox_id(&id)?, query)
        .await?;
    Ok(Json(V1Logs {
        logs: entries.iter().map(Line::from).collect(),
        log_entries: entries.into_iter().map(Entry::from).collect(),
    }))
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "SandboxLogsV2"))]
pub(super) struct V2Logs {
    logs: Vec<Entry>,
}

#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct V2Query {
    /// Time to begin at, in Unix milliseconds.
    cursor: Option<i64>,
    /// Number of entries: at most 1000 (default).
    #[cfg_attr(test, schemars(range(max = 1000)))]
    limit: Option<usize>,
    /// Order of the entries; `backward` by default.
    #[cfg_attr(test, schemars(extend("enum" = ["forward", "backward"])))]
    direction: Option<String>,
    /// Minimum level.
    #[cfg_attr(test, schemars(with = "Option<shoal_protocol::build::Level>"))]
    level: Option<LogLevel>,
    /// Text to search for.
    #[cfg_attr(test, schemars(length(max = 256)))]
    search: Option<String>,
}

/// `GET /v2/sandboxes/{id}/logs`: in either direction.
pub(super) async fn v2(
    State(backend): State<Backend>,
    Extension(principal): Extension<Principal>,
    Path(id): Path<String>,
    Query(query): Query<V2Query>,
) -> Result<Json<V2Logs>, ApiError> {
    let backward = match query.direction.as_deref() {
        None | Some("backward") => true,
        Some("forward") => false,
        Some(_) => return Err(ApiError::invalid("`direction`: forward or backward")),
    };
    if query
        .search
        .as_ref()
        .is_some_and(|text| text.chars().count() > SEARCH_MAX)
    {
        return Err(ApiError::invalid(format_args!(
            "`search`: at most {SEARCH_MAX} characters"
        )));
    }
    let query = LogQuery {
        cursor: query.cursor.map(Timestamp::from_unix_millis),
        backward,
        limit: limit(query.limit)?,
        level: query.level,
        search: query.search.filter(|text| !text.is_empty()),
    };
    let entries = backend
        .telemetry
        .logs(&principal, &sandbox_id(&id)?, query)
        .await?;
    Ok(Json(V2Logs {
        logs: entries.into_iter().map(Entry::from).collect(),
    }))
}

fn limit(asked: Option<usize>) -> Result<usize, ApiError> {
    let limit = asked.unwrap_or(LIMIT_MAX);
    if limit > LIMIT_MAX {
        return Err(ApiError::invalid(format_args!(
            "`limit`: at most {LIMIT_MAX}"
        )));
    }
    Ok(limit)
}
