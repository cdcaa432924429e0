//! Shoal's own API under `/api/v1`, for features that E2B's does not have.
//!
//! Every response is an envelope (`shoal_protocol::native::Envelope`) with the proper HTTP status.
//! Long operations on images respond with lines of JSON. Admin keys are required to manage keys,
//! images and templates over images, to see pools, and to build the installation's templates unless
//! `templates.build_on_demand` allows it to all. Sandboxes have Agent-Sandbox's fields, and are
//! addressed by name or id. Those of other teams are not found, even by an admin, who sees them
//! only in the list.

mod admin;
mod answer;
mod builds;
mod catalogue;
mod create;
mod doctor;
mod files;
mod images;
mod keys;
mod limits;
mod objects;
mod observe;
#[cfg(test)]
mod operations;
mod pool;
mod progress;
mod resize;
mod sandbox_events;
mod sandboxes;
mod sessions;
mod snapshots;
mod sse;
mod status;
mod teams;
mod templates;
mod terminal;
mod tokens;
mod view;

use axum::extract::DefaultBodyLimit;
use axum::routing::{any, delete, get, patch, post, put};

use crate::routes::Routes;

pub(crate) use self::answer::{envelope, enveloped};
#[cfg(test)]
pub(crate) use self::operations::operations;

/// The routes; all require a key.
pub(crate) fn routes() -> Routes {
    sessions::routes()
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
        .route("/templates/{id}/build", post(templates::build))
        .route("/builds", post(builds::start))
        .route("/sandbox", get(sandboxes::list).post(create::create))
        .route("/sandboxes/events", get(sandbox_events::follow))
        .route("/sandbox/metrics", post(observe::metrics))
        .route(
            "/sandbox/{id}",
            get(sandboxes::get).delete(sandboxes::remove),
        )
        .route("/sandbox/{id}/objects", get(objects::list))
        .route("/sandbox/{id}/resources", patch(resize::resize))
        .route("/sandbox/{id}/rotate-token", post(tokens::rotate))
        .route("/sandbox/pause/{id}", post(sandboxes::pause))
        .route("/sandbox/resume/{id}", post(sandboxes::resume))
        .route(
            "/sandbox/files/{id}",
            get(files::list).delete(files::remove),
        )
        .route("/sandbox/files/{id}/download", get(files::download))
        .route("/logs/sandbox/{id}", get(observe::logs))
        .route("/events", get(observe::events))
        .route("/terminal/sandbox/{id}", post(terminal::run))
        .route("/terminal/sandbox/{id}/ws", any(terminal::open))
        .route("/ratelimit", get(limits::get))
        .route("/teams", get(teams::list))
        .route("/teams/{name}/limits", put(teams::limit))
        .route(
            "/config/templates",
            get(catalogue::get).post(catalogue::replace),
        )
        .route("/config/templates/resolve", get(catalogue::resolve))
        .route(
            "/config/blueprint",
            get(catalogue::blueprint).post(catalogue::replace_blueprint),
        )
        .route("/pool", get(pool::list))
        .route("/pool/sandbox/{id}", get(pool::members))
        .route("/pool/history/{id}", get(pool::history))
        .route("/pool/{id}", delete(pool::remove))
        .route("/snapshots/export", post(snapshots::export))
        .route("/snapshots/import", post(snapshots::import))
        .route("/status", get(status::get))
        .route("/doctor", get(doctor::examine))
}

/// The routes with large, slow requests.
pub(crate) fn uploads() -> Routes {
    sessions::uploads().route(
        "/sandbox/files/{id}/upload",
        post(files::upload).layer(DefaultBodyLimit::max(files::UPLOAD_MAX)),
    )
}
