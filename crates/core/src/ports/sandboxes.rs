//! Operations on a sandbox that exists.

mod error;

use std::sync::Arc;
use std::time::Duration;

use crate::BoxFuture;
use crate::auth::{Principal, SandboxPermit};
use crate::id::SandboxId;
use crate::network::{Egress, InvalidRule};
use crate::ports::backing::BackingObject;
use crate::ports::create::{CreateError, Created, Idempotency, SandboxRequest};
use crate::ports::list::{ListFilter, Page};
use crate::resources::{Mib, MilliCpu, Resources};
use crate::sandbox::SandboxRecord;
use crate::snapshot::Contents;

pub use self::error::{
    Infeasible, NameError, QuotaExceeded, RuntimeForbidden, SandboxError, TimeoutTooLong,
};

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

    /// Removes the remains of a failed sandbox with this id or name, which its users no longer see: in a cluster,
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
