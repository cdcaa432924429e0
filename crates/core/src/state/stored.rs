//! The form of a state in the database.

use serde::{Deserialize, Serialize};

use super::{FailReason, KillReason, State};
use crate::snapshot::Saved;

/// A state and its checkpoint, beside each other.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Stored {
    state: Name,
    #[serde(default)]
    saved: Option<Saved>,
}

/// The states of the same names, without their checkpoints.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "state", content = "reason")]
enum Name {
    Creating,
    Running,
    Pausing,
    Paused,
    Resuming,
    Parking,
    Parked,
    Waking,
    Snapshotting,
    Failed(FailReason),
    Terminating(KillReason),
    Terminated(KillReason),
}

/// A paused or parked sandbox without a checkpoint cannot be resumed.
#[derive(Debug, thiserror::Error)]
#[error("the record of a paused sandbox has no checkpoint")]
pub(super) struct WithoutCheckpoint;

impl TryFrom<Stored> for State {
    type Error = WithoutCheckpoint;

    fn try_from(stored: Stored) -> Result<Self, WithoutCheckpoint> {
        Ok(match stored.state {
            Name::Creating => Self::Creating,
            Name::Running => Self::Running,
            Name::Pausing => Self::Pausing,
            Name::Paused => Self::Paused(stored.saved.ok_or(WithoutCheckpoint)?),
            Name::Resuming => Self::Resuming(stored.saved.ok_or(WithoutCheckpoint)?),
            Name::Parking => Self::Parking,
            Name::Parked => Self::Parked(stored.saved.ok_or(WithoutCheckpoint)?),
            Name::Waking => Self::Waking(stored.saved.ok_or(WithoutCheckpoint)?),
            Name::Snapshotting => Self::Snapshotting,
            Name::Failed(reason) => Self::Failed(reason),
            Name::Terminating(reason) => Self::Terminating(reason),
            Name::Terminated(reason) => Self::Terminated(reason),
        })
    }
}

impl From<State> for Stored {
    fn from(state: State) -> Self {
        let (state, saved) = match state {
            State::Creating => (Name::Creating, None),
            State::Running => (Name::Running, None),
            State::Pausing => (Name::Pausing, None),
            State::Paused(saved) => (Name::Paused, Some(saved)),
            State::Resuming(saved) => (Name::Resuming, Some(saved)),
            State::Parking => (Name::Parking, None),
            State::Parked(saved) => (Name::Parked, Some(saved)),
            State::Waking(saved) => (Name::Waking, Some(saved)),
            State::Snapshotting => (Name::Snapshotting, None),
            State::Failed(reason) => (Name::Failed(reason), None),
            State::Terminating(reason) => (Name::Terminating(reason), None),
            State::Terminated(reason) => (Name::Terminated(reason), None),
        };
        Self { state, saved }
    }
}
