//! Operations on a sandbox that exists.

use std::sync::Arc;
use std::time::Duration;

use crate::BoxFuture;
use crate::auth::{Principal, SandboxPermit};
use crate::driver::DriverError;
use crate::id::SandboxId;
use crate::limits::NotGranted;
use crate::network::{Egress, InvalidRule};
use crate::ports::backing::BackingObject;
use crate::ports::create::{CreateError, Created, Idempotency, SandboxRequest};
use crate::ports::inside::InsideError;
use crate::ports::list::{ListFilter, Page};
use crate::ports::{NoEntropy, NotServed};
use crate::quota::OverQuota;
use crate::resources::{InvalidResources, Mib, MilliCpu, Resources};
use crate::sandbox::{InvalidSandboxName, SandboxRecord};
use crate::snapshot::Contents;
use crate::state::Refused;
use crate::store::StoreError;
use crate::template::RuntimeName;

/// The most forks that one request makes.
pub const FORKS_MAX: usize = 100;

/// A sandbox that runs after a connect.
#[derive(Debug, Clone)]
pub struct Connected {
    /// Its record.
    pub record: Arc<SandboxRecord>,
    /// Whether it was paused before.
    pub resumed: bool,
}

/// New limits of a running sandbox; absent ones stay as they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Resize {
    /// Processor time a second.
    pub cpu: Option<MilliCpu>,
    /// Memory.
    pub memory: Option<Mib>,
}

impl Resize {
    /// The limits after the change, of a sandbox that has `now`.
    #[must_use]
    pub fn of(self, now: &Resources) -> Resources {
        Resources {
            cpu: self.cpu.unwrap_or(now.cpu),
            memory: self.memory.unwrap_or(now.memory),
            ..*now
        }
    }
}

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

