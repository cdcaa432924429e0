//! Changes the deadline of a sandbox.

use std::sync::Arc;
use std::time::Duration;

use shoal_core::auth::SandboxPermit;
pub use shoal_core::ports::sandboxes::TimeoutTooLong;
use shoal_core::sandbox::SandboxRecord;

use super::Sandboxes;
use super::command::{Command, DeadlineChange};
use shoal_core::ports::sandboxes::SandboxError;

/// The least that a refresh gives.
const LEAST_REFRESH: Duration = Duration::from_secs(15);

impl Sandboxes {
    /// Refuses a timeout above the limit. Every request that carries one passes here.
    pub(crate) fn check_timeout(&self, timeout: Duration) -> Result<(), TimeoutTooLong> {
        let most = self.limits.max_timeout;
        if timeout > most {
            return Err(TimeoutTooLong { most });
        }
        Ok(())
    }
}

impl Sandboxes {
    /// Sets the deadline to `timeout` from now: sooner or later than it was, but never past the
    /// longest life that is allowed, counted from the start of the run.
    ///
    /// # Errors
    /// [`SandboxError::NotFound`] when it does not run; [`SandboxError::TimeoutTooLong`].
    pub(crate) async fn set_timeout(
        &self,
        permit: &SandboxPermit,
        timeout: Duration,
    ) -> Result<Arc<SandboxRecord>, SandboxError> {
        self.check_timeout(timeout)?;
        let change = DeadlineChange::To(self.parts.clock.now() + timeout);
        self.call(permit.sandbox(), |reply| {
            Command::SetDeadline(change, reply)
        })
        .await
    }

    /// Gives a sandbox at least `duration` from now, and 15 s if that is less.
    ///
    /// # Errors
    /// As [`Engine::set_timeout`].
    pub(crate) async fn refresh(
        &self,
        permit: &SandboxPermit,
        duration: Duration,
    ) -> Result<Arc<SandboxRecord>, SandboxError> {
        self.check_timeout(duration)?;
        let least = self.parts.clock.now() + duration.max(LEAST_REFRESH);
        let change = DeadlineChange::AtLeast(least);
        self.call(permit.sandbox(), |reply| {
            Command::SetDeadline(change, reply)
        })
        .await
    }
}
