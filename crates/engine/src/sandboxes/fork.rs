//! Forking a sandbox: starting others from a copy of it.

use std::sync::Arc;
use std::time::Duration;

use shoal_core::auth::{Principal, SandboxPermit};
use shoal_core::detail::Chain;
use shoal_core::id::SnapshotId;
use shoal_core::ports::create::{CreateError, Created};
use shoal_core::ports::sandboxes::{FORKS_MAX, QuotaExceeded, SandboxError};
use shoal_core::sandbox::{Lifecycle, NAME_KEY, SandboxSpec, SnapshotOrigin};
use shoal_core::snapshot::Contents;

use super::Sandboxes;
use crate::random;

/// How many forks one request may start for each processor, unless configured. A fork takes about half
/// a second of a processor, and clients wait for a minute.
const FORKS_PER_PROCESSOR: usize = 16;

impl Sandboxes {
    /// The most forks of one request: as many as this machine starts before a client times out.
    fn forks_max(&self) -> usize {
        let processors =
            usize::try_from(self.parts.drivers.capabilities().cpu.whole()).unwrap_or(1);
        let limits = &self.limits;
        let on_machine = limits.forks.unwrap_or(processors * FORKS_PER_PROCESSOR);
        on_machine.min(FORKS_MAX).min(limits.sandboxes)
    }

    /// Takes a copy of a sandbox with its memory, and starts `count` sandboxes from it, which live for
    /// `timeout`. Each succeeds or fails on its own.
    ///
    /// # Errors
    /// When the copy cannot be taken, or `count` exceeds a limit.
    pub(crate) async fn fork(
        self: &Arc<Self>,
        principal: &Principal,
        permit: &SandboxPermit,
        count: usize,
        timeout: Duration,
    ) -> Result<Vec<Result<Created, CreateError>>, SandboxError> {
        self.check_timeout(timeout)?;
        if let Some(most) = self.parts.access.limits_of(principal.team).sandboxes {
            let most = usize::try_from(most).unwrap_or(usize::MAX);
            if count > most {
                return Err(QuotaExceeded::Team(most).into());
            }
        }
        let most = self.forks_max();
        if count > most {
            return Err(SandboxError::TooManyForks(most));
        }
        if let Some(source) = self.record(permit.sandbox()) {
            self.parts.access.may_run_again(principal, &source.spec)?;
        }
        let (sandboxes, principal, permit) = (self.clone(), principal.clone(), permit.clone());
        // On a task of its own: the copy is removed even if the caller disconnects.
        let forked = self.parts.work.spawn(async move {
            sandboxes
                .start_forks(&principal, &permit, count, timeout)
                .await
        });
        match forked.await {
            Ok(forks) => forks,
            Err(panicked) => std::panic::resume_unwind(panicked.into_panic()),
        }
    }

    async fn start_forks(
        self: &Arc<Self>,
        principal: &Principal,
        permit: &SandboxPermit,
        count: usize,
        timeout: Duration,
    ) -> Result<Vec<Result<Created, CreateError>>, SandboxError> {
        let id = SnapshotId::from_entropy(random::bytes()?);
        let (source, saved) = self.take_as(permit, id, Some(Contents::Memory)).await?;
        let mut metadata = source.spec.metadata.clone();
        // The name belongs to the original.
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
                guest_token: Some(self.parts.access.guest_token(&source)),
            }),
            runtime: Some(saved.runtime),
            ..source.spec.clone()
        };
        let forks = (0..count).map(|_| self.launch(principal, spec.clone(), None));
        let forks = futures_util::future::join_all(forks).await;
        if let Err(error) = self.parts.drivers.remove_snapshot(id).await {
            tracing::warn!(snapshot.id = %id, error = %Chain(&error), "the copy of a fork stays until the next start");
        }
        Ok(forks)
    }
}
