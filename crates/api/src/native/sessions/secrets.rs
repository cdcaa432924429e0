//! Secrets of sessions. No answer contains a value.

use axum::Extension;
use axum::extract::{Path, State};
use axum::routing;
use shoal_core::auth::Principal;
use shoal_core::ports::sessions::secrets::SecretView;
use shoal_core::session::secret::SecretValue;
use shoal_protocol::native::{SessionSecret, SetSecret};

use super::super::answer::Answer;
use crate::backend::Backend;
use crate::body::QuietBody;
use crate::error::ApiError;
use crate::routes::Routes;

/// The routes.
pub(super) fn routes(routes: Routes) -> Routes {
    routes
        .route("/sessions/{id}/secrets", routing::get(list))
        .route(
            "/sessions/{id}/secrets/{secret}",
            routing::put(set).delete(remove),
        )
        .route(
            "/sessions/{id}/secrets/{secret}/activate",
            routing::post(activate),
        )
        .route(
            "/sessions/{id}/secrets/{secret}/deactivate",
            routing::post(deactivate),
        )
}

fn shown(view: SecretView) -> SessionSecret {
    SessionSecret {
        name: view.name.to_string(),
        active: view.active,
        set_at: view.set_at.to_string(),
    }
}

/// `GET /sessions/{id}/secrets`.
async fn list(
    State(backend): State<Backend>,
    Extension(principal): Extension<Principal>,
    Path(id): Path<String>,
) -> Result<Answer<Vec<SessionSecret>>, ApiError> {
    let views = backend.session_secrets.list(&principal, &id).await?;
    Ok(Answer::ok(views.into_iter().map(shown).collect()))
}

/// `PUT /sessions/{id}/secrets/{secret}`.
async fn set(
    State(backend): State<Backend>,
    Extension(principal): Extension<Principal>,
    Path((id, secret)): Path<(String, String)>,
    QuietBody(body): QuietBody<SetSecret>,
) -> Result<Answer<SessionSecret>, ApiError> {
    let secrets = &backend.session_secrets;
    let value = SecretValue::new(body.value);
    let value = value.map_err(|error| ApiError::invalid(format_args!("`value`: {error}")))?;
    let view = secrets.set(&principal, &id, &secret, value).await?;
    Ok(Answer::ok(shown(view)))
}

/// `DELETE /sessions/{id}/secrets/{secret}`.
async fn remove(
    State(backend): State<Backend>,
    Extension(principal): Extension<Principal>,
    Path((id, secret)): Path<(String, String)>,
) -> Result<Answer<()>, ApiError> {
    let secrets = &backend.session_secrets;
    secrets.delete(&principal, &id, &secret).await?;
    Ok(Answer::ok(()))
}

/// `POST /sessions/{id}/secrets/{secret}/activate`.
async fn activate(
    State(backend): State<Backend>,
    Extension(principal): Extension<Principal>,
    Path((id, secret)): Path<(String, String)>,
) -> Result<Answer<SessionSecret>, ApiError> {
    let secrets = &backend.session_secrets;
    let view = secrets.activate(&principal, &id, &secret).await?;
    Ok(Answer::ok(shown(view)))
}

/// `POST /sessions/{id}/secrets/{secret}/deactivate`.
async fn deactivate(
    State(backend): State<Backend>,
    Extension(principal): Extension<Principal>,
    Path((id, secret)): Path<(String, String)>,
) -> Result<Answer<SessionSecret>, ApiError> {
    let secrets = &backend.session_secrets;
    let view = secrets.deactivate(&principal, &id, &secret).await?;
    Ok(Answer::ok(shown(view)))
}
