//! Take a snapshot of a sandbox.

use std::time::Duration;

use shoal_core::auth::{Principal, SandboxPermit};
use shoal_core::id::{SnapshotId, TemplateId};
use shoal_core::sandbox::SandboxRecord;
use shoal_core::snapshot::{Contents, Saved, SnapshotRecord};
use shoal_core::state::KillReason;
use shoal_core::template::{DEFAULT_TAG, TemplateRef};

use crate::engine::{Engine, SandboxError};
use crate::entropy;
use crate::sandbox::Order;
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
        let template = self.template_of_snapshot(principal, new.name.as_ref())?;
        let wait = new.wait;
        let (engine, permit) = (self.clone(), permit.clone());
        let taken = tokio::spawn(async move { engine.take(&permit, new, template).await });
        match tokio::time::timeout(wait, taken).await {
            Ok(Ok(taken)) => Ok(taken?),
            Ok(Err(panicked)) => std::panic::resume_unwind(panicked.into_panic()),
            Err(_) => Err(TakeError::TooLong(wait)),
        }
    }

    /// What users will start from: what has this name already, or something new.
    fn template_of_snapshot(
        &self,
        principal: &Principal,
        name: Option<&TemplateRef>,
    ) -> Result<TemplateId, TakeError> {
        let fresh = TemplateId::from_entropy(entropy::bytes().map_err(SandboxError::from)?);
        let Some(name) = name else {
            return Ok(fresh);
        };
        if name
            .namespace
            .as_ref()
            .is_some_and(|slug| slug != principal.slug.as_str())
        {
            return Err(TakeError::Namespace(name.clone()));
        }
        match self.named(principal, &name.name) {
            None => Ok(fresh),
            Some(Named::Snapshot(same)) => Ok(same),
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
        template: TemplateId,
    ) -> Result<SnapshotRecord, SandboxError> {
        let shared = &self.shared;
        let id = SnapshotId::from_entropy(entropy::bytes()?);
        let (record, saved) = self.take_as(permit, id, new.contents).await?;
        let now = shared.clock.now();
        let snapshot = SnapshotRecord {
            id,
            template,
            tag: new
                .name
                .as_ref()
                .and_then(|name| name.tag.clone())
                .unwrap_or_else(|| DEFAULT_TAG.to_owned()),
            name: new.name.map(|name| name.name),
            team: permit.team(),
            source: permit.sandbox().clone(),
            guest_token: shared.envd_access_token(&record),
            spec: record.spec.clone(),
            saved,
            created_at: now,
            expires_at: new.ttl.map(|ttl| now + ttl),
        };
        if let Err(error) = shared.keep_snapshot(snapshot.clone()).await {
            // Nobody knows of it: a start would clear it too.
            let _ = shared.driver.remove_snapshot(id).await;
            return Err(error.into());
        }
        if !new.keep_running {
            let end = |reply| Order::Kill(KillReason::Requested, reply);
            shared.order(permit.sandbox(), end).await?;
        }
        Ok(snapshot)
    }

    /// Takes the data of a snapshot, of which nothing is noted.
    pub(crate) async fn take_as(
        &self,
        permit: &SandboxPermit,
        id: SnapshotId,
        contents: Option<Contents>,
    ) -> Result<(std::sync::Arc<SandboxRecord>, Saved), SandboxError> {
        let gone = || SandboxError::NotFound(permit.sandbox().clone());
        let record = self.shared.entries.record(permit.sandbox());
        let record = record.ok_or_else(gone)?;
        let order = |reply| Order::Snapshot(id, contents, reply);
        let saved = self.shared.order(permit.sandbox(), order).await?;
        Ok((record, saved))
    }
}
