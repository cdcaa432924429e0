//! Give a running sandbox other tokens.

use std::sync::Arc;

use shoal_core::auth::SandboxPermit;
use shoal_core::sandbox::SandboxRecord;

use crate::engine::{Engine, SandboxError};
use crate::sandbox::Order;

impl Engine {
    /// Replaces the access token and the traffic token of a sandbox. The old ones, what was signed with
    /// them, and connections into the sandbox that are open end with the answer.
    ///
    /// # Errors
    /// [`SandboxError::NoTokens`] when it has none, [`SandboxError::Paused`] while it does not run, and
    /// [`SandboxError::Guest`] when its daemon does not answer: asking again finishes what was begun.
    pub async fn rotate_tokens(
        &self,
        permit: &SandboxPermit,
    ) -> Result<Arc<SandboxRecord>, SandboxError> {
        let id = permit.sandbox();
        let known = self.shared.entries.record(id);
        if let Some(record) = known.filter(|record| record.state.is_live())
            && !record.state.is_running()
        {
            return Err(SandboxError::Paused(id.clone()));
        }
        self.shared.order(id, Order::RotateTokens).await
    }
}
