//! End a sandbox for good.

use shoal_core::auth::SandboxPermit;
use shoal_core::state::KillReason;

use super::Sandboxes;
use super::command::Command;
use shoal_core::ports::sandboxes::SandboxError;

impl Sandboxes {
    /// Ends a sandbox and waits until all that was its is cleared.
    ///
    /// # Errors
    /// When something could not be cleared; it is tried again later, and users no longer see the
    /// sandbox.
    pub(crate) async fn kill(&self, permit: &SandboxPermit) -> Result<(), SandboxError> {
        let command = |reply| Command::Kill(KillReason::Requested, reply);
        self.call(permit.sandbox(), command).await
    }
}
