//! Connect to a sandbox: make sure that it runs for a while yet.

use std::sync::Arc;
use std::time::Duration;

use shoal_core::auth::SandboxPermit;
use shoal_core::sandbox::SandboxRecord;

use crate::engine::{Engine, SandboxError};
use crate::sandbox::{DeadlineChange, Order};

impl Engine {
    /// Gives a running sandbox at least `timeout` from now. Never shortens its life.
    ///
    /// # Errors
    /// [`SandboxError::NotFound`] when it does not run.
    pub async fn connect(
        &self,
        permit: &SandboxPermit,
        timeout: Duration,
    ) -> Result<Arc<SandboxRecord>, SandboxError> {
        let change = DeadlineChange::AtLeast(self.shared.clock.now() + timeout);
        self.shared
            .order(permit.sandbox(), |reply| Order::SetDeadline(change, reply))
            .await
    }
}
