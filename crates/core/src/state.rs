//! The life of a sandbox, as data.
//!
//! ```text
//! Creating ─▶ Running ⇄ (Pausing ─▶ Paused ─▶ Resuming)      Running ⇄ Snapshotting
//! any ─▶ Terminating ─▶ Terminated        any live ─▶ Failed ─▶ Terminating
//! ```
//!
//! Whatever is asked or observed is an [`Input`]; [`TRANSITIONS`] says what follows. What the
//! table does not list is either harmless (a duplicate of what has already happened) or refused,
//! and [`State::on`] says which. Restart, expiry and a user's request all pass through here, so
//! there is one answer to what may happen next.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Why a sandbox was ended on purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KillReason {
    /// Its owner asked.
    Requested,
    /// Its deadline passed and its lifecycle says to kill.
    TimedOut,
    /// An operator asked, for a team or for the whole machine.
    Operator,
    /// It had failed, and what it left is being cleared.
    Failed,
    /// It was found half made, or unknown, when the server started.
    Orphaned,
}

/// Why a sandbox stopped without being asked to.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind", content = "detail")]
pub enum FailReason {
    /// The driver could not make it; the text is the driver's.
    Create(String),
    /// Its memory limit was reached and the kernel ended it.
    OutOfMemory,
    /// It wrote more than its share of the disk, where nothing but ending it could keep it in.
    OutOfDisk,
    /// Its first process ended.
    Exited,
    /// It was gone when the server looked for it.
    Vanished,
    /// A transient state outlived its timer.
    Stuck,
}

impl fmt::Display for FailReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Create(detail) => write!(f, "it could not be made: {detail}"),
            Self::OutOfMemory => f.write_str("it ran out of memory"),
            Self::OutOfDisk => f.write_str("it wrote more than its share of the disk"),
            Self::Exited => f.write_str("its first process ended"),
            Self::Vanished => f.write_str("it was gone when the server looked for it"),
            Self::Stuck => f.write_str("it did not reach its next state in time"),
        }
    }
}

/// Where a sandbox is in its life. Present participles are transient and have a timer.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "state", content = "reason")]
pub enum State {
    /// The driver is making it.
    Creating,
    /// It answers.
    Running,
    /// Its memory is being saved; it will stop.
    Pausing,
    /// It is on disk only.
    Paused,
    /// It is being started from what was saved.
    Resuming,
    /// It is frozen for a moment while a copy is taken.
    Snapshotting,
    /// It stopped without being asked to; what it left is still there.
    Failed(FailReason),
    /// It is being ended and cleared.
    Terminating(KillReason),
    /// Nothing of it is left but its record.
    Terminated(KillReason),
}

/// The states without what they carry: the keys of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "each is the state of the same name")]
pub enum StateKind {
    Creating,
    Running,
    Pausing,
    Paused,
    Resuming,
    Snapshotting,
    Failed,
    Terminating,
    Terminated,
}

impl StateKind {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::Creating,
        Self::Running,
        Self::Pausing,
        Self::Paused,
        Self::Resuming,
        Self::Snapshotting,
        Self::Failed,
        Self::Terminating,
        Self::Terminated,
    ];
}

/// What may be asked of a sandbox or observed of it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Input {
    /// Asked: save and stop.
    Pause,
    /// Asked: start from what was saved.
    Resume,
    /// Asked: copy while it runs.
    Snapshot,
    /// Asked: end for good.
    Kill(KillReason),
    /// Observed: it answers.
    Ready,
    /// Observed: it is saved and stopped.
    Paused,
    /// Observed: saving failed and it runs on.
    PauseFailed,
    /// Observed: it could not be started from what was saved, which is still good.
    ResumeFailed,
    /// Observed: the copy is taken, or failed; it runs on.
    SnapshotEnded,
    /// Observed: it stopped.
    Failed(FailReason),
    /// Observed: nothing of it is left.
    Cleared,
}

/// The inputs without what they carry: the other keys of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "each is the input of the same name")]
pub enum InputKind {
    Pause,
    Resume,
    Snapshot,
    Kill,
    Ready,
    Paused,
    PauseFailed,
    ResumeFailed,
    SnapshotEnded,
    Failed,
    Cleared,
}

use InputKind as I;
use StateKind as S;

/// Every change there is. A pair that is not listed changes nothing: see [`State::on`].
pub const TRANSITIONS: &[(StateKind, InputKind, StateKind)] = &[
    (S::Creating, I::Ready, S::Running),
    (S::Creating, I::Failed, S::Failed),
    (S::Creating, I::Kill, S::Terminating),
    (S::Running, I::Pause, S::Pausing),
    (S::Running, I::Snapshot, S::Snapshotting),
    (S::Running, I::Failed, S::Failed),
    (S::Running, I::Kill, S::Terminating),
    (S::Pausing, I::Paused, S::Paused),
    (S::Pausing, I::PauseFailed, S::Running),
    (S::Pausing, I::Failed, S::Failed),
    (S::Pausing, I::Kill, S::Terminating),
    (S::Paused, I::Resume, S::Resuming),
    (S::Paused, I::Failed, S::Failed),
    (S::Paused, I::Kill, S::Terminating),
    (S::Resuming, I::Ready, S::Running),
    (S::Resuming, I::ResumeFailed, S::Paused),
    (S::Resuming, I::Failed, S::Failed),
    (S::Resuming, I::Kill, S::Terminating),
    (S::Snapshotting, I::SnapshotEnded, S::Running),
    (S::Snapshotting, I::Failed, S::Failed),
    (S::Snapshotting, I::Kill, S::Terminating),
    (S::Failed, I::Kill, S::Terminating),
    (S::Terminating, I::Cleared, S::Terminated),
];

