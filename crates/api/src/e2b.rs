//! The E2B API, as E2B's SDKs, CLI and code interpreter use it.
//!
//! Names, defaults and texts here are E2B's. A change of its dialect only affects this module.

mod api_keys;
mod builds;
mod cpu;
mod create;
mod kruise;
mod legacy;
mod list;
mod logs;
mod meanings;
mod metrics;
mod network;
#[cfg(test)]
mod operations;
mod pause;
mod plan;
mod sandboxes;
mod snapshots;
mod tag_groups;
mod tags;
mod team_metrics;
mod templates;
pub(crate) mod uploads;
mod view;

use axum::routing::{delete, get, patch, post, put};
use shoal_core::id::SandboxId;

pub(crate) use self::builds::start as start_build;
#[cfg(test)]
pub(crate) use self::operations::operations;
pub(crate) use self::view::end_of;
use crate::error::ApiError;
use crate::routes::Routes;

/// The routes; all require a key.
pub(crate) fn routes() -> Routes {
    Routes::new()
        .route("/sandboxes", post(create::v1).get(list::v1))
        .route("/v2/sandboxes", post(create::v2).get(list::v2))
        .route("/sandboxes/metrics", get(metrics::latest))
        .route(
            "/sandboxes/{id}",
            get(sandboxes::get).delete(sandboxes::kill),
        )
        .route("/sandboxes/{id}/connect", post(sandboxes::connect_v1))
        .route("/v2/sandboxes/{id}/connect", post(sandboxes::connect_v2))
        .route("/sandboxes/{id}/timeout", post(sandboxes::set_timeout))
        .route("/sandboxes/{id}/refreshes", post(sandboxes::refresh))
        .route("/sandboxes/{id}/network", put(network::set))
        .route("/sandboxes/{id}/metrics", get(metrics::history))
        .route("/sandboxes/{id}/logs", get(logs::v1))
        .route("/v2/sandboxes/{id}/logs", get(logs::v2))
        .route("/sandboxes/{id}/pause", post(pause::pause))
        .route("/sandboxes/{id}/resume", post(pause::resume))
        .route("/sandboxes/{id}/fork", post(snapshots::fork))
        .route("/sandboxes/{id}/snapshots", post(snapshots::take))
        .route("/snapshots", get(snapshots::list))
        .route("/templates", get(templates::v1).post(legacy::announce))
        .route("/v2/templates", get(templates::v2).post(legacy::announce))
        .route("/default-templates", get(templates::defaults))
        .route(
            "/templates/{id}",
            get(templates::one).post(legacy::announce_again),
        )
        .route("/templates/{id}", delete(templates::remove))
        .route("/templates/{id}", patch(tags::publish_v1))
        .route("/v2/templates/{id}", patch(tags::publish_v2))
        .route("/v3/templates", post(builds::announce))
        .route("/templates/{id}/files/{hash}", get(uploads::link))
        .route("/v2/templates/{id}/builds/{build}", post(builds::begin))
        .route(
            "/templates/{id}/builds/{build}",
            delete(builds::cancel).post(legacy::begin),
        )
        .route("/templates/{id}/builds/{build}/status", get(builds::status))
        .route("/templates/{id}/builds/{build}/logs", get(builds::logs))
        .route("/templates/tags", post(tags::assign).delete(tags::remove))
        .route("/templates/{id}/tags", get(tags::list))
        .route("/templates/{id}/tags/exists", get(tags::exists))
        .route("/templates/{id}/tags/count", get(tags::count))
        .route("/templates/{id}/tags/groups", get(tag_groups::groups))
        .route(
            "/templates/{id}/tags/{tag}/assignments",
            get(tag_groups::assignments),
        )
        .route("/templates/aliases/{alias}", get(templates::alias))
        .route("/api-keys", get(api_keys::list).post(api_keys::create))
        .route(
            "/api-keys/{id}",
            patch(api_keys::rename).delete(api_keys::remove),
        )
        .route("/teams/{id}/metrics", get(team_metrics::history))
        .route("/teams/{id}/metrics/max", get(team_metrics::max))
}

/// Parses the id in a path.
fn sandbox_id(text: &str) -> Result<SandboxId, ApiError> {
    // An invalid id cannot belong to a sandbox.
    SandboxId::from_wire(text)
        .map_err(|_| ApiError::not_found(format!("sandbox {text:?} was not found")))
}
