//! Take a snapshot of a sandbox.

use shoal_core::auth::{Principal, SandboxPermit};
use shoal_core::id::{SnapshotId, TemplateId};
pub use shoal_core::ports::snapshots::{NewSnapshot, TakeError};
use shoal_core::snapshot::SnapshotRecord;
use shoal_core::store::StoreError;
use shoal_core::template::DEFAULT_TAG;

use crate::engine::{Engine, SandboxError};
use crate::entropy;
use crate::sandboxes::{Order, SnapshotNote, SnapshotOrder};
use crate::snapshots::ClaimedName;

impl Engine {
    /// Takes a snapshot and waits until it is there. Goes on when the caller stops waiting.
    ///
    /// # Errors
    /// See [`TakeError`]; the sandbox runs on.
    pub async fn snapshot(
        &self,
        principal: &Principal,
        permit: &SandboxPermit,
        new: NewSnapshot,
    ) -> Result<SnapshotRecord, TakeError> {
        let fresh = TemplateId::from_entropy(entropy::bytes().map_err(SandboxError::from)?);
        let claimed = match &new.name {
            Some(name) => self.claim_name(principal, name, fresh).await?,
            None => ClaimedName::without_name(fresh),
        };
        let wait = new.wait;
        let (engine, permit) = (self.clone(), permit.clone());
        let work = &self.shared.work;
        let taken = work.spawn(async move { engine.take(&permit, new, claimed).await });
        match tokio::time::timeout(wait, taken).await {
            Ok(Ok(taken)) => Ok(taken?),
            Ok(Err(panicked)) => std::panic::resume_unwind(panicked.into_panic()),
            Err(_) => Err(TakeError::TooLong(wait)),
        }
    }

    async fn take(
        &self,
        permit: &SandboxPermit,
        new: NewSnapshot,
        claimed: ClaimedName,
    ) -> Result<SnapshotRecord, SandboxError> {
        let _place = self.shared.snapshots.reserve(permit.team())?;
        let tag = new.name.as_ref().and_then(|name| name.tag.clone());
        let order = SnapshotOrder {
            id: SnapshotId::from_entropy(entropy::bytes()?),
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
            .shared
            .sandboxes
            .order(permit.sandbox(), |reply| Order::Snapshot(order, reply))
            .await?;
        // The name means it now.
        drop(claimed);
        let lost = || StoreError::failed("a snapshot was not noted".to_owned());
        Ok(taken.noted.ok_or_else(lost)?)
    }
}
