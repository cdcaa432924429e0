//! The resource usage of sandboxes.

use std::collections::BTreeMap;

use axum::extract::{Path, State};
use axum::{Extension, Json};
use serde::{Deserialize, Serialize};
use shoal_core::auth::Principal;
use shoal_core::clock::Timestamp;
use shoal_core::ports::observe::Sample;

use super::sandbox_id;
use crate::backend::Backend;
use crate::error::ApiError;
use crate::query::Query;

/// The maximum number of sandboxes in a request.
const IDS_MAX: usize = 100;

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub(super) struct SandboxMetric {
    timestamp: String,
    timestamp_unix: i64,
    cpu_count: u32,
    cpu_used_pct: f32,
    mem_used: u64,
    mem_total: u64,
    mem_cache: u64,
    disk_used: u64,
    disk_total: u64,
    /// Traffic of the network interface; absent in a cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    shoal: Option<Traffic>,
}

/// Metrics that E2B lacks.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "NetworkTraffic"))]
#[serde(rename_all = "camelCase")]
struct Traffic {
    /// Bytes a second that it received since the metric before, requests to the sandbox included.
    received_rate: u64,
    /// Bytes a second that it sent.
    sent_rate: u64,
}

impl From<&Sample> for SandboxMetric {
    fn from(sample: &Sample) -> Self {
        Self {
            timestamp: sample.at.to_string(),
            timestamp_unix: sample.at.unix_seconds(),
            cpu_count: sample.cpu_count,
            cpu_used_pct: sample.cpu_used_percent,
            mem_used: sample.memory_used,
            mem_total: sample.memory_total,
            mem_cache: sample.memory_cache,
            disk_used: sample.disk_used,
            disk_total: sample.disk_total,
            shoal: sample.network.map(|network| Traffic {
                received_rate: network.received,
                sent_rate: network.sent,
            }),
        }
    }
}

#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct HistoryQuery {
    /// First second, in Unix time.
    start: Option<i64>,
    /// Last second, in Unix time.
    end: Option<i64>,
}

/// `GET /sandboxes/{id}/metrics`, oldest first.
pub(super) async fn history(
    State(backend): State<Backend>,
    Extension(principal): Extension<Principal>,
    Path(id): Path<String>,
    Query(query): Query<HistoryQuery>,
) -> Result<Json<Vec<SandboxMetric>>, ApiError> {
    if let (Some(start), Some(end)) = (query.start, query.end)
        && start > end
    {
        return Err(ApiError::invalid("`start`: must not be after `end`"));
    }
    let (permit, _) = backend
        .sandboxes
        .authorize(&principal, &sandbox_id(&id)?)
        .await?;
    let start = query.start.map(Timestamp::from_unix_seconds);
    // The end is inclusive: the whole second counts.
    let end = query
        .end
        .map(|end| Timestamp::from_unix_seconds(end.saturating_add(1)));
    let samples = backend.telemetry.metrics(&permit, start, end).await;
    Ok(Json(samples.iter().map(SandboxMetric::from).collect()))
}

#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct LatestQuery {
    /// Sandbox ids, joined by commas: at most 100.
    sandbox_ids: Option<String>,
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "LatestMetrics"))]
pub(super) struct Latest {
    sandboxes: BTreeMap<String, SandboxMetric>,
}

/// `GET /sandboxes/metrics`: the latest of several sandboxes; unknown ones are omitted.
pub(super) async fn latest(
    State(backend): State<Backend>,
    Extension(principal): Extension<Principal>,
    Query(query): Query<LatestQuery>,
) -> Result<Json<Latest>, ApiError> {
    let ids = query.sandbox_ids.as_deref().unwrap_or_default();
    let ids: Vec<&str> = ids.split(',').filter(|id| !id.is_empty()).collect();
    if ids.len() > IDS_MAX {
        return Err(ApiError::invalid(format_args!(
            "`sandbox_ids`: at most {IDS_MAX}"
        )));
    }
    let mut sandboxes = BTreeMap::new();
    for text in ids {
        let id = sandbox_id(text)?;
        let Ok((permit, record)) = backend.sandboxes.authorize(&principal, &id).await else {
            continue;
        };
        if let Some(last) = backend.telemetry.metrics(&permit, None, None).await.last() {
            sandboxes.insert(record.id.to_string(), SandboxMetric::from(last));
        }
    }
    Ok(Json(Latest { sandboxes }))
}
