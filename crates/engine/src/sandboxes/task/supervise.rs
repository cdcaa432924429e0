//! A panic in the task of a sandbox: the sandbox is recovered, as after a crash of the server.
//!
//! Without this the sandbox would stay listed with a closed mailbox: it would answer 404, never
//! expire, and count against the quota until the next start.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use shoal_core::driver::{DriverError, Found};
use shoal_core::id::SandboxId;
use shoal_core::sandbox::SandboxRecord;
use shoal_core::state::{Input, KillReason, StateKind};
use shoal_core::store::{StoreError, Version};
use shoal_tasks::panic_message;

use super::Sandbox;
use crate::sandboxes::Sandboxes;
use crate::sandboxes::recovery::{RecoveryAction, resolve};

/// How many panics of one sandbox lead to a recovery. The next one ends the sandbox.
const RECOVERIES: u32 = 1;

/// The most panics of one sandbox. After that the next start of the server recovers it.
const PANICS: u32 = 3;

/// The delay before a failed read of a sandbox's state is retried.
const RETRY: Duration = Duration::from_secs(5);

/// Why the state of a sandbox cannot be read.
#[derive(Debug, thiserror::Error)]
enum Unknown {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Driver(#[from] DriverError),
}

/// Runs the life of a sandbox as a task. `panics` counts those that came before.
pub(super) fn spawn(
    sandboxes: Arc<Sandboxes>,
    id: SandboxId,
    panics: u32,
    life: impl Future<Output = ()> + Send + 'static,
) {
    tokio::spawn(async move {
        let Err(panic) = AssertUnwindSafe(life).catch_unwind().await else {
            return;
        };
        let message = panic_message(&*panic);
        tracing::error!(sandbox.id = %id, message, "the task of a sandbox panicked: the sandbox is recovered");
        metrics::counter!("shoal_sandbox_task_panics_total").increment(1);
        recover(sandboxes, id, panics + 1).await;
    });
}

async fn recover(sandboxes: Arc<Sandboxes>, id: SandboxId, panics: u32) {
    let (stored, found) = loop {
        match look_up(&sandboxes, &id).await {
            Ok(known) => break known,
            Err(error) => {
                tracing::error!(sandbox.id = %id, %error, "a sandbox cannot be recovered yet");
                let again = sandboxes.parts.clock.now() + RETRY;
                sandboxes.parts.clock.sleep_until(again).await;
            }
        }
    };
    let Some((record, version)) = stored else {
        // Only the end of its task was missing.
        sandboxes.forget(&id);
        return;
    };
    // Listed until the next start, with its reason in the log.
    if panics >= PANICS {
        tracing::error!(sandbox.id = %id, "a sandbox cannot be recovered: restart the server");
        return;
    }
    let action = if panics > RECOVERIES {
        RecoveryAction::End(Input::Kill(KillReason::Failed))
    } else if record.pool_member().is_some() {
        RecoveryAction::End(Input::Kill(KillReason::Orphaned))
    } else {
        resolve(&record, found)
    };
    Sandbox::spawn_recovered(sandboxes, record, version, action, panics);
}

type Known = (Option<(SandboxRecord, Version)>, Option<Found>);

/// The record of a sandbox that has not ended, and the driver's inventory of it.
async fn look_up(sandboxes: &Sandboxes, id: &SandboxId) -> Result<Known, Unknown> {
    let stored = sandboxes.parts.store.sandbox(id).await?;
    let stored = stored
        .filter(|stored| stored.value.state.kind() != StateKind::Terminated)
        .map(|stored| (stored.value, stored.version));
    let found = match &stored {
        Some((record, _)) => sandboxes.parts.drivers.of(record).inventory().await?,
        None => Vec::new(),
    };
    let found = found.into_iter().find(|found| found.id == *id);
    Ok((stored, found))
}
