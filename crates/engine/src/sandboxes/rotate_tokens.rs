//! Give a running sandbox other tokens.

use std::sync::Arc;

use shoal_core::auth::SandboxPermit;
use shoal_core::sandbox::SandboxRecord;

use super::Sandboxes;
use super::command::Command;
use shoal_core::ports::sandboxes::SandboxError;

impl Sandboxes {
    /// Replaces the access token and the traffic token of a sandbox. The old ones, URLs signed with
    /// them, and open connections into the sandbox end with the answer.
    ///
    /// # Errors
    /// [`SandboxError::NoTokens`] when it has none, [`SandboxError::Paused`] while it does not run, and
    /// [`SandboxError::Guest`] when its daemon does not answer: another call completes the rotation.
    pub(crate) async fn rotate_tokens(
        &self,
        permit: &SandboxPermit,
    ) -> Result<Arc<SandboxRecord>, SandboxError> {
        let id = permit.sandbox();
        let known = self.registry.record(id);
        if let Some(record) = known.filter(|record| record.state.is_live())
            && !record.state.shows_running()
        {
            return Err(SandboxError::Paused(id.clone()));
        }
        self.call(id, Command::RotateTokens).await
    }
}
