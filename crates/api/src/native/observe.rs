//! What sandboxes use, write and live through.

use axum::Extension;
use axum::extract::{Path, State};
use serde::Deserialize;
use shoal_core::auth::Principal;
use shoal_core::id::SandboxId;
use shoal_core::sandbox::SandboxRecord;
use shoal_engine::{EVENTS_MAX, Engine, LogEntry, LogQuery, Sample, SandboxEvent};
use shoal_protocol::native::{AskMetrics, Event, Items, SandboxLogs, SandboxUse};

use super::answer::Answer;
use crate::body::JsonBody;
use crate::error::ApiError;
use crate::query::Query;

/// How many sandboxes may be named at once.
const NAMES_MAX: usize = 1000;

/// How many lines of a log there are at most, and when nothing is said.
const LINES_MAX: usize = 2000;
const LINES: usize = 200;

/// How many events there are when nothing is said.
const EVENTS: usize = 100;

/// `POST /sandbox/metrics`: the latest of several; those that are not there are left out.
pub(super) async fn metrics(
    State(engine): State<Engine>,
    Extension(principal): Extension<Principal>,
    body: JsonBody<AskMetrics>,
) -> Result<Answer<Items<SandboxUse>>, ApiError> {
    let names = body.value.names;
    if names.len() > NAMES_MAX {
        return Err(ApiError::invalid(format_args!(
            "`names`: at most {NAMES_MAX}"
        )));
    }
    let found: Vec<_> = if names.is_empty() {
        let filter = shoal_engine::ListFilter::all(usize::MAX);
        let own = engine.list(&principal, &filter).sandboxes.into_iter();
        own.filter_map(|record| engine.authorize(&principal, &record.id).ok())
            .collect()
    } else {
        let named = names.iter();
        named
            .filter_map(|name| engine.find(&principal, name).ok())
            .collect()
    };
    let items = found.into_iter().filter_map(|(permit, record)| {
        let samples = engine.metrics(&permit, None, None);
        Some(used(&record, samples.last()?))
    });
    let items = items.collect();
    Ok(Answer::ok(Items { items }))
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a share between 0 and 100 percent"
)]
fn used(record: &SandboxRecord, sample: &Sample) -> SandboxUse {
    // Of all processors in percent: of each, ten thousandths.
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
#[serde(rename_all = "camelCase")]
pub(super) struct LogsQuery {
    tail_lines: Option<usize>,
}

/// `GET /logs/sandbox/{id}`: the last lines, in the order in which they came. One that has ended is
/// found by its id alone.
pub(super) async fn logs(
    State(engine): State<Engine>,
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
    let (sandbox, name) = match engine.find(&principal, &id) {
        Ok((_, record)) => (record.id.clone(), record.name()),
        Err(unknown) => (id.parse().map_err(|_| unknown)?, id),
    };
    let query = LogQuery {
        backward: true,
        limit,
        ..LogQuery::default()
    };
    let mut entries = engine.logs(&principal, &sandbox, query).await?;
    entries.reverse();
    Ok(Answer::ok(SandboxLogs {
        sandbox: name,
        logs: entries.iter().map(line).collect(),
        fetched_at: engine.now().to_string(),
    }))
}

/// An entry as a line, with what belongs to it behind its message.
fn line(entry: &LogEntry) -> String {
    use std::fmt::Write as _;

    let mut line = format!("{} {} {}", entry.at, entry.level.as_str(), entry.message);
    for (name, value) in &entry.fields {
        // Writing to a string cannot fail.
        let _ = write!(line, " {name}={value}");
    }
    // One entry is one line, whatever is in it.
    let mut line = line.replace(['\n', '\r'], " ");
    line.push('\n');
    line
}

#[derive(Debug, Deserialize)]
pub(super) struct EventsQuery {
    sandbox: Option<String>,
    limit: Option<usize>,
}

/// `GET /events`: the latest of the key's team, the newest first.
pub(super) async fn events(
    State(engine): State<Engine>,
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
        None => engine.events(&principal, None, limit),
        Some(text) => of_sandbox(&engine, &principal, text, limit)?,
    };
    let items = events
        .into_iter()
        .map(|event| shown(&engine, &principal, event));
    let items = items.collect();
    Ok(Answer::ok(Items { items }))
}

/// The events of one sandbox, which may have ended if it is named by its id.
fn of_sandbox(
    engine: &Engine,
    principal: &Principal,
    text: &str,
    limit: usize,
) -> Result<Vec<SandboxEvent>, ApiError> {
    match engine.find(principal, text) {
        Ok((permit, _)) => Ok(engine.events(principal, Some(permit.sandbox()), limit)),
        Err(unknown) => {
            let id = text.parse::<SandboxId>().ok();
            let events = id.map(|id| engine.events(principal, Some(&id), limit));
            let events = events.filter(|events| !events.is_empty());
            events.ok_or_else(|| unknown.into())
        }
    }
}

fn shown(engine: &Engine, principal: &Principal, event: SandboxEvent) -> Event {
    // It is written as one word.
    let kind = serde_json::to_value(event.kind).unwrap_or_default();
    let lives = engine.authorize(principal, &event.sandbox).ok();
    let detail = event.detail.into_iter();
    Event {
        kind: kind.as_str().unwrap_or_default().to_owned(),
        at: event.at.to_string(),
        name: lives.map(|(_, record)| record.name()),
        sandbox: event.sandbox.to_string(),
        template: event.template.to_string(),
        detail: detail.map(|(name, text)| (name.to_owned(), text)).collect(),
    }
}
