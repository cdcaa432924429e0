//! Take a snapshot of a sandbox.

use std::time::Duration;

use shoal_core::auth::{Principal, SandboxPermit};
use shoal_core::id::{SnapshotId, TemplateId};
use shoal_core::sandbox::SandboxRecord;
use shoal_core::snapshot::{Contents, Saved, SnapshotRecord};
use shoal_core::store::StoreError;
use shoal_core::template::{DEFAULT_TAG, TemplateRef};

use crate::claimed_name::ClaimedName;
use crate::engine::{Engine, SandboxError};
use crate::entropy;
use crate::sandbox::{Order, SnapshotNote, SnapshotOrder};
use crate::template_names::Named;

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
    /// The defaults of seed 004.
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
    /// The name is in another tenant's namespace.
    #[error("'{0}' is in the namespace of another team")]
    Namespace(TemplateRef),
    /// A template is called like that.
    #[error("'{0}' is the name of a template: choose another")]
    Taken(TemplateRef),
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
        let claimed = self.template_of_snapshot(principal, new.name.as_ref())?;
        let wait = new.wait;
        let (engine, permit) = (self.clone(), permit.clone());
        let taken = tokio::spawn(async move { engine.take(&permit, new, claimed).await });
        match tokio::time::timeout(wait, taken).await {
            Ok(Ok(taken)) => Ok(taken?),
            Ok(Err(panicked)) => std::panic::resume_unwind(panicked.into_panic()),
            Err(_) => Err(TakeError::TooLong(wait)),
        }
    }

    /// What users will start from: what has this name already, or something new. The name is nobody
    /// else's to give until the answer is dropped.
    fn template_of_snapshot(
        &self,
        principal: &Principal,
        name: Option<&TemplateRef>,
    ) -> Result<ClaimedName, TakeError> {
        let fresh = TemplateId::from_entropy(entropy::bytes().map_err(SandboxError::from)?);
        let Some(name) = name else {
            return Ok(ClaimedName::without_name(fresh));
        };
        if name
            .namespace
            .as_ref()
            .is_some_and(|slug| slug != principal.slug.as_str())
        {
            return Err(TakeError::Namespace(name.clone()));
        }
        match self.named(principal, &name.name) {
            None | Some(Named::Snapshot) => {
                let snapshots = &self.shared.snapshots;
                Ok(snapshots.claim(principal.team, &name.name, fresh))
            }
            Some(Named::Own(_) | Named::Stock | Named::ToCome(_)) => {
                let untagged = TemplateRef {
                    tag: None,
                    ..name.clone()
                };
                Err(TakeError::Taken(untagged))
            }
        }
    }

    async fn take(
        &self,
        permit: &SandboxPermit,
        new: NewSnapshot,
        claimed: ClaimedName,
    ) -> Result<SnapshotRecord, SandboxError> {
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
        let lost = || StoreError::Failed("a snapshot was not noted".to_owned());
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
