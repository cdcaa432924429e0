//! What a start finds: sandboxes of the last server, whole or half made.

use std::collections::HashMap;

use shoal_core::driver::{DriverError, Found};
use shoal_core::id::SandboxId;
use shoal_core::sandbox::SandboxRecord;
use shoal_core::state::{FailReason, Input, KillReason, StateKind};
use shoal_core::store::StoreError;

use crate::engine::Engine;
use crate::sandbox::Sandbox;

/// Why a start could not find out what there is.
#[derive(Debug, thiserror::Error)]
pub enum RecoverError {
    /// The store cannot be read.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The node cannot be searched.
    #[error(transparent)]
    Driver(#[from] DriverError),
}

impl Engine {
    /// Takes over what the last server left: what runs goes on, what was on its way is ended or
    /// finished, what belongs to nobody is cleared. Call once, before serving. Returns how many
    /// sandboxes go on.
    ///
    /// # Errors
    /// See [`RecoverError`].
    pub async fn recover(&self) -> Result<usize, RecoverError> {
        let stored = self.shared.store.live_sandboxes().await?;
        let found = self.shared.driver.inventory().await?;
        let mut found: HashMap<SandboxId, Found> = found
            .into_iter()
            .map(|found| (found.id.clone(), found))
            .collect();
        let mut going_on = 0;
        for versioned in stored {
            let record = versioned.value;
            let input = resolve(&record, found.remove(&record.id).as_ref());
            going_on += usize::from(input.is_none() && record.state.is_live());
            Sandbox::spawn_found(self.shared.clone(), record, versioned.version, input);
        }
        for id in found.into_keys() {
            tracing::info!(sandbox.id = %id, "clearing a sandbox that nobody knows");
            self.shared.driver.destroy(&id).await?;
        }
        Ok(going_on)
    }
}

/// What was observed of a sandbox while nobody looked, as an input to the table; none when it goes
/// on as it is.
fn resolve(record: &SandboxRecord, found: Option<&Found>) -> Option<Input> {
    let alive = found.is_some_and(|found| found.alive && found.execution == record.execution);
    match record.state.kind() {
        StateKind::Running if alive => None,
        StateKind::Running | StateKind::Snapshotting => Some(Input::Failed(FailReason::Vanished)),
        // Nobody has been told of it, so nobody will ask for it.
        StateKind::Creating => Some(Input::Kill(KillReason::Orphaned)),
        StateKind::Pausing | StateKind::Resuming => Some(Input::Failed(FailReason::Vanished)),
        StateKind::Failed => Some(Input::Kill(KillReason::Failed)),
        // Its own task finishes it.
        StateKind::Paused | StateKind::Terminating | StateKind::Terminated => None,
    }
}
