//! Fork a sandbox: others go on from where it is.

use std::time::Duration;

use shoal_core::auth::{Principal, SandboxPermit};
use shoal_core::id::SnapshotId;
use shoal_core::sandbox::{Lifecycle, NAME_KEY, SandboxSpec, SnapshotOrigin};
use shoal_core::snapshot::Contents;

use crate::create::{CreateError, Created};
use crate::engine::{Engine, SandboxError};
use crate::entropy;

/// The most that one request makes.
pub const FORKS_MAX: usize = 100;

impl Engine {
    /// Takes a copy of a sandbox with its memory and starts `count` sandboxes from it, which live
    /// for `timeout`. Each succeeds or fails on its own.
    ///
    /// # Errors
    /// When the copy cannot be taken, or there is no room for so many.
    pub async fn fork(
        &self,
        principal: &Principal,
        permit: &SandboxPermit,
        count: usize,
        timeout: Duration,
    ) -> Result<Vec<Result<Created, CreateError>>, SandboxError> {
        self.shared.check_timeout(timeout)?;
        let limits = &self.shared.config.limits;
        if count > limits.sandboxes_per_team.min(limits.sandboxes) {
            return Err(crate::NoRoom::Team(limits.sandboxes_per_team).into());
        }
        let (engine, principal, permit) = (self.clone(), principal.clone(), permit.clone());
        // On a task of its own: the copy is removed even if nobody waits any more.
        let forked = tokio::spawn(async move {
            let id = SnapshotId::from_entropy(entropy::bytes()?);
            let (source, saved) = engine.take_as(&permit, id, Some(Contents::Memory)).await?;
            let mut metadata = source.spec.metadata.clone();
            // There is one of that name.
            metadata.remove(NAME_KEY);
            let spec = SandboxSpec {
                metadata,
                lifecycle: Lifecycle {
                    timeout,
                    endless: false,
                    ..source.spec.lifecycle.clone()
                },
                snapshot: Some(SnapshotOrigin {
                    id,
                    memory: saved.contents.has_memory(),
                    guest_token: Some(engine.shared.guest_token(&source)),
                }),
                runtime: Some(saved.runtime),
                claim: None,
                ..source.spec.clone()
            };
            let members = (0..count).map(|_| engine.launch(&principal, spec.clone()));
            let members = futures_util::future::join_all(members).await;
            if let Err(error) = engine.shared.driver.remove_snapshot(id).await {
                tracing::warn!(snapshot.id = %id, %error, "the copy of a fork stays until the next start");
            }
            Ok(members)
        });
        match forked.await {
            Ok(members) => members,
            Err(panicked) => std::panic::resume_unwind(panicked.into_panic()),
        }
    }
}
