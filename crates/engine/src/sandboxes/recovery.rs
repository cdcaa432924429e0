//! Recovery of one sandbox of the previous server.

use shoal_core::driver::{Found, FoundPaused};
use shoal_core::sandbox::{Purpose, SandboxRecord};
use shoal_core::snapshot::Saved;
use shoal_core::state::{FailReason, Input, KillReason, StateKind};

/// How recovery treats a sandbox.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum RecoveryAction {
    /// Keep it as its record says.
    AsNoted,
    /// Keep it running: its pause or snapshot did not finish, or its old checkpoint still exists.
    Running(Option<Input>),
    /// Make it paused from its checkpoint. The inputs lead its recorded state there, in order.
    Saved(&'static [Input], Saved),
    /// End it.
    Ended(Input),
}

impl RecoveryAction {
    pub(crate) fn goes_on(&self, record: &SandboxRecord) -> bool {
        match self {
            Self::AsNoted => record.state.is_live(),
            Self::Running(_) | Self::Saved(..) => true,
            Self::Ended(_) => false,
        }
    }
}

/// Compares the record of a sandbox with what the driver found.
pub(crate) fn resolve(record: &SandboxRecord, found: Option<Found>) -> RecoveryAction {
    let paused = found.as_ref().and_then(|found| found.paused.clone());
    // A checkpoint of an earlier run is the one that this run resumed from: it is out of date.
    let of_this_run = paused.clone();
    let of_this_run = of_this_run.filter(|paused| paused.execution == record.execution);
    let alive = found.is_some_and(|found| found.alive && found.execution == record.execution);
    let vanished = || RecoveryAction::Ended(Input::Failed(FailReason::Vanished));
    let saved = |inputs, paused: Option<FoundPaused>| match paused {
        Some(paused) => RecoveryAction::Saved(inputs, paused.saved),
        None => vanished(),
    };
    let is_live = record.state.is_live();
    match (record.state.kind(), &paused) {
        // Recovery ends its build.
        _ if is_live && matches!(record.spec.purpose, Purpose::Build(_)) => {
            RecoveryAction::Ended(Input::Kill(KillReason::Orphaned))
        }
        (StateKind::Running, Some(_)) if alive => RecoveryAction::Running(None),
        (StateKind::Running, None) if alive => RecoveryAction::AsNoted,
        (StateKind::Snapshotting, _) if alive => {
            RecoveryAction::Running(Some(Input::SnapshotEnded))
        }
        // A power failure has lost the last commits.
        (StateKind::Running, _) => saved(&[Input::Pause, Input::Paused], of_this_run),
        (StateKind::Snapshotting, _) => saved(
            &[Input::SnapshotEnded, Input::Pause, Input::Paused],
            of_this_run,
        ),
        (StateKind::Pausing, _) if of_this_run.is_none() && alive => {
            RecoveryAction::Running(Some(Input::PauseFailed))
        }
        (StateKind::Pausing, _) => saved(&[Input::Paused], of_this_run),
        (StateKind::Resuming, _) => saved(&[Input::ResumeFailed], paused),
        (StateKind::Paused, Some(_)) => RecoveryAction::AsNoted,
        (StateKind::Paused, None) => vanished(),
        // No client knows it yet.
        (StateKind::Creating, _) => RecoveryAction::Ended(Input::Kill(KillReason::Orphaned)),
        (StateKind::Failed, _) => RecoveryAction::Ended(Input::Kill(KillReason::Failed)),
        // Its own task finishes the end.
        (StateKind::Terminating | StateKind::Terminated, _) => RecoveryAction::AsNoted,
    }
}