/// An order that the present state does not allow.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("cannot {input} a sandbox that is {state}")]
pub struct Refused {
    /// What was asked.
    pub input: InputKind,
    /// Where the sandbox is.
    pub state: StateKind,
}

impl State {
    /// The state without what it carries.
    #[must_use]
    pub fn kind(&self) -> StateKind {
        match self {
            Self::Creating => S::Creating,
            Self::Running => S::Running,
            Self::Pausing => S::Pausing,
            Self::Paused => S::Paused,
            Self::Resuming => S::Resuming,
            Self::Snapshotting => S::Snapshotting,
            Self::Failed(_) => S::Failed,
            Self::Terminating(_) => S::Terminating,
            Self::Terminated(_) => S::Terminated,
        }
    }

    /// The state after `input`.
    ///
    /// An observation that the table does not list is late or repeated, and leaves the state as
    /// it is. So does a kill of what is already ending: killing what is gone is a success.
    ///
    /// # Errors
    /// An order (pause, resume, snapshot) that the table does not list is refused.
    pub fn on(&self, input: &Input) -> Result<Self, Refused> {
        let (state, kind) = (self.kind(), input.kind());
        let row = TRANSITIONS
            .iter()
            .find(|(from, on, _)| *from == state && *on == kind);
        match row {
            Some((_, _, to)) => Ok(self.enter(*to, input)),
            None if kind.is_order() => Err(Refused { input: kind, state }),
            None => Ok(self.clone()),
        }
    }

    /// Puts what `input` (or this state) carries into the state `to`.
    fn enter(&self, to: StateKind, input: &Input) -> Self {
        match to {
            S::Creating => Self::Creating,
            S::Running => Self::Running,
            S::Pausing => Self::Pausing,
            S::Paused => Self::Paused,
            S::Resuming => Self::Resuming,
            S::Snapshotting => Self::Snapshotting,
            S::Failed => Self::Failed(match input {
                Input::Failed(reason) => reason.clone(),
                _ => FailReason::Vanished,
            }),
            S::Terminating | S::Terminated => {
                let reason = match (self, input) {
                    (Self::Terminating(reason), _) | (_, Input::Kill(reason)) => *reason,
                    _ => KillReason::Requested,
                };
                if to == S::Terminated {
                    Self::Terminated(reason)
                } else {
                    Self::Terminating(reason)
                }
            }
        }
    }

    /// How long this state may last before the sandbox counts as [`FailReason::Stuck`].
    #[must_use]
    pub fn timer(&self) -> Option<Duration> {
        match self.kind() {
            S::Creating | S::Snapshotting => Some(Duration::from_secs(120)),
            S::Pausing | S::Resuming => Some(Duration::from_secs(300)),
            S::Terminating => Some(Duration::from_secs(60)),
            S::Running | S::Paused | S::Failed | S::Terminated => None,
        }
    }

    /// Whether users see the sandbox: it is not failed, ending or gone.
    #[must_use]
    pub fn is_live(&self) -> bool {
        !matches!(self.kind(), S::Failed | S::Terminating | S::Terminated)
    }

    /// Whether the sandbox answers requests.
    #[must_use]
    pub fn is_running(&self) -> bool {
        matches!(self.kind(), S::Running | S::Snapshotting)
    }
}

impl Input {
    /// The input without what it carries.
    #[must_use]
    pub fn kind(&self) -> InputKind {
        match self {
            Self::Pause => I::Pause,
            Self::Resume => I::Resume,
            Self::Snapshot => I::Snapshot,
            Self::Kill(_) => I::Kill,
            Self::Ready => I::Ready,
            Self::Paused => I::Paused,
            Self::PauseFailed => I::PauseFailed,
            Self::ResumeFailed => I::ResumeFailed,
            Self::SnapshotEnded => I::SnapshotEnded,
            Self::Failed(_) => I::Failed,
            Self::Cleared => I::Cleared,
        }
    }
}

impl InputKind {
    /// Whether this is asked (and can be refused) rather than observed.
    #[must_use]
    pub fn is_order(self) -> bool {
        matches!(self, I::Pause | I::Resume | I::Snapshot)
    }
}

impl fmt::Display for InputKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            I::Pause => "pause",
            I::Resume => "resume",
            I::Snapshot => "snapshot",
            I::Kill => "kill",
            I::Ready => "use",
            I::Paused | I::PauseFailed => "end the pause of",
            I::ResumeFailed => "end the resume of",
            I::SnapshotEnded => "end the snapshot of",
            I::Failed => "fail",
            I::Cleared => "clear",
        })
    }
}

impl fmt::Display for StateKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            S::Creating => "creating",
            S::Running => "running",
            S::Pausing => "pausing",
            S::Paused => "paused",
            S::Resuming => "resuming",
            S::Snapshotting => "snapshotting",
            S::Failed => "failed",
            S::Terminating => "terminating",
            S::Terminated => "terminated",
        })
    }
}

#[cfg(test)]
mod tests;
