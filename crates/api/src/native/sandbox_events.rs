//! The stream of what happens to sandboxes.

use axum::Extension;
use axum::extract::State;
use axum::response::Response;
use futures_util::StreamExt;
use serde::Deserialize;
use shoal_core::auth::Principal;
use shoal_core::ports::observe::{SandboxEvent, Scope, Seen};
use shoal_protocol::native::SandboxNotice;

use super::observe::kind_name;
use super::sse::{Reader, Told};
use crate::backend::Backend;
use crate::error::ApiError;
use crate::query::Query;

#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct FollowQuery {
    /// Whether to include all teams' events, for an admin key.
    #[serde(default)]
    all: bool,
}

/// `GET /sandboxes/events`: those of the key's team, or of all teams.
pub(super) async fn follow(
    State(backend): State<Backend>,
    Extension(principal): Extension<Principal>,
    Query(query): Query<FollowQuery>,
    reader: Reader,
) -> Result<Response, ApiError> {
    let scope = if query.all { Scope::All } else { Scope::Team };
    let seen = backend.sandbox_events.subscribe(&principal, scope)?;
    let told = seen.then(move |seen| {
        let (backend, principal) = (backend.clone(), principal.clone());
        async move {
            match seen {
                Seen::Event(event) => Told::Event(notice(&backend, &principal, event).await),
                Seen::Lagged => Told::Lagged,
            }
        }
    });
    Ok(reader.follow("sandbox", told))
}

async fn notice(backend: &Backend, principal: &Principal, event: SandboxEvent) -> SandboxNotice {
    let lives = backend
        .sandboxes
        .authorize(principal, &event.sandbox)
        .await
        .ok();
    let detail = event.detail.into_iter();
    SandboxNotice {
        kind: kind_name(event.kind),
        at: event.at.to_string(),
        sandbox_id: event.sandbox.to_string(),
        name: lives.map(|(_, record)| record.name()),
        user: if event.team == principal.team {
            principal.slug.to_string()
        } else {
            event.team.to_string()
        },
        template: event.template.to_string(),
        detail: detail.map(|(name, text)| (name.to_owned(), text)).collect(),
    }
}
