//! The life cycle of a sandbox, as data.
//!
//! ```text
//! Creating ─▶ Running ⇄ (Pausing ─▶ Paused ─▶ Resuming)      Running ⇄ Snapshotting
//!             Running ⇄ (Parking ─▶ Parked ─▶ Waking)        Parked ─▶ Paused
//! any ─▶ Terminating ─▶ Terminated        any live ─▶ Failed ─▶ Terminating
//! ```
//!
//! Every command and observation is an [`Input`], and [`TRANSITIONS`] lists the resulting states.
//! An input that the table does not list is either harmless (a repeated observation) or refused;
//! [`State::on`] decides which. Restarts, deadlines and requests all use the table, so there is one
//! answer to what may happen next.

mod stored;

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use strum::VariantArray as _;
use strum_macros::{Display, EnumDiscriminants, VariantArray};

use self::stored::Stored;
use crate::snapshot::Saved;

/// Why a sandbox was killed on purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KillReason {
    /// Its owner requested it.
    Requested,
    /// Its deadline passed, and its lifecycle kills it.
    TimedOut,
    /// An operator requested it, for a team or for the whole machine.
    Operator,
    /// It had failed, and its resources are being removed.
    Failed,
    /// The server found it incomplete or unknown when it started.
    Orphaned,
}

/// Why a sandbox stopped by itself.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind", content = "detail")]
pub enum FailReason {
    /// The driver could not create it; the text is the driver's.
    Create(String),
    /// It reached its memory limit, and the kernel killed it.
    OutOfMemory,
    /// It exceeded its disk share, on a disk that cannot enforce it otherwise.
    OutOfDisk,
    /// Its first process exited.
    Exited,
    /// It no longer existed when the server looked for it.
    Vanished,
    /// A transient state exceeded its timer.
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

/// The state of a sandbox. Present participles are transient and have a timer.
///
/// Its form in JSON has two keys, `state` and `saved`: a record flattens it.
///
/// [`StateKind`] has the states without their data: the keys of the table. Its text is their name in
/// metrics, logs and messages.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, EnumDiscriminants)]
#[strum_discriminants(
    name(StateKind),
    doc = "The states without their data: the keys of the table.",
    derive(Hash, Display, VariantArray),
    strum(serialize_all = "snake_case")
)]
#[serde(try_from = "Stored", into = "Stored")]
pub enum State {
    /// The driver is creating it.
    Creating,
    /// It answers requests.
    Running,
    /// It is being saved, and then stops.
    Pausing,
    /// It is only this checkpoint, on disk.
    Paused(Saved),
    /// It is being started from this checkpoint.
    Resuming(Saved),
    /// It is idle, is being saved, and then stops. To its users it runs.
    Parking,
    /// It is only this checkpoint, on disk, until it is needed. To its users it runs.
    Parked(Saved),
    /// It is being started from this checkpoint, because it is needed. To its users it runs.
    Waking(Saved),
    /// It is briefly frozen while a copy is taken.
    Snapshotting,
    /// It stopped by itself; its resources still exist.
    Failed(FailReason),
    /// It is being killed and its resources removed.
    Terminating(KillReason),
    /// Only its record remains.
    Terminated(KillReason),
}

impl StateKind {
    /// All of them.
    pub const ALL: &[Self] = Self::VARIANTS;

    /// Whether users see the sandbox: it has not failed and is not ending.
    #[must_use]
    pub fn is_live(self) -> bool {
        !matches!(self, S::Failed | S::Terminating | S::Terminated)
    }
}

/// A command to a sandbox, or an observation of it.
///
/// [`InputKind`] has the inputs without their data. The text of a command completes "cannot … a
/// sandbox".
#[derive(Debug, Clone, PartialEq, Eq, EnumDiscriminants)]
#[strum_discriminants(
    name(InputKind),
    doc = "The inputs without their data: the other keys of the table.",
    derive(Hash, Display),
    strum(serialize_all = "snake_case")
)]
pub enum Input {
    /// Command: save and stop.
    Pause,
    /// Command: start from the saved state.
    Resume,
    /// Command: save and stop, because it is idle.
    Park,
    /// Command: start from the saved state, because it is needed.
    Wake,
    /// Command: copy while it runs.
    Snapshot,
    /// Command: kill.
    Kill(KillReason),
    /// Observed: it answers.
    #[strum_discriminants(strum(to_string = "use"))]
    Ready,
    /// Observed: it is saved as this checkpoint, and stopped.
    #[strum_discriminants(strum(to_string = "end the pause of"))]
    Paused(Saved),
    /// Observed: saving failed, and it keeps running.
    #[strum_discriminants(strum(to_string = "end the pause of"))]
    PauseFailed,
    /// Observed: the resume failed; the saved state is still valid.
    #[strum_discriminants(strum(to_string = "end the resume of"))]
    ResumeFailed,
    /// Observed: the copy was taken or failed; it keeps running.
    #[strum_discriminants(strum(to_string = "end the snapshot of"))]
    SnapshotEnded,
    /// Observed: it stopped.
    #[strum_discriminants(strum(to_string = "fail"))]
    Failed(FailReason),
    /// Observed: its resources are removed.
    #[strum_discriminants(strum(to_string = "clear"))]
    Cleared,
}

use InputKind as I;
use StateKind as S;

