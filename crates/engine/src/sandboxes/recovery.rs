//! What a start finds of a sandbox of the previous server.

use shoal_core::driver::{Found, FoundPaused};
use shoal_core::sandbox::{Purpose, SandboxRecord};
use shoal_core::snapshot::Saved;
use shoal_core::state::{FailReason, Input, KillReason, StateKind};

/// What was found of a sandbox of the last server.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Was {
    /// As its record says.
    AsNoted,
    /// Running, though it was on its way to be saved, or what it was resumed from is still there.
    Running(Option<Input>),
    /// Saved, though not all of that was noted yet, or on its way to run again: what happened to it
    /// meanwhile, in order.
    Saved(&'static [Input], Saved),
    /// In need of an end.
    Ended(Input),
}

impl Was {
    pub(crate) fn goes_on(&self, record: &SandboxRecord) -> bool {
        match self {
            Self::AsNoted => record.state.is_live(),
            Self::Running(_) | Self::Saved(..) => true,
            Self::Ended(_) => false,
        }
    }
}

/// What became of a sandbox while nobody looked.
pub(crate) fn resolve(record: &SandboxRecord, found: Option<Found>) -> Was {
    let paused = found.as_ref().and_then(|found| found.paused.clone());
    // What was saved of an earlier run is what this one went on from: nobody goes back to it.
    let of_this_run = paused.clone();
    let of_this_run = of_this_run.filter(|paused| paused.execution == record.execution);
    let alive = found.is_some_and(|found| found.alive && found.execution == record.execution);
    let vanished = || Was::Ended(Input::Failed(FailReason::Vanished));
    let saved = |inputs, paused: Option<FoundPaused>| match paused {
        Some(paused) => Was::Saved(inputs, paused.saved),
        None => vanished(),
    };
    let is_live = record.state.is_live();
    match (record.state.kind(), &paused) {
        // Its build is over.
        _ if is_live && matches!(record.spec.purpose, Purpose::Build(_)) => {
            Was::Ended(Input::Kill(KillReason::Orphaned))
        }
        (StateKind::Running, Some(_)) if alive => Was::Running(None),
        (StateKind::Running, None) if alive => Was::AsNoted,
        (StateKind::Snapshotting, _) if alive => Was::Running(Some(Input::SnapshotEnded)),
        // The machine has lost what was noted last.
        (StateKind::Running, _) => saved(&[Input::Pause, Input::Paused], of_this_run),
        (StateKind::Snapshotting, _) => saved(
            &[Input::SnapshotEnded, Input::Pause, Input::Paused],
            of_this_run,
        ),
        (StateKind::Pausing, _) if of_this_run.is_none() && alive => {
            Was::Running(Some(Input::PauseFailed))
        }
        (StateKind::Pausing, _) => saved(&[Input::Paused], of_this_run),
        (StateKind::Resuming, _) => saved(&[Input::ResumeFailed], paused),
        (StateKind::Paused, Some(_)) => Was::AsNoted,
        (StateKind::Paused, None) => vanished(),
        // Nobody has been told of it, so nobody will ask for it.
        (StateKind::Creating, _) => Was::Ended(Input::Kill(KillReason::Orphaned)),
        (StateKind::Failed, _) => Was::Ended(Input::Kill(KillReason::Failed)),
        // Its own task finishes it.
        (StateKind::Terminating | StateKind::Terminated, _) => Was::AsNoted,
    }
}
