//! How many sandboxes a team runs and starts.

use std::time::Duration;

use axum::extract::{Path, State};
use axum::{Extension, Json};
use http::StatusCode;
use serde::{Deserialize, Serialize};
use shoal_core::auth::Principal;
use shoal_core::clock::Timestamp;
use shoal_core::ports::observe::TeamSample;

use crate::backend::Backend;
use crate::error::ApiError;
use crate::query::Query;

/// The default time range.
const USUAL: Duration = Duration::from_secs(7 * 24 * 3600);

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub(super) struct TeamMetric {
    timestamp: String,
    timestamp_unix: i64,
    concurrent_sandboxes: u64,
    sandbox_start_rate: f64,
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub(super) struct MaxTeamMetric {
    timestamp: String,
    timestamp_unix: i64,
    value: f64,
}

#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct TimeQuery {
    /// First second, in Unix time; a week before the last by default.
    start: Option<i64>,
    /// Last second, in Unix time; now by default.
    end: Option<i64>,
}

#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct MaxQuery {
    /// Metric. Required.
    #[cfg_attr(test, schemars(required, extend("enum" = ["concurrent_sandboxes", "sandbox_start_rate"])))]
    metric: Option<String>,
    /// First second, in Unix time; a week before the last by default.
    start: Option<i64>,
    /// Last second, in Unix time; now by default.
    end: Option<i64>,
}

/// A team's metrics. The error is the same for every other team, whether it exists or not.
async fn samples(
    backend: &Backend,
    principal: &Principal,
    team: &str,
    (start, end): (Option<i64>, Option<i64>),
) -> Result<Vec<TeamSample>, ApiError> {
    if team != principal.team.to_string() {
        return Err(ApiError::new(
            StatusCode::FORBIDDEN,
            "the key belongs to another team",
        ));
    }
    let end = end.unwrap_or_else(|| backend.clock.now().unix_seconds());
    let usual = i64::try_from(USUAL.as_secs()).unwrap_or(i64::MAX);
    let start = start.unwrap_or_else(|| end.saturating_sub(usual));
    if start > end {
        return Err(ApiError::invalid("`start`: must not be after `end`"));
    }
    let at = Timestamp::from_unix_seconds;
    Ok(backend
        .telemetry
        .team_metrics(principal, at(start), at(end))
        .await)
}

/// `GET /teams/{id}/metrics`, oldest first.
pub(super) async fn history(
    State(backend): State<Backend>,
    Extension(principal): Extension<Principal>,
    Path(team): Path<String>,
    Query(query): Query<TimeQuery>,
) -> Result<Json<Vec<TeamMetric>>, ApiError> {
    let found = samples(&backend, &principal, &team, (query.start, query.end)).await?;
    let shown = found.iter().map(|sample| TeamMetric {
        timestamp: sample.at.to_string(),
        timestamp_unix: sample.at.unix_seconds(),
        concurrent_sandboxes: sample.concurrent,
        sandbox_start_rate: sample.start_rate,
    });
    Ok(Json(shown.collect()))
}

/// `GET /teams/{id}/metrics/max`: the maximum of one metric.
pub(super) async fn max(
    State(backend): State<Backend>,
    Extension(principal): Extension<Principal>,
    Path(team): Path<String>,
    Query(query): Query<MaxQuery>,
) -> Result<Json<MaxTeamMetric>, ApiError> {
    let found = samples(&backend, &principal, &team, (query.start, query.end)).await?;
    #[expect(clippy::cast_precision_loss, reason = "far fewer sandboxes than 2^52")]
    let value: fn(&TeamSample) -> f64 = match query.metric.as_deref() {
        Some("concurrent_sandboxes") => |sample| sample.concurrent as f64,
        Some("sandbox_start_rate") => |sample| sample.start_rate,
        _ => {
            let message = "`metric`: concurrent_sandboxes or sandbox_start_rate";
            return Err(ApiError::invalid(message));
        }
    };
    let highest = found
        .iter()
        .max_by(|a, b| value(a).total_cmp(&value(b)))
        .map_or_else(|| (backend.clock.now(), 0.0), |most| (most.at, value(most)));
    Ok(Json(MaxTeamMetric {
        timestamp: highest.0.to_string(),
        timestamp_unix: highest.0.unix_seconds(),
        value: highest.1,
    }))
}
