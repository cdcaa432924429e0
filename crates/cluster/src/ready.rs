//! Waiting for a sandbox to be ready.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp as Time;
use shoal_crds::kruise::names::{condition, reason};
use shoal_crds::kruise::{Sandbox, SandboxPhase, SandboxState};

use crate::identity::Key;
use crate::watched::Watched;

/// Why a sandbox is not ready.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NotReady {
    /// It never will be.
    #[error("{0}")]
    Failed(String),
    /// It was deleted meanwhile.
    #[error("it was deleted")]
    Gone,
    /// The command of its template failed.
    #[error("startupCmd of its template failed: {0}")]
    Startup(String),
    /// The timeout expired.
    #[error("not within {} s: {state}", .time.as_secs())]
    TooSlow {
        /// The time.
        time: Duration,
        /// The reason for the wait, from its status.
        state: String,
    },
}

/// The readiness of a sandbox at one moment.
enum Look {
    Ready,
    Waiting,
    Never(NotReady),
}

/// Waits until a sandbox is ready, at this generation or a later one.
///
/// # Errors
/// See [`NotReady`].
pub(crate) async fn wait(
    sandboxes: &Watched<Sandbox>,
    key: &Key,
    generation: i64,
    time: Duration,
) -> Result<Arc<Sandbox>, NotReady> {
    let found = sandboxes.wait_for(key, time, || {
        let Some(sandbox) = sandboxes.get(key) else {
            return Some(Err(NotReady::Gone));
        };
        match look(&sandbox, generation, Time::now()) {
            Look::Ready => Some(Ok(sandbox)),
            Look::Waiting => None,
            Look::Never(never) => Some(Err(never)),
        }
    });
    found.await.unwrap_or_else(|| {
        let sandbox = sandboxes.get(key);
        Err(NotReady::TooSlow {
            time,
            state: sandbox.map_or_else(String::new, |sandbox| describe(&sandbox)),
        })
    })
}

/// Waits until the command of a sandbox's template has run in its container.
///
/// # Errors
/// When it fails, or when the sandbox is deleted or the timeout expires before its end.
pub(crate) async fn started(
    sandboxes: &Watched<Sandbox>,
    key: &Key,
    time: Duration,
) -> Result<Arc<Sandbox>, NotReady> {
    let ended = sandboxes.wait_for(key, time, || {
        let Some(sandbox) = sandboxes.get(key) else {
            return Some(Err(NotReady::Gone));
        };
        if sandbox.metadata.deletion_timestamp.is_some() {
            return Some(Err(NotReady::Gone));
        }
        let failed = sandbox.started()?.err().map(str::to_owned);
        Some(match failed {
            Some(failed) => Err(NotReady::Startup(failed)),
            None => Ok(sandbox),
        })
    });
    let state = "startupCmd has not ended".to_owned();
    let slow = || Err(NotReady::TooSlow { time, state });
    ended.await.unwrap_or_else(slow)
}

fn look(sandbox: &Sandbox, generation: i64, now: Time) -> Look {
    let status = sandbox.status.clone().unwrap_or_default();
    if sandbox.metadata.deletion_timestamp.is_some() {
        return Look::Never(NotReady::Gone);
    }
    let ready = sandbox.condition(condition::READY);
    if let Some(ready) = ready.filter(|ready| ready.reason == reason::START_CONTAINER_FAILED) {
        return Look::Never(NotReady::Failed(ready.message.clone()));
    }
    match status.phase {
        Some(SandboxPhase::Failed | SandboxPhase::Succeeded) => {
            return Look::Never(NotReady::Failed(describe(sandbox)));
        }
        _ if status.observed_generation < generation => return Look::Waiting,
        _ => {}
    }
    let resizes = sandbox.condition(condition::INPLACE_UPDATE);
    let updating = resizes.is_some_and(|update| update.reason == reason::INPLACE_UPDATING);
    let runs = SandboxState::of(sandbox, now).0 == SandboxState::Running;
    if runs && !updating && sandbox.address().is_some() {
        Look::Ready
    } else {
        Look::Waiting
    }
}

/// Why a sandbox is not ready.
pub(crate) fn describe(sandbox: &Sandbox) -> String {
    let status = sandbox.status.clone().unwrap_or_default();
    let phase = status.phase.unwrap_or_default().as_str();
    let ready = sandbox.condition(condition::READY);
    let said = ready.map_or("", |ready| ready.message.as_str());
    let said = if said.is_empty() {
        status.message.as_str()
    } else {
        said
    };
    if said.is_empty() {
        format!("it is {phase}")
    } else {
        format!("it is {phase}: {said}")
    }
}
