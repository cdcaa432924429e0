//! Pause a sandbox, and let it go on.

use std::sync::Arc;
use std::time::Duration;

use shoal_core::auth::SandboxPermit;
use shoal_core::sandbox::SandboxRecord;
use shoal_core::snapshot::Contents;

use crate::engine::{Engine, SandboxError};
use crate::sandbox::{Order, PauseOrder, ResumeOrder};

impl Engine {
    /// Saves a sandbox and stops it. With `contents` that is kept, else what its template says.
    /// With `healthy` a daemon inside that does not answer is a reason not to.
    ///
    /// # Errors
    /// [`SandboxError::Refused`] when it does not run; when it cannot be saved, it runs on.
    pub async fn pause(
        &self,
        permit: &SandboxPermit,
        contents: Option<Contents>,
        healthy: bool,
    ) -> Result<(), SandboxError> {
        let order = PauseOrder { contents, healthy };
        self.shared
            .order(permit.sandbox(), |reply| Order::Pause(order, reply))
            .await
    }

    /// Lets a paused sandbox go on for `timeout`; without `memory` it boots from its files.
    ///
    /// # Errors
    /// [`SandboxError::Refused`] when it is not paused; when it cannot go on, it stays as it was
    /// saved.
    pub async fn resume(
        &self,
        permit: &SandboxPermit,
        timeout: Duration,
        memory: bool,
    ) -> Result<Arc<SandboxRecord>, SandboxError> {
        let order = ResumeOrder { timeout, memory };
        self.shared
            .order(permit.sandbox(), |reply| Order::Resume(order, reply))
            .await
    }
}
