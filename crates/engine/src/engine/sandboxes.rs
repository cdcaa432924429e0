//! Sandboxes, as callers of the engine see them.

use std::sync::Arc;
use std::time::Duration;

use shoal_core::auth::{Principal, SandboxPermit};
use shoal_core::id::SandboxId;
use shoal_core::network::{Egress, InvalidRule};
use shoal_core::ports::inside::SandboxClient;
use shoal_core::sandbox::SandboxRecord;
use shoal_core::snapshot::Contents;

use super::{Engine, SandboxError};
use crate::access::{TeamError, TeamView};
use crate::create::{CreateError, Created, Idempotency, SandboxRequest};
use crate::sandboxes::{Connected, ListFilter, Page, Resize, Use};

impl Engine {
    /// Creates a sandbox and waits until it answers. Continues when the caller stops waiting: the
    /// sandbox lives until its deadline.
    ///
    /// # Errors
    /// See [`CreateError`]; no part of the sandbox remains.
    pub async fn create(
        &self,
        principal: &Principal,
        new: SandboxRequest,
        idempotency: Option<Idempotency>,
    ) -> Result<Created, CreateError> {
        self.shared
            .creator
            .create(principal, new, idempotency)
            .await
    }

    /// Takes a copy of a sandbox with its memory, and starts `count` sandboxes from it, which live for
    /// `timeout`. Each succeeds or fails on its own.
    ///
    /// # Errors
    /// When the copy cannot be taken, or `count` exceeds a limit.
    pub async fn fork(
        &self,
        principal: &Principal,
        permit: &SandboxPermit,
        count: usize,
        timeout: Duration,
    ) -> Result<Vec<Result<Created, CreateError>>, SandboxError> {
        let sandboxes = &self.shared.sandboxes;
        sandboxes.fork(principal, permit, count, timeout).await
    }

    /// The right of `principal` to a live sandbox, with its record.
    ///
    /// # Errors
    /// [`SandboxError::NotFound`] when there is none, or it is another team's.
    pub fn authorize(
        &self,
        principal: &Principal,
        id: &SandboxId,
    ) -> Result<(SandboxPermit, Arc<SandboxRecord>), SandboxError> {
        self.shared.sandboxes.authorize(principal, id)
    }

    /// The right of `principal` to the sandbox with this id or name; the id comes first.
    ///
    /// # Errors
    /// [`SandboxError::NoSuchName`] when there is none, or it is another team's.
    pub fn find(
        &self,
        principal: &Principal,
        text: &str,
    ) -> Result<(SandboxPermit, Arc<SandboxRecord>), SandboxError> {
        self.shared.sandboxes.find(principal, text)
    }

    /// The matching sandboxes of `principal`. Never waits for a sandbox.
    ///
    /// Equal times are ordered by id: ascending in the descending order and the other way round, as
    /// with E2B.
    #[must_use]
    pub fn list(&self, principal: &Principal, filter: &ListFilter) -> Page {
        self.shared.sandboxes.list(principal, filter)
    }

    /// The usage of the team of `principal`.
    #[must_use]
    pub fn usage(&self, principal: &Principal) -> Use {
        self.shared.sandboxes.usage(principal)
    }

    /// The usage of all teams together; `None` unless `principal` is an admin.
    #[must_use]
    pub fn usage_of_all(&self, principal: &Principal) -> Option<Use> {
        self.shared.sandboxes.usage_of_all(principal)
    }

    /// The teams that `by` may see: its own, or all for an admin.
    ///
    /// # Errors
    /// When the store or the disk use cannot be read.
    pub async fn teams(&self, by: &Principal) -> Result<Vec<TeamView>, TeamError> {
        self.shared.sandboxes.teams(by).await
    }

    /// Opens a client of one run of a sandbox, which acts as `user`, or as the default user. Wakes a
    /// paused sandbox that traffic may wake.
    ///
    /// # Errors
    /// [`SandboxError::Paused`] when it stays paused, [`SandboxError::Busy`] while its state changes,
    /// [`SandboxError::NotFound`] when it has ended.
    pub async fn open_client(
        &self,
        permit: &SandboxPermit,
        user: Option<&str>,
    ) -> Result<Arc<dyn SandboxClient>, SandboxError> {
        self.shared.sandboxes.open(permit, user).await
    }

