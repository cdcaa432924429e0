//! The streams of what happens in sessions.

use axum::Extension;
use axum::extract::{Path, State};
use axum::response::Response;
use axum::routing;
use futures_util::StreamExt;
use shoal_core::auth::Principal;
use shoal_core::ports::sessions::ExecEnd;
use shoal_core::ports::sessions::events::{SessionEvent, SessionFact, SessionSeen};
use shoal_core::session::path::SessionPath;
use shoal_protocol::native::{SessionFilesNotice, SessionNotice, SessionNoticeKind};

use super::files::{SessionFilesQuery, state_name};
use crate::backend::Backend;
use crate::error::ApiError;
use crate::native::sse::{Reader, Told};
use crate::query::Query;
use crate::routes::Routes;

/// The routes.
pub(super) fn add_routes(routes: Routes) -> Routes {
    routes
        .route("/sessions/{id}/events", routing::get(follow))
        .route("/sessions/{id}/files/watch", routing::get(watch))
}

/// `GET /sessions/{id}/events`.
async fn follow(
    State(backend): State<Backend>,
    Extension(principal): Extension<Principal>,
    Path(id): Path<String>,
    reader: Reader,
) -> Result<Response, ApiError> {
    let seen = backend.sessions.follow(&principal, &id)?;
    let told = seen.map(|seen| match seen {
        SessionSeen::Event(event) => Told::Event(notice(event)),
        SessionSeen::Lagged => Told::Lagged,
    });
    Ok(reader.follow("session", told))
}

/// `GET /sessions/{id}/files/watch`: the events of files alone.
async fn watch(
    State(backend): State<Backend>,
    Extension(principal): Extension<Principal>,
    Path(id): Path<String>,
    Query(query): Query<SessionFilesQuery>,
    reader: Reader,
) -> Result<Response, ApiError> {
    let below = query.below()?;
    let seen = backend.sessions.follow(&principal, &id)?;
    let told = seen.filter_map(move |seen| {
        let told = match seen {
            SessionSeen::Event(event) => files(event, below.as_ref()).map(Told::Event),
            SessionSeen::Lagged => Some(Told::Lagged),
        };
        std::future::ready(told)
    });
    Ok(reader.follow("files", told))
}

/// The notice about the files at or below a path.
fn files(event: SessionEvent, below: Option<&SessionPath>) -> Option<SessionFilesNotice> {
    let SessionFact::Files { changed, removed } = event.fact else {
        return None;
    };
    let is_wanted = |path: &SessionPath| below.is_none_or(|below| path.is_within(below));
    let wanted = |paths: Vec<SessionPath>| texts(paths.into_iter().filter(is_wanted));
    let (changed, removed) = (wanted(changed), wanted(removed));
    (!changed.is_empty() || !removed.is_empty()).then(|| SessionFilesNotice {
        at: event.at.to_string(),
        changed,
        removed,
    })
}

fn texts(paths: impl IntoIterator<Item = SessionPath>) -> Vec<String> {
    paths.into_iter().map(String::from).collect()
}

fn notice(event: SessionEvent) -> SessionNotice {
    SessionNotice {
        at: event.at.to_string(),
        what: kind(event.fact),
    }
}

fn kind(fact: SessionFact) -> SessionNoticeKind {
    match fact {
        SessionFact::Changed => SessionNoticeKind::Changed,
        SessionFact::Deleted => SessionNoticeKind::Deleted,
        SessionFact::MachineStarted(sandbox) => SessionNoticeKind::MachineStarted {
            sandbox_id: sandbox.to_string(),
        },
        SessionFact::MachineEnded(sandbox) => SessionNoticeKind::MachineEnded {
            sandbox_id: sandbox.to_string(),
        },
        SessionFact::Reset => SessionNoticeKind::Reset,
        SessionFact::WindowOpened(window) => SessionNoticeKind::WindowOpened {
            window: window.to_string(),
        },
        SessionFact::WindowClosed(window) => SessionNoticeKind::WindowClosed {
            window: window.to_string(),
        },
        SessionFact::CommandStarted { window, command } => SessionNoticeKind::CommandStarted {
            window: window.to_string(),
            command,
        },
        SessionFact::CommandEnded { window, end } => command_ended(window.to_string(), end),
        SessionFact::Sync {
            state,
            behind,
            connected,
        } => SessionNoticeKind::Sync {
            state: state_name(state).to_owned(),
            behind,
            connected,
        },
        SessionFact::Files { changed, removed } => SessionNoticeKind::Files {
            changed: texts(changed),
            removed: texts(removed),
        },
        SessionFact::SecretActivated(name) => SessionNoticeKind::SecretActivated {
            name: name.to_string(),
        },
        SessionFact::SecretDeactivated(name) => SessionNoticeKind::SecretDeactivated {
            name: name.to_string(),
        },
    }
}

fn command_ended(window: String, end: ExecEnd) -> SessionNoticeKind {
    let (outcome, exit_code, reason) = match end {
        ExecEnd::Exited(code) => ("exited", Some(code), None),
        ExecEnd::Cancelled => ("cancelled", None, None),
        ExecEnd::Lost(reason) => ("lost", None, Some(reason)),
    };
    SessionNoticeKind::CommandEnded {
        window,
        outcome: outcome.to_owned(),
        exit_code,
        reason,
    }
}
