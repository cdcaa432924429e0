//! Give a sandbox more or less of the machine, while it runs.

use std::sync::Arc;

use shoal_core::auth::SandboxPermit;
use shoal_core::detail::Chain;
use shoal_core::id::{SandboxId, TeamId};
pub use shoal_core::ports::sandboxes::{Infeasible, Resize};
use shoal_core::resources::{Mib, MilliCpu};
use shoal_core::sandbox::SandboxRecord;
use shoal_core::state::KillReason;
use shoal_core::store::StoreError;
use tokio::sync::oneshot;

use super::Sandboxes;
use super::command::Command;
use super::quota::{Load, QuotaExceeded, QuotaReservation};
use shoal_core::ports::sandboxes::SandboxError;

impl Sandboxes {
    /// Changes the limits in place: the processes keep running.
    ///
    /// # Errors
    /// [`SandboxError::Infeasible`] when there is not enough; the old limits stay.
    pub(crate) async fn resize(
        &self,
        permit: &SandboxPermit,
        resize: Resize,
    ) -> Result<Arc<SandboxRecord>, SandboxError> {
        let command = |reply| Command::Resize(resize, reply);
        self.call(permit.sandbox(), command).await
    }
}

impl Sandboxes {
    /// Begins to change the limits of a new sandbox, which shows as resizing until then. If that fails,
    /// the sandbox is killed, because the caller asked for other limits. Continues when the caller
    /// disconnects.
    pub(crate) async fn start_resize(
        self: Arc<Self>,
        permit: SandboxPermit,
        resize: Resize,
        kept: Option<QuotaReservation>,
    ) -> Result<oneshot::Receiver<Result<Arc<SandboxRecord>, SandboxError>>, SandboxError> {
        let work = self.parts.work.clone();
        let begun = work.spawn(self.announce_resize(permit, resize, kept));
        let begun = begun.await;
        begun.map_err(StoreError::failed)?
    }

    async fn announce_resize(
        self: Arc<Self>,
        permit: SandboxPermit,
        resize: Resize,
        kept: Option<QuotaReservation>,
    ) -> Result<oneshot::Receiver<Result<Arc<SandboxRecord>, SandboxError>>, SandboxError> {
        let announce = |reply| Command::AnnounceResize(resize, kept, reply);
        if let Err(error) = self.call(permit.sandbox(), announce).await {
            self.end_unresized(permit.sandbox(), &error).await;
            return Err(error);
        }
        let (done, outcome) = oneshot::channel();
        let work = self.parts.work.clone();
        work.spawn(async move {
            let finish = |reply| Command::FinishResize(reply);
            let resized = self.call(permit.sandbox(), finish).await;
            if let Err(error) = &resized {
                self.end_unresized(permit.sandbox(), error).await;
            }
            // The caller may have disconnected.
            let _ = done.send(resized);
        });
        Ok(outcome)
    }
}

impl Sandboxes {
    /// Ends a new sandbox that does not have the requested resources.
    async fn end_unresized(&self, id: &SandboxId, error: &SandboxError) {
        tracing::warn!(sandbox.id = %id, error = %Chain(&error), "a new sandbox cannot be resized");
        let end = |reply| Command::Kill(KillReason::Failed, reply);
        match self.call(id, end).await {
            Ok(()) | Err(SandboxError::NotFound(_)) => {}
            Err(error) => {
                tracing::error!(sandbox.id = %id, error = %Chain(&error), "a sandbox is not ended yet");
            }
        }
    }

    /// Reserves what a sandbox of `team` needs beyond `kept`, its present reservation, to have `wanted`;
    /// none when it needs no more. The registry counts `counted` of `kept` already.
    pub(crate) fn reserve_growth(
        &self,
        team: TeamId,
        counted: Load,
        kept: Load,
        wanted: Load,
    ) -> Result<Option<QuotaReservation>, Infeasible> {
        let more = wanted.beyond(kept);
        if more == Load::default() {
            return Ok(None);
        }
        let room = self.reserve_more(team, more, wanted.beyond(counted));
        room.map(Some).map_err(|full| match full {
            QuotaExceeded::Memory { left, .. } => Infeasible::Team {
                what: "memory",
                asked: wanted.memory.to_string(),
                left: Mib(left.0.saturating_add(counted.memory.0)).to_string(),
            },
            QuotaExceeded::Cpu { left, .. } => Infeasible::Team {
                what: "cpu",
                asked: wanted.cpu.to_string(),
                left: MilliCpu(left.0.saturating_add(counted.cpu.0)).to_string(),
            },
            QuotaExceeded::Team(_)
            | QuotaExceeded::Key(_)
            | QuotaExceeded::Machine { .. }
            | QuotaExceeded::Installation(_) => Infeasible::Team {
                what: "sandboxes",
                asked: "more".to_owned(),
                left: "none".to_owned(),
            },
        })
    }
}
