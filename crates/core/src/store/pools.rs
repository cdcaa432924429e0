//! Warm snapshots of pools.

use crate::BoxFuture;
use crate::id::SnapshotId;
use crate::pool::WarmSnapshot;

use super::StoreError;

/// Keeps the warm snapshot of each pool.
pub trait PoolStore: Send + Sync {
    /// The warm snapshot of every pool.
    ///
    /// # Errors
    /// See [`StoreError`].
    fn warm_snapshots(&self) -> BoxFuture<'_, Result<Vec<WarmSnapshot>, StoreError>>;

    /// Writes a warm snapshot.
    ///
    /// # Errors
    /// See [`StoreError`].
    fn put_warm_snapshot(&self, snapshot: WarmSnapshot) -> BoxFuture<'_, Result<(), StoreError>>;

    /// Deletes the record of a warm snapshot.
    ///
    /// # Errors
    /// See [`StoreError`].
    fn delete_warm_snapshot(&self, id: SnapshotId) -> BoxFuture<'_, Result<(), StoreError>>;
}
