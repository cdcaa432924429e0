//! Sessions: a machine that comes with the first command, and terminal windows in it.

mod events;
mod exec;
mod files;
mod memories;
#[cfg(test)]
mod operations;
mod origin;
mod secrets;
mod view;

use axum::Extension;
use axum::extract::{Path, State};
use axum::routing;
use http::StatusCode;
use shoal_core::auth::Principal;
use shoal_core::ports::sessions::{NewSession, Reset, SessionChange};
use shoal_protocol::native as wire;

use self::origin::Origin;
use self::view::parameters;
use super::answer::Answer;
use crate::audit;
use crate::backend::Backend;
use crate::body::JsonBody;
use crate::error::ApiError;
use crate::routes::Routes;

#[cfg(test)]
pub(super) use self::operations::operations;

pub(super) use self::exec::window_name;
use self::exec::{cancel, run};

/// The routes; all require a key.
pub(super) fn routes() -> Routes {
    let routes = events::add_routes(files::add_routes(Routes::new()));
    memories::routes(secrets::routes(routes))
        .route("/sessions", routing::get(list).post(create))
        .route(
            "/sessions/{id}",
            routing::get(get).patch(change).delete(remove),
        )
        .route("/sessions/{id}/exec", routing::post(run))
        .route("/sessions/{id}/reset", routing::post(reset))
        .route(
            "/sessions/{id}/windows/{window}/cancel",
            routing::post(cancel),
        )
        .route(
            "/sessions/{id}/windows/{window}/ws",
            routing::any(super::terminal::attach),
        )
}

/// The routes with large, slow requests.
pub(super) fn uploads() -> Routes {
    files::add_uploads(Routes::new())
}

/// `POST /sessions`.
async fn create(
    State(backend): State<Backend>,
    Extension(principal): Extension<Principal>,
    origin: Origin,
    body: JsonBody<wire::NewSession>,
) -> Result<Answer<wire::Session>, ApiError> {
    let asked = body.value;
    let new = NewSession {
        machine: parameters(&asked.machine),
        metadata: asked.metadata,
        persist: asked.persist,
        wake_on_request: asked.wake_on_request,
    };
    let view = backend.sessions.create(&principal, new).await?;
    audit::target(&view.record.id);
    Ok(Answer::created(view::session(view, &origin)))
}

/// `GET /sessions`.
async fn list(
    State(backend): State<Backend>,
    Extension(principal): Extension<Principal>,
    origin: Origin,
) -> Result<Answer<Vec<wire::Session>>, ApiError> {
    let views = backend.sessions.list(&principal).await?.into_iter();
    let shown = views.map(|view| view::session(view, &origin));
    Ok(Answer::ok(shown.collect()))
}

/// `GET /sessions/{id}`.
async fn get(
    State(backend): State<Backend>,
    Extension(principal): Extension<Principal>,
    Path(id): Path<String>,
    origin: Origin,
) -> Result<Answer<wire::Session>, ApiError> {
    let view = backend.sessions.get(&principal, &id).await?;
    Ok(Answer::ok(view::session(view, &origin)))
}

/// `PATCH /sessions/{id}`.
async fn change(
    State(backend): State<Backend>,
    Extension(principal): Extension<Principal>,
    Path(id): Path<String>,
    origin: Origin,
    body: JsonBody<wire::ChangeSession>,
) -> Result<Answer<wire::Session>, ApiError> {
    let wire::ChangeSession {
        metadata,
        persist,
        wake_on_request,
    } = body.value;
    let change = SessionChange {
        metadata,
        persist,
        wake_on_request,
    };
    let view = backend.sessions.change(&principal, &id, change).await?;
    Ok(Answer::ok(view::session(view, &origin)))
}

/// `DELETE /sessions/{id}`.
async fn remove(
    State(backend): State<Backend>,
    Extension(principal): Extension<Principal>,
    Path(id): Path<String>,
) -> Result<Answer<()>, ApiError> {
    backend.sessions.delete(&principal, &id).await?;
    Ok(Answer::ok(()))
}

/// `POST /sessions/{id}/reset`: asks first, and ends the machine when the token of the question comes back.
async fn reset(
    State(backend): State<Backend>,
    Extension(principal): Extension<Principal>,
    Path(id): Path<String>,
    body: JsonBody<wire::ResetSession>,
) -> Result<Answer<wire::SessionReset>, ApiError> {
    let token = body.value.token;
    let reset = backend.sessions.reset(&principal, &id, token.as_deref());
    Ok(match reset.await? {
        Reset::Asked(question) => Answer(
            StatusCode::ACCEPTED,
            wire::SessionReset {
                done: false,
                token: Some(question.token),
                until: Some(question.until.to_string()),
            },
        ),
        Reset::Done(_) => Answer::ok(wire::SessionReset {
            done: true,
            token: None,
            until: None,
        }),
    })
}
