//! Shoal's own API under `/api/v1`: what E2B's has no words for.
//!
//! Every answer is an envelope (`shoal_protocol::native::Envelope`) beside a real status; long
//! work on images is answered in lines of JSON. Keys, images and templates over images are made and
//! removed by admin keys only, and pools are seen by them only; so is the build of a template that the
//! installation knows how to build begun, unless `templates.build_on_demand` says otherwise. Sandboxes have
//! Agent-Sandbox's fields, and are named by their names or ids; another team's is not found, also by
//! an admin, who sees it in the list.

mod admin;
mod answer;
mod catalogue;
mod create;
mod files;
mod images;
mod keys;
mod limits;
mod observe;
#[cfg(test)]
mod operations;
mod pool;
mod progress;
mod resize;
mod sandboxes;
mod snapshots;
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

/// The routes, all of which need a key.
pub(crate) fn routes() -> Routes {
    Routes::new()
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
        .route("/sandbox", get(sandboxes::list).post(create::create))
        .route("/sandbox/metrics", post(observe::metrics))
        .route(
            "/sandbox/{id}",
            get(sandboxes::get).delete(sandboxes::remove),
        )
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
        .route("/pool", get(pool::list))
        .route("/pool/sandbox/{id}", get(pool::members))
        .route("/pool/{id}", delete(pool::remove))
        .route("/snapshots/export", post(snapshots::export))
        .route("/snapshots/import", post(snapshots::import))
        .route("/status", get(status::get))
}

/// Routes with large and slow requests.
pub(crate) fn uploads() -> Routes {
    Routes::new().route(
        "/sandbox/files/{id}/upload",
        post(files::upload).layer(DefaultBodyLimit::max(files::UPLOAD_MAX)),
    )
}
