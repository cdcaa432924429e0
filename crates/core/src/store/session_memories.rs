//! Memories of sessions.

use crate::BoxFuture;
use crate::session::SessionId;
use crate::session::memory::{Memory, MemoryEntry, MemoryName};

use super::StoreError;

/// Keeps the memories of each session. The end of a session deletes its memories.
pub trait SessionMemoryStore: Send + Sync {
    /// The memories of a session, by name.
    ///
    /// # Errors
    /// See [`StoreError`].
    fn session_memories(
        &self,
        session: &SessionId,
    ) -> BoxFuture<'_, Result<Vec<MemoryEntry>, StoreError>>;

    /// A memory by its name.
    ///
    /// # Errors
    /// See [`StoreError`].
    fn session_memory(
        &self,
        session: &SessionId,
        name: &MemoryName,
    ) -> BoxFuture<'_, Result<Option<Memory>, StoreError>>;

    /// Writes a memory, over the one with its name; false when it would be one more than `most`.
    ///
    /// # Errors
    /// See [`StoreError`]; also when there is no such session.
    fn put_session_memory(
        &self,
        session: &SessionId,
        memory: Memory,
        most: usize,
    ) -> BoxFuture<'_, Result<bool, StoreError>>;

    /// Deletes a memory; whether there was one.
    ///
    /// # Errors
    /// See [`StoreError`].
    fn delete_session_memory(
        &self,
        session: &SessionId,
        name: &MemoryName,
    ) -> BoxFuture<'_, Result<bool, StoreError>>;
}
