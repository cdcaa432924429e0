//! Records of builds, their logs, and the layers of the build cache.

use crate::BoxFuture;
use crate::build::{BuildLayer, BuildLogEntry, BuildRecord};
use crate::id::{BuildId, TeamId};

use super::StoreError;

/// Keeps builds, their logs and the build cache.
pub trait BuildStore: Send + Sync {
    /// Every build.
    ///
    /// # Errors
    /// See [`StoreError`].
    fn builds(&self) -> BoxFuture<'_, Result<Vec<BuildRecord>, StoreError>>;

    /// Writes a build, new or changed, and its log when one is given.
    ///
    /// # Errors
    /// See [`StoreError`].
    fn put_build(
        &self,
        build: BuildRecord,
        log: Option<Vec<BuildLogEntry>>,
    ) -> BoxFuture<'_, Result<(), StoreError>>;

    /// The log of a build, as last written.
    ///
    /// # Errors
    /// See [`StoreError`].
    fn build_log(&self, id: BuildId) -> BoxFuture<'_, Result<Vec<BuildLogEntry>, StoreError>>;

    /// Deletes a build and its log.
    ///
    /// # Errors
    /// See [`StoreError`].
    fn delete_build(&self, id: BuildId) -> BoxFuture<'_, Result<(), StoreError>>;

    /// Every layer of the build cache.
    ///
    /// # Errors
    /// See [`StoreError`].
    fn layers(&self) -> BoxFuture<'_, Result<Vec<BuildLayer>, StoreError>>;

    /// Writes a layer and replaces the team's layer with the same key.
    ///
    /// # Errors
    /// See [`StoreError`].
    fn put_layer(&self, layer: BuildLayer) -> BoxFuture<'_, Result<(), StoreError>>;

    /// Deletes a layer.
    ///
    /// # Errors
    /// See [`StoreError`].
    fn delete_layer(&self, team: TeamId, key: &str) -> BoxFuture<'_, Result<(), StoreError>>;
}
