//! Records of sandboxes.

use crate::BoxFuture;
use crate::clock::Timestamp;
use crate::id::SandboxId;
use crate::sandbox::SandboxRecord;

use super::{StoreError, Version, Versioned};

/// Keeps the records of sandboxes.
pub trait SandboxStore: Send + Sync {
    /// Writes the next value of a sandbox. `expected` is the version that was read; `None` creates
    /// the record.
    ///
    /// # Errors
    /// [`StoreError::Conflict`] when the stored version is another.
    fn commit(
        &self,
        next: SandboxRecord,
        expected: Option<Version>,
    ) -> BoxFuture<'_, Result<Version, StoreError>>;

    /// Makes every earlier commit survive a crash of the machine. Takes as long as the disk needs,
    /// and blocks no other call.
    ///
    /// # Errors
    /// When the disk fails.
    fn sync(&self) -> BoxFuture<'_, Result<(), StoreError>>;

    /// Every sandbox that is not terminated.
    ///
    /// # Errors
    /// See [`StoreError`].
    fn live_sandboxes(&self) -> BoxFuture<'_, Result<Vec<Versioned<SandboxRecord>>, StoreError>>;

    /// One sandbox, terminated or not, while its record is kept.
    ///
    /// # Errors
    /// See [`StoreError`].
    fn sandbox(
        &self,
        id: &SandboxId,
    ) -> BoxFuture<'_, Result<Option<Versioned<SandboxRecord>>, StoreError>>;

    /// Deletes the records of sandboxes that ended before `moment`. Returns their ids.
    ///
    /// # Errors
    /// See [`StoreError`].
    fn forget_terminated(
        &self,
        moment: Timestamp,
    ) -> BoxFuture<'_, Result<Vec<SandboxId>, StoreError>>;
}
