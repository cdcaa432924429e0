//! Warm snapshots of pools.

use crate::BoxFuture;
use crate::id::SnapshotId;
use crate::pool::Seed;

use super::StoreError;

/// Keeps the warm snapshot of each pool.
pub trait PoolStore: Send + Sync {
    /// The warm snapshot of every pool.
    ///
    /// # Errors
    /// See [`StoreError`].
    fn seeds(&self) -> BoxFuture<'_, Result<Vec<Seed>, StoreError>>;

    /// Writes a warm snapshot.
    ///
    /// # Errors
    /// See [`StoreError`].
    fn put_seed(&self, seed: Seed) -> BoxFuture<'_, Result<(), StoreError>>;

    /// Deletes the record of a warm snapshot.
    ///
    /// # Errors
    /// See [`StoreError`].
    fn delete_seed(&self, id: SnapshotId) -> BoxFuture<'_, Result<(), StoreError>>;
}