    /// Sets the deadline to `timeout` from now, never past the longest life that is allowed, counted
    /// from the start of the run.
    ///
    /// # Errors
    /// [`SandboxError::TimeoutTooLong`] above the limit, [`SandboxError::NotFound`] when it does not
    /// run.
    pub async fn set_timeout(
        &self,
        permit: &SandboxPermit,
        timeout: Duration,
    ) -> Result<Arc<SandboxRecord>, SandboxError> {
        self.shared.sandboxes.set_timeout(permit, timeout).await
    }

    /// Gives a sandbox at least `duration` from now, and at least 15 s.
    ///
    /// # Errors
    /// As [`Engine::set_timeout`].
    pub async fn refresh(
        &self,
        permit: &SandboxPermit,
        duration: Duration,
    ) -> Result<Arc<SandboxRecord>, SandboxError> {
        self.shared.sandboxes.refresh(permit, duration).await
    }

    /// Replaces all outbound rules of a sandbox. Connections that the new rules forbid are cut.
    ///
    /// # Errors
    /// The outer error when a rule is invalid; the inner one when the rules could not be put in force,
    /// and the old ones stay.
    pub async fn set_network(
        &self,
        permit: &SandboxPermit,
        egress: Egress,
    ) -> Result<Result<(), SandboxError>, InvalidRule> {
        self.shared.sandboxes.set_network(permit, egress).await
    }

    /// Saves a sandbox and stops it. Keeps `contents`, else what its template says. With `healthy` an
    /// unresponsive daemon is an error. Concurrent callers share one pause.
    ///
    /// # Errors
    /// [`SandboxError::Refused`] when it is paused already, [`SandboxError::Driver`] when it could not
    /// be saved and runs on.
    pub async fn pause(
        &self,
        permit: &SandboxPermit,
        contents: Option<Contents>,
        healthy: bool,
    ) -> Result<(), SandboxError> {
        self.shared.sandboxes.pause(permit, contents, healthy).await
    }

    /// Resumes a paused sandbox for `timeout`; without `memory` it boots from its files. Concurrent
    /// callers share one run, which lasts as long as the longest timeout among them.
    ///
    /// # Errors
    /// [`SandboxError::Refused`] when it runs, [`SandboxError::Driver`] when it could not be resumed
    /// and stays paused.
    pub async fn resume(
        &self,
        permit: &SandboxPermit,
        timeout: Duration,
        memory: bool,
    ) -> Result<Arc<SandboxRecord>, SandboxError> {
        self.shared.sandboxes.resume(permit, timeout, memory).await
    }

    /// Gives a sandbox at least `timeout` from now, and resumes it when it is paused; without `memory`
    /// it then boots from its files. Never shortens its life.
    ///
    /// # Errors
    /// As [`Engine::set_timeout`] and [`Engine::resume`].
    pub async fn connect(
        &self,
        permit: &SandboxPermit,
        timeout: Duration,
        memory: bool,
    ) -> Result<Connected, SandboxError> {
        self.shared.sandboxes.connect(permit, timeout, memory).await
    }

    /// Ends a sandbox and waits until everything of it is cleared.
    ///
    /// # Errors
    /// When something could not be cleared. It is tried again later, and users no longer see the
    /// sandbox.
    pub async fn kill(&self, permit: &SandboxPermit) -> Result<(), SandboxError> {
        self.shared.sandboxes.kill(permit).await
    }

    /// Replaces the access token and the traffic token of a sandbox. The old ones, signatures made with
    /// them, and open connections into the sandbox end with the answer.
    ///
    /// # Errors
    /// [`SandboxError::Paused`] when it does not run, [`SandboxError::NoTokens`] when it has none.
    pub async fn rotate_tokens(
        &self,
        permit: &SandboxPermit,
    ) -> Result<Arc<SandboxRecord>, SandboxError> {
        self.shared.sandboxes.rotate_tokens(permit).await
    }

    /// Changes the limits of a running sandbox in place.
    ///
    /// # Errors
    /// [`SandboxError::Infeasible`] when the machine, the template or the team has less.
    pub async fn resize(
        &self,
        permit: &SandboxPermit,
        resize: Resize,
    ) -> Result<Arc<SandboxRecord>, SandboxError> {
        self.shared.sandboxes.resize(permit, resize).await
    }
}
