//! Shoal's own API under `/api/v1`: what E2B's has no words for.
//!
//! Every answer is an envelope (`shoal_protocol::native::Envelope`) beside a real status; long
//! work on images is answered in lines of JSON. Keys, images and templates are made and removed
//! by admin keys only, and pools are seen by them only.

mod admin;
mod answer;
mod catalogue;
mod images;
mod keys;
mod pool;
mod progress;
mod sandboxes;
mod snapshots;
mod status;
mod templates;

use axum::Router;
use axum::routing::{delete, get, patch, post};
use shoal_engine::Engine;

pub(crate) use self::answer::enveloped;

/// The routes, all of which need a key.
pub(crate) fn routes() -> Router<Engine> {
    Router::new()
        .route("/keys", get(keys::list).post(keys::create))
        .route("/keys/{id}", delete(keys::remove))
        .route("/images", get(images::list).delete(images::remove))
        .route("/images/pull", post(images::pull))
        .route("/images/import", post(images::import))
        .route("/templates", get(templates::list).post(templates::create))
        .route(
            "/templates/{id}",
            get(templates::one).delete(templates::remove),
        )
        .route(
            "/config/templates",
            get(catalogue::get).post(catalogue::replace),
        )
        .route("/config/templates/resolve", get(catalogue::resolve))
        .route("/pool", get(pool::list))
        .route("/pool/sandbox/{id}", get(pool::members))
        .route("/pool/{id}", delete(pool::remove))
        .route("/sandbox/{id}/resources", patch(sandboxes::resize))
        .route("/snapshots/export", post(snapshots::export))
        .route("/snapshots/import", post(snapshots::import))
        .route("/status", get(status::get))
}
