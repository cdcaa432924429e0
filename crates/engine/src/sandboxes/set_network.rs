//! Changes the network rules of a running sandbox.

use shoal_core::auth::SandboxPermit;
use shoal_core::network::{Egress, InvalidRule};

use super::Sandboxes;
use super::command::Command;
use shoal_core::ports::sandboxes::SandboxError;

impl Sandboxes {
    /// Replaces all outbound rules of a sandbox. Connections that the new rules forbid are cut.
    ///
    /// # Errors
    /// The outer error when the rules make no sense; the inner when they could not be put in
    /// force, and then the old ones stay.
    pub(crate) async fn set_network(
        &self,
        permit: &SandboxPermit,
        egress: Egress,
    ) -> Result<Result<(), SandboxError>, InvalidRule> {
        egress.validate()?;
        Ok(self
            .call(permit.sandbox(), |reply| Command::SetEgress(egress, reply))
            .await)
    }
}
