//! Memories of sessions.

use axum::Extension;
use axum::extract::{Path, State};
use axum::routing;
use shoal_core::auth::Principal;
use shoal_core::session::memory::{Memory, MemoryEntry};
use shoal_protocol::native::{PutMemory, SessionMemory, SessionMemoryEntry};

use super::super::answer::Answer;
use crate::backend::Backend;
use crate::body::RequiredBody;
use crate::error::ApiError;
use crate::routes::Routes;

/// The routes.
pub(super) fn routes(routes: Routes) -> Routes {
    routes
        .route("/sessions/{id}/memories", routing::get(list))
        .route(
            "/sessions/{id}/memories/{memory}",
            routing::get(get).put(put).delete(remove),
        )
}

fn entry(entry: MemoryEntry) -> SessionMemoryEntry {
    SessionMemoryEntry {
        name: entry.name.to_string(),
        bytes: entry.bytes,
        updated_at: entry.updated_at.to_string(),
    }
}

fn shown(memory: Memory) -> SessionMemory {
    SessionMemory {
        name: memory.name.to_string(),
        text: memory.text,
        updated_at: memory.updated_at.to_string(),
    }
}

/// `GET /sessions/{id}/memories`.
async fn list(
    State(backend): State<Backend>,
    Extension(principal): Extension<Principal>,
    Path(id): Path<String>,
) -> Result<Answer<Vec<SessionMemoryEntry>>, ApiError> {
    let entries = backend.session_memories.list(&principal, &id).await?;
    Ok(Answer::ok(entries.into_iter().map(entry).collect()))
}

/// `GET /sessions/{id}/memories/{memory}`.
async fn get(
    State(backend): State<Backend>,
    Extension(principal): Extension<Principal>,
    Path((id, memory)): Path<(String, String)>,
) -> Result<Answer<SessionMemory>, ApiError> {
    let memories = &backend.session_memories;
    let memory = memories.get(&principal, &id, &memory).await?;
    Ok(Answer::ok(shown(memory)))
}

/// `PUT /sessions/{id}/memories/{memory}`.
async fn put(
    State(backend): State<Backend>,
    Extension(principal): Extension<Principal>,
    Path((id, memory)): Path<(String, String)>,
    RequiredBody(body): RequiredBody<PutMemory>,
) -> Result<Answer<SessionMemory>, ApiError> {
    let memories = &backend.session_memories;
    let memory = memories.put(&principal, &id, &memory, body.text).await?;
    Ok(Answer::ok(shown(memory)))
}

/// `DELETE /sessions/{id}/memories/{memory}`.
async fn remove(
    State(backend): State<Backend>,
    Extension(principal): Extension<Principal>,
    Path((id, memory)): Path<(String, String)>,
) -> Result<Answer<()>, ApiError> {
    let memories = &backend.session_memories;
    memories.delete(&principal, &id, &memory).await?;
    Ok(Answer::ok(()))
}
