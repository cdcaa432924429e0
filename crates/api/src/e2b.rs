//! The E2B API: what its SDKs, command line and interpreter call.
//!
//! Names, defaults and texts here are E2B's; a change of its dialect touches this folder only.

mod create;
mod list;
mod logs;
mod metrics;
mod network;
mod sandboxes;
mod templates;
mod view;

use axum::Router;
use axum::routing::{any, delete, get, post, put};
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
        .route("/sandboxes/{id}/pause", any(not_yet))
        .route("/sandboxes/{id}/resume", any(not_yet))
        .route("/sandboxes/{id}/fork", any(not_yet))
        .route("/sandboxes/{id}/snapshots", any(not_yet))
        .route("/snapshots", any(not_yet))
        .route("/templates", get(templates::v1))
        .route("/v2/templates", get(templates::v2))
        .route("/templates/{id}", get(templates::one))
        .route("/templates/{id}", delete(templates::remove))
        .route("/templates/aliases/{alias}", get(templates::alias))
}

/// What is known by name and not there yet.
async fn not_yet(uri: http::Uri) -> ApiError {
    ApiError::not_implemented(uri.path())
}

/// Reads the id in a path.
fn sandbox_id(text: &str) -> Result<SandboxId, ApiError> {
    // What is no id is no sandbox's.
    SandboxId::from_wire(text)
        .map_err(|_| ApiError::not_found(format!("sandbox {text:?} was not found")))
}
