//! `POST /sandbox/{id}/rotate-token`.

use axum::Extension;
use axum::extract::{Path, State};
use shoal_core::auth::Principal;
use shoal_protocol::native::SandboxTokens;

use super::answer::Answer;
use crate::backend::Backend;
use crate::error::ApiError;

/// Rotates a sandbox's tokens. The new ones are in the response, and in those that show the
/// sandbox.
pub(super) async fn rotate(
    State(backend): State<Backend>,
    Extension(principal): Extension<Principal>,
    Path(id): Path<String>,
) -> Result<Answer<SandboxTokens>, ApiError> {
    let (permit, _) = backend.sandboxes.find(&principal, &id).await?;
    let record = backend.sandboxes.rotate_tokens(&permit).await?;
    let envd = backend.access.envd_access_token(&record);
    let traffic = backend.access.traffic_access_token(&record);
    Ok(Answer::ok(SandboxTokens {
        sandbox: record.id.to_string(),
        envd_access_token: envd.map(|token| token.reveal().to_owned()),
        traffic_access_token: traffic.map(|token| token.reveal().to_owned()),
    }))
}
