//! Snapshots, as callers of the engine see them.

use std::path::PathBuf;
use std::sync::Arc;

use shoal_core::auth::{Principal, SandboxPermit};
use shoal_core::snapshot::SnapshotRecord;
use shoal_core::template::TemplateRef;

use super::Engine;
use crate::snapshots::{SnapshotError, SnapshotFilter};
use crate::snapshotter::{NewSnapshot, TakeError};

impl Engine {
    /// Takes a snapshot and waits for it. Continues when the caller stops waiting.
    ///
    /// # Errors
    /// See [`TakeError`]; the sandbox keeps running.
    pub async fn snapshot(
        &self,
        principal: &Principal,
        permit: &SandboxPermit,
        new: NewSnapshot,
    ) -> Result<SnapshotRecord, TakeError> {
        self.shared.snapshotter.take(principal, permit, new).await
    }

    /// Exports a snapshot to a new file on the server's machine. Returns the size of the file.
    ///
    /// # Errors
    /// See [`SnapshotError`]; no file is left then.
    pub async fn export_snapshot(
        &self,
        principal: &Principal,
        reference: &TemplateRef,
        target: PathBuf,
    ) -> Result<u64, SnapshotError> {
        let snapshotter = &self.shared.snapshotter;
        snapshotter.export(principal, reference, target).await
    }

    /// Imports an exported snapshot for the caller's team, under `name` or its original name. With
    /// `trust` it may come from another installation, whose memory and programs then run here.
    ///
    /// # Errors
    /// See [`SnapshotError`]; nothing is left of the snapshot then.
    pub async fn import_snapshot(
        &self,
        principal: &Principal,
        source: PathBuf,
        name: Option<TemplateRef>,
        trust: bool,
    ) -> Result<SnapshotRecord, SnapshotError> {
        let snapshotter = &self.shared.snapshotter;
        snapshotter.import(principal, source, name, trust).await
    }

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
    /// Sandboxes that were started from it keep running.
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
