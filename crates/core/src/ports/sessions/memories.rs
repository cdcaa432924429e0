//! Memories of sessions.

use super::{NoSessions, SessionError};
use crate::BoxFuture;
use crate::auth::Principal;
use crate::id::InvalidId;
use crate::session::memory::{Memory, MemoryEntry, MemoryName, TEXT_MAX};

/// Why an operation on a memory was not done.
#[derive(Debug, thiserror::Error)]
pub enum MemoryError {
    /// The session has no such memory.
    #[error("the session has no memory {0}")]
    NotFound(MemoryName),
    /// The name is refused.
    #[error(transparent)]
    Name(#[from] InvalidId),
    /// The text is too long.
    #[error("the text has more than {TEXT_MAX} bytes: keep large texts in files")]
    Long,
    /// The session has its maximum of memories.
    #[error("the session has {0} memories: delete some")]
    TooMany(usize),
}

/// The memories of sessions, which are outside of every machine. Sessions of other teams are not found.
pub trait SessionMemories: Send + Sync {
    /// The memories of a session, by name.
    ///
    /// # Errors
    /// See [`SessionError`].
    fn list<'a>(
        &'a self,
        principal: &'a Principal,
        id: &'a str,
    ) -> BoxFuture<'a, Result<Vec<MemoryEntry>, SessionError>>;

    /// One memory.
    ///
    /// # Errors
    /// See [`SessionError`].
    fn get<'a>(
        &'a self,
        principal: &'a Principal,
        id: &'a str,
        name: &'a str,
    ) -> BoxFuture<'a, Result<Memory, SessionError>>;

    /// Writes a memory.
    ///
    /// # Errors
    /// See [`SessionError`].
    fn put<'a>(
        &'a self,
        principal: &'a Principal,
        id: &'a str,
        name: &'a str,
        text: String,
    ) -> BoxFuture<'a, Result<Memory, SessionError>>;

    /// Deletes a memory.
    ///
    /// # Errors
    /// See [`SessionError`].
    fn delete<'a>(
        &'a self,
        principal: &'a Principal,
        id: &'a str,
        name: &'a str,
    ) -> BoxFuture<'a, Result<(), SessionError>>;
}

impl SessionMemories for NoSessions {
    fn list<'a>(
        &'a self,
        _: &'a Principal,
        _: &'a str,
    ) -> BoxFuture<'a, Result<Vec<MemoryEntry>, SessionError>> {
        Box::pin(async { Self::refused() })
    }

    fn get<'a>(
        &'a self,
        _: &'a Principal,
        _: &'a str,
        _: &'a str,
    ) -> BoxFuture<'a, Result<Memory, SessionError>> {
        Box::pin(async { Self::refused() })
    }

    fn put<'a>(
        &'a self,
        _: &'a Principal,
        _: &'a str,
        _: &'a str,
        _: String,
    ) -> BoxFuture<'a, Result<Memory, SessionError>> {
        Box::pin(async { Self::refused() })
    }

    fn delete<'a>(
        &'a self,
        _: &'a Principal,
        _: &'a str,
        _: &'a str,
    ) -> BoxFuture<'a, Result<(), SessionError>> {
        Box::pin(async { Self::refused() })
    }
}
