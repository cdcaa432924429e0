//! Why an operation on a sandbox was not done.

use std::time::Duration;

use crate::driver::DriverError;
use crate::id::SandboxId;
use crate::limits::NotGranted;
use crate::ports::inside::InsideError;
use crate::ports::{NoEntropy, NotServed};
use crate::quota::OverQuota;
use crate::resources::{InvalidResources, Mib, MilliCpu};
use crate::sandbox::InvalidSandboxName;
use crate::state::Refused;
use crate::store::StoreError;
use crate::template::RuntimeName;

/// Why new limits cannot be given.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Infeasible {
    /// More than exists, or more than the operator or the template allows.
    #[error(transparent)]
    Bounds(NotGranted),
    /// More than the team has left.
    #[error("{asked} of {what} are more than your team has left ({left})")]
    Team {
        /// The resource.
        what: &'static str,
        /// How much was asked for.
        asked: String,
        /// How much is left.
        left: String,
    },
}

/// A timeout above the longest life that the operator allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the timeout is longer than a sandbox may live: at most {} s", .most.as_secs())]
pub struct TimeoutTooLong {
    /// The longest timeout that is allowed.
    pub most: Duration,
}

/// A limit on sandboxes is reached. Paused sandboxes do not count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum QuotaExceeded {
    /// The number of sandboxes of the team.
    #[error("you have reached the limit of {0} sandboxes at once")]
    Team(usize),
    /// The processor time of the team.
    #[error("the sandbox needs {asked} of cpu, and your team has {left} left")]
    Cpu {
        /// How much the sandbox needs.
        asked: MilliCpu,
        /// How much is left.
        left: MilliCpu,
    },
    /// The memory of the team.
    #[error(
        "the sandbox needs {asked} of memory, and your team has {left} left of {limit} \
         (`limits.memory_per_team`)"
    )]
    Memory {
        /// How much the sandbox needs.
        asked: Mib,
        /// How much is left.
        left: Mib,
        /// How much the team may have.
        limit: Mib,
    },
    /// The memory that the machine has left.
    #[error(
        "the server is short of memory: {available} are left, and {free} stay free (`limits.free_memory`). Try again \
         later, or pause or kill sandboxes that you do not need"
    )]
    Machine {
        /// How much is left.
        available: Mib,
        /// How much stays free.
        free: Mib,
    },
    /// The quota of the API key.
    #[error(transparent)]
    Key(OverQuota),
    /// The number of sandboxes of the installation.
    #[error("the server has reached its limit of {0} sandboxes at once")]
    Installation(usize),
}

/// Why a sandbox cannot have a name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// The text is not a valid name.
    #[error(transparent)]
    Invalid(#[from] InvalidSandboxName),
    /// Another sandbox of the team has it.
    #[error("there is a sandbox {0:?} already: choose another name, or remove it first")]
    Taken(String),
}

/// The caller's key may not choose this OCI runtime.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "runtime {asked} is not allowed for this key: use {allowed}, or ask the operator for \
     `runtime.allowed`"
)]
pub struct RuntimeForbidden {
    /// The runtime that was chosen.
    pub asked: RuntimeName,
    /// The runtimes that the key may choose, for people.
    pub allowed: String,
}

/// Why an operation on a sandbox was not done.
#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    /// No such sandbox exists, or it belongs to another team.
    #[error("sandbox {0} was not found")]
    NotFound(SandboxId),
    /// No sandbox has this name, or it belongs to another team.
    #[error("sandbox {0:?} was not found")]
    NoSuchName(String),
    /// It is paused, and the operation needs it to run.
    #[error("sandbox {0} is paused: resume it first")]
    Paused(SandboxId),
    /// Too many operations on it are queued.
    #[error("sandbox {0} is busy: try again")]
    Busy(SandboxId),
    /// The operation was interrupted by a fault; the sandbox is being recovered.
    #[error("the operation on sandbox {0} was interrupted: look at its state, then try again")]
    Interrupted(SandboxId),
    /// It is public and was created without tokens.
    #[error("sandbox {0} is public and not secured: it has no tokens")]
    NoTokens(SandboxId),
    /// Its state does not allow the operation.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// The timeout is too long.
    #[error(transparent)]
    TimeoutTooLong(#[from] TimeoutTooLong),
    /// A limit on sandboxes is reached.
    #[error(transparent)]
    Full(#[from] QuotaExceeded),
    /// The daemon inside does not answer, and the request asks for a healthy one.
    #[error("the sandbox is not healthy: {0}")]
    Unresponsive(InsideError),
    /// Only the files are kept, and not all written data reached them.
    #[error(
        "what the sandbox has written did not reach its disk, so nothing was saved and it runs on \
         ({0}): try again, keep its memory too, or end it"
    )]
    NotSynced(#[source] InsideError),
    /// It could not be saved. It runs on.
    #[error("the sandbox was not saved, and runs on: {0}")]
    NotSaved(String),
    /// It cannot resume and stays paused: the daemon inside does not answer, or refuses.
    #[error("the sandbox cannot resume: {0}")]
    NotResumed(#[source] InsideError),
    /// It is parked and cannot be woken. It stays parked, and the next use of it tries again.
    #[error("the sandbox cannot be woken: {0}")]
    NotWoken(#[source] Box<SandboxError>),
    /// The daemon inside does not answer, or refuses what the operation needs.
    #[error(transparent)]
    Guest(#[from] InsideError),
    /// A limit is invalid.
    #[error(transparent)]
    Resources(#[from] InvalidResources),
    /// The new limits cannot be given.
    #[error(transparent)]
    Infeasible(#[from] Infeasible),
    /// The caller may not choose this runtime.
    #[error(transparent)]
    Runtime(#[from] RuntimeForbidden),
    /// One request asks for more forks than can be started while a client waits.
    #[error("at most {0} forks at once here (`limits.forks`): ask for fewer, and again for more")]
    TooManyForks(usize),
    /// The team has reached its limit of snapshots.
    #[error(
        "your team keeps {used} snapshots, and may keep {limit} (`limits.snapshots_per_team`): remove \
         some"
    )]
    Snapshots {
        /// Its snapshots, with those being taken.
        used: usize,
        /// How many it may keep.
        limit: u32,
    },
    /// The system has no randomness.
    #[error(transparent)]
    Entropy(#[from] NoEntropy),
    /// The driver failed.
    #[error(transparent)]
    Driver(#[from] DriverError),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The backend does not serve this.
    #[error(transparent)]
    NotServed(#[from] NotServed),
}

impl From<NotGranted> for SandboxError {
    fn from(refused: NotGranted) -> Self {
        match refused {
            NotGranted::Invalid(invalid) => Self::Resources(invalid),
            bounds @ NotGranted::TooMuch { .. } => Self::Infeasible(Infeasible::Bounds(bounds)),
        }
    }
}
