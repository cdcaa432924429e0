//! Decides what a new server does with each sandbox of the previous one.

use shoal_core::driver::{Found, FoundPaused};
use shoal_core::sandbox::{Purpose, SandboxRecord};
use shoal_core::state::{FailReason, Input, KillReason, StateKind};

/// The decision of recovery about a sandbox.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum RecoveryAction {
    /// Keep it as recorded.
    Keep,
    /// Keep it running. The input completes an operation that was cut off, if there was one. A
    /// leftover checkpoint is deleted.
    KeepRunning(Option<Input>),
    /// Keep it paused or parked. The inputs complete the interrupted steps, in order.
    KeepPaused(Vec<Input>),
    /// End it, after this input.
    End(Input),
}

impl RecoveryAction {
    /// Whether the sandbox lives on.
    pub(crate) fn keeps(&self, record: &SandboxRecord) -> bool {
        match self {
            Self::Keep => record.state.is_live(),
            Self::KeepRunning(_) | Self::KeepPaused(_) => true,
            Self::End(_) => false,
        }
    }
}

/// The action for a record, given what its driver found.
pub(crate) fn resolve(record: &SandboxRecord, found: Option<Found>) -> RecoveryAction {
    let paused = found.as_ref().and_then(|found| found.paused.clone());
    // A checkpoint of an earlier run is where this run started from. The sandbox never returns to it.
    let of_this_run = paused.clone();
    let of_this_run = of_this_run.filter(|paused| paused.execution == record.execution);
    let alive = found.is_some_and(|found| found.alive && found.execution == record.execution);
    let vanished = || RecoveryAction::End(Input::Failed(FailReason::Vanished));
    let saved = |before: &[Input], paused: Option<FoundPaused>| match paused {
        Some(paused) => {
            let paused = Input::Paused(paused.saved);
            RecoveryAction::KeepPaused(before.iter().cloned().chain([paused]).collect())
        }
        None => vanished(),
    };
    let is_live = record.state.is_live();
    match (record.state.kind(), &paused) {
        // Its build has ended with the previous server.
        _ if is_live && matches!(record.spec.purpose, Purpose::Build(_)) => {
            RecoveryAction::End(Input::Kill(KillReason::Orphaned))
        }
        (StateKind::Running, Some(_)) if alive => RecoveryAction::KeepRunning(None),
        (StateKind::Running, None) if alive => RecoveryAction::Keep,
        (StateKind::Snapshotting, _) if alive => {
            RecoveryAction::KeepRunning(Some(Input::SnapshotEnded))
        }
        // The machine crashed and lost the last commits: the checkpoint is newer than the record.
        (StateKind::Running, _) => saved(&[Input::Pause], of_this_run),
        (StateKind::Snapshotting, _) => saved(&[Input::SnapshotEnded, Input::Pause], of_this_run),
        (StateKind::Pausing, _) if of_this_run.is_none() && alive => {
            RecoveryAction::KeepRunning(Some(Input::PauseFailed))
        }
        (StateKind::Pausing, _) => saved(&[], of_this_run),
        (StateKind::Parking, _) if of_this_run.is_none() && alive => {
            RecoveryAction::KeepRunning(Some(Input::PauseFailed))
        }
        (StateKind::Parking, _) => saved(&[], of_this_run),
        (StateKind::Resuming | StateKind::Waking, Some(_)) => {
            RecoveryAction::KeepPaused(vec![Input::ResumeFailed])
        }
        (StateKind::Resuming | StateKind::Waking, None) => vanished(),
        (StateKind::Paused | StateKind::Parked, Some(_)) => RecoveryAction::Keep,
        (StateKind::Paused | StateKind::Parked, None) => vanished(),
        // No client knows its id yet.
        (StateKind::Creating, _) => RecoveryAction::End(Input::Kill(KillReason::Orphaned)),
        (StateKind::Failed, _) => RecoveryAction::End(Input::Kill(KillReason::Failed)),
        // Its own task finishes it.
        (StateKind::Terminating | StateKind::Terminated, _) => RecoveryAction::Keep,
    }
}
