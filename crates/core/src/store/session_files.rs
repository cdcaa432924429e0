//! The files of sessions: the state of each path, and their contents.

use bytes::Bytes;
use futures_core::stream::BoxStream;

use super::StoreError;
use crate::BoxFuture;
use crate::session::SessionId;
use crate::session::files::FileRow;
use crate::session::path::SessionPath;
use shoal_session_files::state::Digest;

/// A row to write; without one, the path is forgotten.
pub type RowChange = (SessionPath, Option<FileRow>);

/// Stores the state of the paths of each session.
pub trait SessionFileStore: Send + Sync {
    /// The rows of a session.
    ///
    /// # Errors
    /// See [`StoreError`].
    fn file_rows<'a>(
        &'a self,
        session: &'a SessionId,
    ) -> BoxFuture<'a, Result<Vec<(SessionPath, FileRow)>, StoreError>>;

    /// Changes rows of a session, all or none.
    ///
    /// # Errors
    /// See [`StoreError`].
    fn change_file_rows<'a>(
        &'a self,
        session: &'a SessionId,
        changes: Vec<RowChange>,
    ) -> BoxFuture<'a, Result<(), StoreError>>;

    /// Returns those of these contents that no session uses.
    ///
    /// # Errors
    /// See [`StoreError`].
    fn unnamed(&self, contents: Vec<Digest>) -> BoxFuture<'_, Result<Vec<Digest>, StoreError>>;
}

/// Keeps contents under their digests.
pub trait ContentStore: Send + Sync {
    /// Writes contents. Once it returns they survive a loss of power.
    ///
    /// # Errors
    /// See [`StoreError`].
    fn put(&self, digest: Digest, contents: Bytes) -> BoxFuture<'_, Result<(), StoreError>>;

    /// Reads contents; none when they are missing.
    ///
    /// # Errors
    /// See [`StoreError`]: also when they do not have their digest.
    fn get(&self, digest: Digest) -> BoxFuture<'_, Result<Option<Bytes>, StoreError>>;

    /// Reads several contents, in their order; none for those that are missing or do not have their digest.
    ///
    /// # Errors
    /// See [`StoreError`].
    fn get_all(
        &self,
        digests: Vec<Digest>,
    ) -> BoxFuture<'_, Result<Vec<Option<Bytes>>, StoreError>>;

    /// Deletes contents, if they exist.
    ///
    /// # Errors
    /// See [`StoreError`].
    fn delete(&self, digest: Digest) -> BoxFuture<'_, Result<(), StoreError>>;

    /// Everything that is kept.
    fn all(&self) -> BoxStream<'_, Result<Digest, StoreError>>;
}
