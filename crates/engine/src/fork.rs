//! Fork a sandbox: others go on from where it is.

use std::time::Duration;

use shoal_core::auth::{Principal, SandboxPermit};
use shoal_core::detail::Chain;
use shoal_core::id::SnapshotId;
pub use shoal_core::ports::sandboxes::FORKS_MAX;
use shoal_core::sandbox::{Lifecycle, NAME_KEY, SandboxSpec, SnapshotOrigin};
use shoal_core::snapshot::Contents;

use crate::create::{CreateError, Created};
use crate::engine::{Engine, SandboxError};
use crate::entropy;
use crate::sandboxes::NoRoom;

/// How many are made for each processor when nothing is said. One takes about half a second of a
/// processor, and clients wait for a minute.
const FORKS_PER_PROCESSOR: usize = 16;

impl Engine {
    /// How many forks one request makes at most: as many as this machine starts before a client stops
    /// waiting.
    #[must_use]
    pub fn forks_max(&self) -> usize {
        let processors = usize::try_from(self.capabilities().cpu.whole()).unwrap_or(1);
        let limits = &self.shared.config.limits;
        let on_machine = limits.forks.unwrap_or(processors * FORKS_PER_PROCESSOR);
        on_machine.min(FORKS_MAX).min(limits.sandboxes)
    }

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
        self.shared.sandboxes.check_timeout(timeout)?;
        if let Some(most) = self.team_limits(principal).sandboxes {
            let most = usize::try_from(most).unwrap_or(usize::MAX);
            if count > most {
                return Err(NoRoom::Team(most).into());
            }
        }
        let most = self.forks_max();
        if count > most {
            return Err(SandboxError::TooManyForks(most));
        }
        if let Some(source) = self.shared.sandboxes.record(permit.sandbox()) {
            self.shared.access.may_run_again(principal, &source.spec)?;
        }
        let (engine, principal, permit) = (self.clone(), principal.clone(), permit.clone());
        // On a task of its own: the copy is removed even if nobody waits any more.
        let forked = self.shared.work.spawn(async move {
            let id = SnapshotId::from_entropy(entropy::bytes()?);
            let (source, saved) = engine
                .shared
                .sandboxes
                .take_as(&permit, id, Some(Contents::Memory))
                .await?;
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
                    guest_token: Some(engine.shared.access.guest_token(&source)),
                }),
                runtime: Some(saved.runtime),
                ..source.spec.clone()
            };
            let members = (0..count).map(|_| {
                engine
                    .shared
                    .sandboxes
                    .launch(&principal, spec.clone(), None)
            });
            let members = futures_util::future::join_all(members).await;
            if let Err(error) = engine.shared.driver.remove_snapshot(id).await {
                tracing::warn!(snapshot.id = %id, error = %Chain(&error), "the copy of a fork stays until the next start");
            }
            Ok(members)
        });
        match forked.await {
            Ok(members) => members,
            Err(panicked) => std::panic::resume_unwind(panicked.into_panic()),
        }
    }
}
