//! Snapshots, as callers of the engine see them.

use std::sync::Arc;

use shoal_core::auth::Principal;
use shoal_core::snapshot::SnapshotRecord;
use shoal_core::template::TemplateRef;

use super::Engine;
use crate::snapshots::{SnapshotError, SnapshotFilter};

impl Engine {
    /// The snapshots of a team, the newest first.
    #[must_use]
    pub fn snapshots(
        &self,
        principal: &Principal,
        filter: &SnapshotFilter,
    ) -> Vec<Arc<SnapshotRecord>> {
        self.shared.snapshots.list(principal, filter)
    }

    /// The snapshot that `reference` means.
    ///
    /// # Errors
    /// [`SnapshotError::NotFound`] when there is none.
    pub fn resolve_snapshot(
        &self,
        principal: &Principal,
        reference: &TemplateRef,
    ) -> Result<Arc<SnapshotRecord>, SnapshotError> {
        self.shared.snapshots.find(principal, reference)
    }

    /// Deletes a snapshot: the one that `reference` means, or all its tags when it names none.
    /// Sandboxes that were started from it go on.
    ///
    /// # Errors
    /// [`SnapshotError::NotFound`] when there is none.
    pub async fn delete_snapshot(
        &self,
        principal: &Principal,
        reference: &TemplateRef,
    ) -> Result<(), SnapshotError> {
        self.shared.snapshots.delete(principal, reference).await
    }
}
