//! Metrics, logs and events of sandboxes.

use axum::Extension;
use axum::extract::{Path, State};
use serde::Deserialize;
use shoal_core::auth::Principal;
use shoal_core::id::SandboxId;
use shoal_core::ports::list::ListFilter;
use shoal_core::ports::observe::{EVENTS_MAX, EventKind, LogEntry, LogQuery, Sample, SandboxEvent};
use shoal_core::sandbox::SandboxRecord;
use shoal_protocol::native::{AskMetrics, Event, Items, SandboxLogs, SandboxUse};

use super::answer::Answer;
use crate::backend::Backend;
use crate::body::JsonBody;
use crate::error::ApiError;
use crate::query::Query;

/// The maximum number of sandboxes in a request.
const NAMES_MAX: usize = 1000;

/// The maximum and default number of log lines.
const LINES_MAX: usize = 2000;
const LINES: usize = 200;

/// The default number of events.
const EVENTS: usize = 100;

/// `POST /sandbox/metrics`: the latest of several sandboxes; unknown ones are omitted.
pub(super) async fn metrics(
    State(backend): State<Backend>,
    Extension(principal): Extension<Principal>,
    body: JsonBody<AskMetrics>,
) -> Result<Answer<Items<SandboxUse>>, ApiError> {
    let names = body.value.names;
    if names.len() > NAMES_MAX {
        return Err(ApiError::invalid(format_args!(
            "`names`: at most {NAMES_MAX}"
        )));
    }
    let mut found = Vec::new();
    if names.is_empty() {
        let filter = ListFilter::all(usize::MAX);
        for record in backend.sandboxes.list(&principal, &filter).await.sandboxes {
            found.extend(backend.sandboxes.authorize(&principal, &record.id).await);
        }
    } else {
        for name in &names {
            found.extend(backend.sandboxes.find(&principal, name).await);
        }
    }
    let mut items = Vec::new();
    for (permit, record) in found {
        let samples = backend.telemetry.metrics(&permit, None, None).await;
        items.extend(samples.last().map(|sample| used(&record, sample)));
    }
    Ok(Answer::ok(Items { items }))
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a share between 0 and 100 percent"
)]
fn used(record: &SandboxRecord, sample: &Sample) -> SandboxUse {
    // From percent of all processors to thousandths of a processor.
    let milli = f64::from(sample.cpu_used_percent) * f64::from(sample.cpu_count) * 10.0;
    SandboxUse {
        sandbox: record.name(),
        id: record.id.to_string(),
        cpu_milli: milli.round() as u64,
        memory_bytes: sample.memory_used,
        memory_mb: sample.memory_used >> 20,
        disk_bytes: sample.disk_used,
        sampled_at: sample.at.to_string(),
    }
}

#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub(super) struct LogsQuery {
    /// Number of lines: 1 to 2000, 200 by default.
    #[cfg_attr(test, schemars(range(min = 1, max = 2000)))]
    tail_lines: Option<usize>,
}

/// `GET /logs/sandbox/{id}`: the last lines, oldest first. A sandbox that has ended is found only
/// by its id.
pub(super) async fn logs(
    State(backend): State<Backend>,
    Extension(principal): Extension<Principal>,
    Path(id): Path<String>,
    Query(query): Query<LogsQuery>,
) -> Result<Answer<SandboxLogs>, ApiError> {
    let limit = query.tail_lines.unwrap_or(LINES);
    if !(1..=LINES_MAX).contains(&limit) {
        return Err(ApiError::invalid(format_args!(
            "`tailLines`: 1 to {LINES_MAX}"
        )));
    }
    let (sandbox, name) = match backend.sandboxes.find(&principal, &id).await {
        Ok((_, record)) => (record.id.clone(), record.name()),
        Err(unknown) => (id.parse().map_err(|_| unknown)?, id),
    };
    let query = LogQuery {
        backward: true,
        limit,
        ..LogQuery::default()
    };
    let mut entries = backend.telemetry.logs(&principal, &sandbox, query).await?;
    entries.reverse();
    Ok(Answer::ok(SandboxLogs {
        sandbox: name,
        logs: entries.iter().map(line).collect(),
        fetched_at: backend.clock.now().to_string(),
    }))
}

/// An entry as one line, with its fields after the message.
fn line(entry: &LogEntry) -> String {
    use std::fmt::Write as _;

    let mut line = format!("{} {} {}", entry.at, entry.level.as_str(), entry.message);
    for (name, value) in &entry.fields {
        // Writing to a string cannot fail.
        let _ = write!(line, " {name}={value}");
    }
    // One entry is one line, regardless of its contents.
    let mut line = line.replace(['\n', '\r'], " ");
    line.push('\n');
    line
}

#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct EventsQuery {
    /// Sandbox name or id; all sandboxes if absent.
    sandbox: Option<String>,
    /// Number of events, 100 by default.
    #[cfg_attr(test, schemars(range(min = 1)))]
    limit: Option<usize>,
}

/// `GET /events`: the latest events of the key's team, newest first.
pub(super) async fn events(
    State(backend): State<Backend>,
    Extension(principal): Extension<Principal>,
    Query(query): Query<EventsQuery>,
) -> Result<Answer<Items<Event>>, ApiError> {
    let limit = query.limit.unwrap_or(EVENTS);
    if !(1..=EVENTS_MAX).contains(&limit) {
        return Err(ApiError::invalid(format_args!(
            "`limit`: 1 to {EVENTS_MAX}"
        )));
    }
    let asked = query.sandbox.filter(|text| !text.is_empty());
    let events = match &asked {
        None => backend.telemetry.events(&principal, None, limit).await,
        Some(text) => of_sandbox(&backend, &principal, text, limit).await?,
    };
    let mut items = Vec::new();
    for event in events {
        items.push(shown(&backend, &principal, event).await);
    }
    Ok(Answer::ok(Items { items }))
}

/// The events of one sandbox, which may have ended if it is named by its id.
async fn of_sandbox(
    backend: &Backend,
    principal: &Principal,
    text: &str,
    limit: usize,
) -> Result<Vec<SandboxEvent>, ApiError> {
    let (id, unknown) = match backend.sandboxes.find(principal, text).await {
        Ok((permit, _)) => (permit.sandbox().clone(), None),
        Err(unknown) => match text.parse::<SandboxId>() {
            Ok(id) => (id, Some(unknown)),
            Err(_) => return Err(unknown.into()),
        },
    };
    let events = backend.telemetry.events(principal, Some(&id), limit).await;
    match unknown {
        Some(unknown) if events.is_empty() => Err(unknown.into()),
        _ => Ok(events),
    }
}

/// The name of a type of events, as clients see it.
pub(super) fn kind_name(kind: EventKind) -> String {
    // Serialized as one word.
    let name = serde_json::to_value(kind).unwrap_or_default();
    name.as_str().unwrap_or_default().to_owned()
}

async fn shown(backend: &Backend, principal: &Principal, event: SandboxEvent) -> Event {
    let lives = backend
        .sandboxes
        .authorize(principal, &event.sandbox)
        .await
        .ok();
    let detail = event.detail.into_iter();
    Event {
        kind: kind_name(event.kind),
        at: event.at.to_string(),
        name: lives.map(|(_, record)| record.name()),
        sandbox: event.sandbox.to_string(),
        template: event.template.to_string(),
        detail: detail.map(|(name, text)| (name.to_owned(), text)).collect(),
    }
}
