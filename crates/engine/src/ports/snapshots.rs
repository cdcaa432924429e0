//! Snapshots.

use std::path::PathBuf;
use std::sync::Arc;

use shoal_core::BoxFuture;
use shoal_core::auth::{Principal, SandboxPermit};
use shoal_core::id::SnapshotId;
use shoal_core::ports::snapshots::{
    NewSnapshot, SnapshotError, SnapshotFilter, Snapshots, TakeError,
};
use shoal_core::snapshot::SnapshotRecord;
use shoal_core::template::TemplateRef;

use crate::engine::Engine;

impl Snapshots for Engine {
    fn take<'a>(
        &'a self,
        principal: &'a Principal,
        permit: &'a SandboxPermit,
        new: NewSnapshot,
    ) -> BoxFuture<'a, Result<SnapshotRecord, TakeError>> {
        Box::pin(self.shared.snapshotter.take(principal, permit, new))
    }

    fn list(&self, principal: &Principal, filter: &SnapshotFilter) -> Vec<Arc<SnapshotRecord>> {
        self.shared.snapshots.list(principal, filter)
    }

    fn add_tags<'a>(
        &'a self,
        principal: &'a Principal,
        reference: &'a TemplateRef,
        tags: &'a [String],
    ) -> BoxFuture<'a, Result<SnapshotId, SnapshotError>> {
        Box::pin(self.shared.snapshots.add_tags(principal, reference, tags))
    }

    fn delete<'a>(
        &'a self,
        principal: &'a Principal,
        reference: &'a TemplateRef,
    ) -> BoxFuture<'a, Result<(), SnapshotError>> {
        Box::pin(self.shared.snapshots.delete(principal, reference))
    }

    fn export<'a>(
        &'a self,
        principal: &'a Principal,
        reference: &'a TemplateRef,
        target: PathBuf,
    ) -> BoxFuture<'a, Result<u64, SnapshotError>> {
        Box::pin(self.shared.snapshotter.export(principal, reference, target))
    }

    fn import<'a>(
        &'a self,
        principal: &'a Principal,
        source: PathBuf,
        name: Option<TemplateRef>,
        trust: bool,
    ) -> BoxFuture<'a, Result<SnapshotRecord, SnapshotError>> {
        Box::pin(
            self.shared
                .snapshotter
                .import(principal, source, name, trust),
        )
    }
}