/// The sandboxes of all teams.
///
/// Authorization happens here: [`Sandboxes::authorize`] and [`Sandboxes::find`] grant a permit, and
/// every operation on a sandbox takes one.
pub trait Sandboxes: Send + Sync {
    /// Creates a sandbox and waits until it answers. Continues when the caller stops waiting.
    ///
    /// # Errors
    /// See [`CreateError`]; nothing is left of the sandbox then.
    fn create<'a>(
        &'a self,
        principal: &'a Principal,
        new: SandboxRequest,
        idempotency: Option<Idempotency>,
    ) -> BoxFuture<'a, Result<Created, CreateError>>;

    /// The permit of `principal` for a live sandbox, with its record.
    ///
    /// # Errors
    /// [`SandboxError::NotFound`] when it does not exist, or belongs to another team.
    fn authorize<'a>(
        &'a self,
        principal: &'a Principal,
        id: &'a SandboxId,
    ) -> BoxFuture<'a, Result<(SandboxPermit, Arc<SandboxRecord>), SandboxError>>;

    /// The same for the sandbox with this id or name; the id comes first.
    ///
    /// # Errors
    /// [`SandboxError::NoSuchName`] when it does not exist, or belongs to another team.
    fn find<'a>(
        &'a self,
        principal: &'a Principal,
        text: &'a str,
    ) -> BoxFuture<'a, Result<(SandboxPermit, Arc<SandboxRecord>), SandboxError>>;

    /// A page of the sandboxes that `principal` may see.
    fn list<'a>(&'a self, principal: &'a Principal, filter: &'a ListFilter) -> BoxFuture<'a, Page>;

    /// Ends a sandbox, and waits until nothing is left of it.
    ///
    /// # Errors
    /// See [`SandboxError`].
    fn kill<'a>(&'a self, permit: &'a SandboxPermit) -> BoxFuture<'a, Result<(), SandboxError>>;

    /// Removes what is left of a failed sandbox with this id or name, which its users no longer see: in a cluster,
    /// its object stays. Returns whether there was one.
    ///
    /// # Errors
    /// [`SandboxError::Store`] when it could not be removed.
    fn clear_failed<'a>(
        &'a self,
        _principal: &'a Principal,
        _text: &'a str,
    ) -> BoxFuture<'a, Result<bool, SandboxError>> {
        Box::pin(std::future::ready(Ok(false)))
    }

    /// Gives a sandbox at least `timeout` from now, and resumes a paused one; without `memory` it boots
    /// from its files. Never shortens its life.
    ///
    /// # Errors
    /// See [`SandboxError`].
    fn connect<'a>(
        &'a self,
        permit: &'a SandboxPermit,
        timeout: Duration,
        memory: bool,
    ) -> BoxFuture<'a, Result<Connected, SandboxError>>;

    /// Pauses a sandbox and waits until it is saved. `contents` is what to keep, by default what its
    /// template says. With `healthy` the daemon inside has to answer first.
    ///
    /// # Errors
    /// See [`SandboxError`]; the sandbox keeps running.
    fn pause<'a>(
        &'a self,
        permit: &'a SandboxPermit,
        contents: Option<Contents>,
        healthy: bool,
    ) -> BoxFuture<'a, Result<(), SandboxError>>;

    /// Resumes a paused sandbox for `timeout`; without `memory` it boots from its files.
    ///
    /// # Errors
    /// See [`SandboxError`]; the sandbox stays paused.
    fn resume<'a>(
        &'a self,
        permit: &'a SandboxPermit,
        timeout: Duration,
        memory: bool,
    ) -> BoxFuture<'a, Result<Arc<SandboxRecord>, SandboxError>>;

    /// Starts `count` copies of a sandbox with its memory, which live for `timeout`. Each succeeds or
    /// fails on its own.
    ///
    /// # Errors
    /// When the sandbox cannot be copied, or a limit leaves no room for so many.
    fn fork<'a>(
        &'a self,
        principal: &'a Principal,
        permit: &'a SandboxPermit,
        count: usize,
        timeout: Duration,
    ) -> BoxFuture<'a, Result<Vec<Result<Created, CreateError>>, SandboxError>>;

    /// Sets the deadline to `timeout` from now, within the longest life that is allowed.
    ///
    /// # Errors
    /// See [`SandboxError`].
    fn set_timeout<'a>(
        &'a self,
        permit: &'a SandboxPermit,
        timeout: Duration,
    ) -> BoxFuture<'a, Result<Arc<SandboxRecord>, SandboxError>>;

    /// Moves the deadline to at least `duration` from now. Never shortens the life of a sandbox.
    ///
    /// # Errors
    /// See [`SandboxError`].
    fn refresh<'a>(
        &'a self,
        permit: &'a SandboxPermit,
        duration: Duration,
    ) -> BoxFuture<'a, Result<Arc<SandboxRecord>, SandboxError>>;

    /// Replaces the egress rules of a sandbox.
    ///
    /// # Errors
    /// [`InvalidRule`] for rules that cannot be merged with the template's; see [`SandboxError`].
    fn set_network<'a>(
        &'a self,
        permit: &'a SandboxPermit,
        egress: Egress,
    ) -> BoxFuture<'a, Result<Result<(), SandboxError>, InvalidRule>>;

    /// Changes the limits of a running sandbox in place.
    ///
    /// # Errors
    /// [`SandboxError::Infeasible`] when they cannot be given; the old limits stay.
    fn resize<'a>(
        &'a self,
        permit: &'a SandboxPermit,
        resize: Resize,
    ) -> BoxFuture<'a, Result<Arc<SandboxRecord>, SandboxError>>;

    /// Replaces the tokens of a sandbox. The old ones are refused from then on.
    ///
    /// # Errors
    /// See [`SandboxError`].
    fn rotate_tokens<'a>(
        &'a self,
        permit: &'a SandboxPermit,
    ) -> BoxFuture<'a, Result<Arc<SandboxRecord>, SandboxError>>;

    /// The objects of a cluster behind a sandbox. One machine has none.
    ///
    /// # Errors
    /// See [`SandboxError`].
    fn backing_objects(&self, _: &SandboxPermit) -> Result<Vec<BackingObject>, SandboxError> {
        Ok(Vec::new())
    }
}
