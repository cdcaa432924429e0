//! Connect to a sandbox: make sure that it runs for a while yet.

use std::time::Duration;

use shoal_core::auth::SandboxPermit;
pub use shoal_core::ports::sandboxes::Connected;

use super::Sandboxes;
use super::command::{Command, ResumeRequest};
use shoal_core::ports::sandboxes::SandboxError;

impl Sandboxes {
    /// Extends the deadline of a sandbox to at least `timeout` from now, and resumes it if it is paused.
    /// Without `memory`, a paused sandbox boots from its files. Never shortens a deadline.
    ///
    /// # Errors
    /// [`SandboxError::NotFound`] when it has ended; see [`Engine::resume`].
    pub(crate) async fn connect(
        &self,
        permit: &SandboxPermit,
        timeout: Duration,
        memory: bool,
    ) -> Result<Connected, SandboxError> {
        self.check_timeout(timeout)?;
        let request = ResumeRequest {
            timeout,
            memory,
            found_paused: true,
        };
        self.call(permit.sandbox(), |reply| Command::Connect(request, reply))
            .await
    }
}
