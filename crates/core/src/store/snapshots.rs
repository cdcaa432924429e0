//! Records of snapshots.

use crate::BoxFuture;
use crate::id::SnapshotId;
use crate::snapshot::SnapshotRecord;

use super::StoreError;

/// Keeps the records of snapshots. The driver keeps their data.
pub trait SnapshotStore: Send + Sync {
    /// Every snapshot.
    ///
    /// # Errors
    /// See [`StoreError`].
    fn snapshots(&self) -> BoxFuture<'_, Result<Vec<SnapshotRecord>, StoreError>>;

    /// Writes a snapshot and replaces the one with the same template and tag. Returns the id of the
    /// replaced one, whose data can be removed. `changed` is written in the same transaction, as by
    /// [`Self::update_snapshots`].
    ///
    /// # Errors
    /// See [`StoreError`].
    fn put_snapshot(
        &self,
        snapshot: SnapshotRecord,
        changed: Vec<SnapshotRecord>,
    ) -> BoxFuture<'_, Result<Option<SnapshotId>, StoreError>>;

    /// Changes the records of snapshots, in one transaction. A snapshot without a record stays so.
    ///
    /// # Errors
    /// See [`StoreError`].
    fn update_snapshots(
        &self,
        changed: Vec<SnapshotRecord>,
    ) -> BoxFuture<'_, Result<(), StoreError>>;

    /// Deletes the record of a snapshot. Returns whether it existed.
    ///
    /// # Errors
    /// See [`StoreError`].
    fn delete_snapshot(&self, id: SnapshotId) -> BoxFuture<'_, Result<bool, StoreError>>;
}
