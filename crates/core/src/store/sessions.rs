//! Records of sessions.

use crate::BoxFuture;
use crate::session::{SessionId, SessionRecord};

use super::StoreError;

/// Stores the record of each session, without its files.
pub trait SessionStore: Send + Sync {
    /// Every session.
    ///
    /// # Errors
    /// See [`StoreError`].
    fn sessions(&self) -> BoxFuture<'_, Result<Vec<SessionRecord>, StoreError>>;

    /// Writes a session, over the one with its id.
    ///
    /// # Errors
    /// See [`StoreError`].
    fn put_session(&self, session: &SessionRecord) -> BoxFuture<'_, Result<(), StoreError>>;

    /// Deletes a session and everything that is kept of it.
    ///
    /// # Errors
    /// See [`StoreError`].
    fn delete_session(&self, id: &SessionId) -> BoxFuture<'_, Result<(), StoreError>>;
}
