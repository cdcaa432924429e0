//! End a sandbox for good.

use shoal_core::auth::SandboxPermit;
use shoal_core::state::KillReason;

use crate::engine::{Engine, SandboxError};
use crate::sandbox::Order;

impl Engine {
    /// Ends a sandbox and waits until all that was its is cleared.
    ///
    /// # Errors
    /// When something could not be cleared; it is tried again later, and users no longer see the
    /// sandbox.
    pub async fn kill(&self, permit: &SandboxPermit) -> Result<(), SandboxError> {
        let order = |reply| Order::Kill(KillReason::Requested, reply);
        self.shared.order(permit.sandbox(), order).await
    }
}
