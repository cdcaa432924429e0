//! Take a snapshot of a sandbox.

use std::time::Duration;

use shoal_core::auth::{Principal, SandboxPermit};
use shoal_core::id::{SnapshotId, TemplateId};
use shoal_core::sandbox::SandboxRecord;
use shoal_core::snapshot::{Contents, Saved, SnapshotRecord};
use shoal_core::store::StoreError;
use shoal_core::template::{DEFAULT_TAG, TemplateRef};

use crate::claimed_name::{ClaimedName, SnapshotNameError};
use crate::engine::{Engine, SandboxError};
use crate::entropy;
use crate::sandbox::{Order, SnapshotNote, SnapshotOrder};

/// How a snapshot is asked for.
#[derive(Debug, Clone)]
pub struct NewSnapshot {
    /// What it is called; it has an id alone when it is not said.
    pub name: Option<TemplateRef>,
    /// What is kept; what the sandbox's template says when nobody does.
    pub contents: Option<Contents>,
    /// Whether the sandbox goes on.
    pub keep_running: bool,
    /// After how long it goes by itself.
    pub ttl: Option<Duration>,
    /// How long the caller waits; the snapshot is finished all the same.
    pub wait: Duration,
}

impl Default for NewSnapshot {
    /// OpenKruise's defaults for snapshots.
    fn default() -> Self {
        Self {
            name: None,
            contents: None,
            keep_running: true,
            ttl: None,
            wait: Duration::from_secs(60),
        }
    }
}

/// Why no snapshot was taken.
#[derive(Debug, thiserror::Error)]
pub enum TakeError {
    /// The sandbox did not do it.
    #[error(transparent)]
    Sandbox(#[from] SandboxError),
    /// It cannot be called so.
    #[error(transparent)]
    Name(#[from] SnapshotNameError),
    /// It takes longer than the caller wanted to wait.
    #[error("the snapshot is not finished after {} s; it is listed when it is", .0.as_secs())]
    TooLong(Duration),
}

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
        let taken = tokio::spawn(async move { engine.take(&permit, new, claimed).await });
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
        let _place = self.shared.room_for_snapshot(permit.team())?;
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
            .order(permit.sandbox(), |reply| Order::Snapshot(order, reply))
            .await?;
        // The name means it now.
        drop(claimed);
        let lost = || StoreError::failed("a snapshot was not noted".to_owned());
        Ok(taken.noted.ok_or_else(lost)?)
    }

    /// Takes the data of a snapshot, of which nothing is noted. Returns what the sandbox was then.
    pub(crate) async fn take_as(
        &self,
        permit: &SandboxPermit,
        id: SnapshotId,
        contents: Option<Contents>,
    ) -> Result<(std::sync::Arc<SandboxRecord>, Saved), SandboxError> {
        let order = SnapshotOrder {
            id,
            contents,
            note: None,
            end: false,
        };
        let order = |reply| Order::Snapshot(order, reply);
        let taken = self.shared.order(permit.sandbox(), order).await?;
        Ok((taken.record, taken.saved))
    }
}
