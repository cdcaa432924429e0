//! The E2B API: what its SDKs, command line and interpreter call.
//!
//! Names, defaults and texts here are E2B's; a change of its dialect touches this folder only.

mod cpu;
mod create;
mod list;
mod logs;
mod metrics;
mod network;
mod pause;
mod sandboxes;
mod snapshots;
mod templates;
mod view;

use axum::Router;
use axum::routing::{delete, get, post, put};
use shoal_core::id::SandboxId;
use shoal_engine::Engine;

use crate::error::ApiError;

/// The routes, all of which need a key.
pub(crate) fn routes() -> Router<Engine> {
    Router::new()
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
        .route("/templates", get(templates::v1))
        .route("/v2/templates", get(templates::v2))
        .route("/templates/{id}", get(templates::one))
        .route("/templates/{id}", delete(templates::remove))
        .route("/templates/aliases/{alias}", get(templates::alias))
}

/// Reads the id in a path.
fn sandbox_id(text: &str) -> Result<SandboxId, ApiError> {
    // What is no id is no sandbox's.
    SandboxId::from_wire(text)
        .map_err(|_| ApiError::not_found(format!("sandbox {text:?} was not found")))
}