/// All transitions. A pair that is not listed changes nothing: see [`State::on`].
pub const TRANSITIONS: &[(StateKind, InputKind, StateKind)] = &[
    (S::Creating, I::Ready, S::Running),
    (S::Creating, I::Failed, S::Failed),
    (S::Creating, I::Kill, S::Terminating),
    (S::Running, I::Pause, S::Pausing),
    (S::Running, I::Park, S::Parking),
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
    (S::Parking, I::Paused, S::Parked),
    (S::Parking, I::PauseFailed, S::Running),
    (S::Parking, I::Failed, S::Failed),
    (S::Parking, I::Kill, S::Terminating),
    (S::Parked, I::Wake, S::Waking),
    // It has the same checkpoint that a pause would make.
    (S::Parked, I::Pause, S::Paused),
    (S::Parked, I::Failed, S::Failed),
    (S::Parked, I::Kill, S::Terminating),
    (S::Waking, I::Ready, S::Running),
    (S::Waking, I::ResumeFailed, S::Parked),
    (S::Waking, I::Failed, S::Failed),
    (S::Waking, I::Kill, S::Terminating),
    (S::Snapshotting, I::SnapshotEnded, S::Running),
    (S::Snapshotting, I::Failed, S::Failed),
    (S::Snapshotting, I::Kill, S::Terminating),
    (S::Failed, I::Kill, S::Terminating),
    (S::Terminating, I::Cleared, S::Terminated),
];

/// A command that the current state does not allow.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("cannot {input} a sandbox that is {state}")]
pub struct Refused {
    /// The command.
    pub input: InputKind,
    /// The state of the sandbox.
    pub state: StateKind,
}

impl State {
    /// The state without its data.
    #[must_use]
    pub fn kind(&self) -> StateKind {
        self.into()
    }

    /// The state after `input`.
    ///
    /// An observation that the table does not list is late or repeated, and keeps the state. So
    /// does a kill of a sandbox that is ending: killing a dead sandbox succeeds.
    ///
    /// # Errors
    /// A command (pause, resume, park, wake, snapshot) that the table does not list is refused.
    pub fn on(&self, input: &Input) -> Result<Self, Refused> {
        let (state, kind) = (self.kind(), input.kind());
        let row = TRANSITIONS
            .iter()
            .find(|(from, on, _)| *from == state && *on == kind);
        match row {
            Some((_, _, to)) => Ok(self.enter(*to, input)),
            None if kind.is_command() => Err(Refused { input: kind, state }),
            None => Ok(self.clone()),
        }
    }

    /// Enters the state `to` with the data of `input` or of this state.
    fn enter(&self, to: StateKind, input: &Input) -> Self {
        match to {
            S::Creating => Self::Creating,
            S::Running => Self::Running,
            S::Pausing => Self::Pausing,
            // The table leads to these states only from a state or with an input that has a checkpoint.
            S::Paused => match (self, input) {
                (_, Input::Paused(saved)) | (Self::Resuming(saved) | Self::Parked(saved), _) => {
                    Self::Paused(saved.clone())
                }
                _ => self.clone(),
            },
            S::Resuming => match self {
                Self::Paused(saved) => Self::Resuming(saved.clone()),
                _ => self.clone(),
            },
            S::Parking => Self::Parking,
            S::Parked => match (self, input) {
                (_, Input::Paused(saved)) | (Self::Waking(saved), _) => Self::Parked(saved.clone()),
                _ => self.clone(),
            },
            S::Waking => match self {
                Self::Parked(saved) => Self::Waking(saved.clone()),
                _ => self.clone(),
            },
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

    /// How long this state may last before it becomes [`FailReason::Stuck`].
    #[must_use]
    pub fn timer(&self) -> Option<Duration> {
        match self.kind() {
            S::Creating | S::Snapshotting => Some(Duration::from_secs(120)),
            S::Pausing | S::Resuming | S::Parking | S::Waking => Some(Duration::from_secs(300)),
            S::Terminating => Some(Duration::from_secs(60)),
            S::Running | S::Paused | S::Parked | S::Failed | S::Terminated => None,
        }
    }

    /// The checkpoint of a sandbox that is paused or parked, or is being resumed or woken.
    #[must_use]
    pub fn saved(&self) -> Option<&Saved> {
        match self {
            Self::Paused(saved)
            | Self::Resuming(saved)
            | Self::Parked(saved)
            | Self::Waking(saved) => Some(saved),
            _ => None,
        }
    }

    /// Whether users see the sandbox: it has not failed and is not ending.
    #[must_use]
    pub fn is_live(&self) -> bool {
        self.kind().is_live()
    }

    /// Whether the sandbox answers requests.
    #[must_use]
    pub fn is_running(&self) -> bool {
        matches!(self.kind(), S::Running | S::Snapshotting)
    }

    /// Whether the sandbox is parked, or about to be, or waking.
    #[must_use]
    pub fn is_parked(&self) -> bool {
        matches!(self.kind(), S::Parking | S::Parked | S::Waking)
    }

    /// Whether the sandbox runs as its users see it: it does, or it is parked.
    #[must_use]
    pub fn shows_running(&self) -> bool {
        self.is_running() || self.is_parked()
    }
}

impl Input {
    /// The input without its data.
    #[must_use]
    pub fn kind(&self) -> InputKind {
        self.into()
    }
}

impl InputKind {
    /// Whether this is a command, which can be refused, and not an observation.
    #[must_use]
    pub fn is_command(self) -> bool {
        matches!(self, I::Pause | I::Resume | I::Park | I::Wake | I::Snapshot)
    }
}

#[cfg(test)]
mod tests;
