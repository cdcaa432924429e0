//! Takes a snapshot of a sandbox.

use std::sync::Arc;

use shoal_core::auth::{Principal, SandboxPermit};
use shoal_core::id::{SnapshotId, TemplateId};
use shoal_core::ports::sandboxes::SandboxError;
use shoal_core::snapshot::SnapshotRecord;
use shoal_core::store::StoreError;
use shoal_core::template::DEFAULT_TAG;

use super::{NewSnapshot, Snapshotter, TakeError};
use crate::random;
use crate::sandboxes::{Command, SnapshotNote, SnapshotRequest};
use crate::snapshots::ClaimedName;

impl Snapshotter {
    /// Takes a snapshot and waits for it. Continues when the caller stops waiting.
    ///
    /// # Errors
    /// See [`TakeError`]; the sandbox keeps running.
    pub(crate) async fn take(
        self: &Arc<Self>,
        principal: &Principal,
        permit: &SandboxPermit,
        new: NewSnapshot,
    ) -> Result<SnapshotRecord, TakeError> {
        let fresh = TemplateId::from_entropy(random::bytes().map_err(SandboxError::from)?);
        let templates = &self.parts.templates;
        let claimed = match &new.name {
            Some(name) => {
                let reserved = templates.reserve_snapshot_name(principal, name, fresh);
                reserved.await?
            }
            None => ClaimedName::without_name(fresh),
        };
        let wait = new.wait;
        let (snapshotter, permit) = (self.clone(), permit.clone());
        let taken = self
            .parts
            .work
            .spawn(async move { snapshotter.take_under(&permit, new, claimed).await });
        match tokio::time::timeout(wait, taken).await {
            Ok(Ok(taken)) => Ok(taken?),
            Ok(Err(panicked)) => std::panic::resume_unwind(panicked.into_panic()),
            Err(_) => Err(TakeError::TooLong(wait)),
        }
    }

    async fn take_under(
        &self,
        permit: &SandboxPermit,
        new: NewSnapshot,
        claimed: ClaimedName,
    ) -> Result<SnapshotRecord, SandboxError> {
        let _place = self.parts.snapshots.reserve(permit.team())?;
        let tag = new.name.as_ref().and_then(|name| name.tag.clone());
        let request = SnapshotRequest {
            id: SnapshotId::from_entropy(random::bytes()?),
            contents: new.contents,
            note: Some(SnapshotNote {
                template: claimed.template().clone(),
                name: new.name.map(|name| name.name),
                tag: tag.unwrap_or_else(|| DEFAULT_TAG.to_owned()),
                ttl: new.ttl,
            }),
            end: !new.keep_running,
        };
        let taken = self
            .parts
            .sandboxes
            .call(permit.sandbox(), |reply| Command::Snapshot(request, reply))
            .await?;
        // The record has the name now.
        drop(claimed);
        let lost = || StoreError::failed("a snapshot was not noted".to_owned());
        Ok(taken.noted.ok_or_else(lost)?)
    }
}
