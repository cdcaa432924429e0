//! The end of a claim.

use jiff::Timestamp;
use kube::runtime::controller::Action;
use shoal_crds::parts::ClaimShutdownPolicy;
use shoal_crds::v1beta1::{Sandbox, SandboxClaim};

use super::{AT_ONCE, ClaimController, Wanted, status};
use crate::failure::{Failure, is_missing};

impl ClaimController {
    /// Marks the claim as expired; on the next pass, ends it as its policy says.
    pub(super) async fn expire(&self, wanted: &Wanted<'_>) -> Result<Action, Failure> {
        let now = Timestamp::now();
        let before = wanted.claim.status.clone().unwrap_or_default();
        if !status::is_marked_expired(wanted.claim) {
            let message = "Claim expired. Sandbox cleanup initiated.";
            self.write_status(
                wanted,
                &before,
                &status::expired(wanted.claim, message, now),
            )
            .await?;
            self.cluster
                .event(wanted.claim, false, status::EXPIRED, message.to_owned());
            return Ok(Action::requeue(AT_ONCE));
        }
        let lifecycle = wanted.claim.spec.lifecycle.as_ref();
        let policy = lifecycle
            .and_then(|lifecycle| lifecycle.shutdown_policy)
            .unwrap_or_default();
        if policy != ClaimShutdownPolicy::Retain {
            let note = format!("Deleting Claim (ShutdownPolicy={policy:?})");
            self.cluster
                .event(wanted.claim, false, status::EXPIRED, note);
            let foreground = policy == ClaimShutdownPolicy::DeleteForeground;
            let deleted = self.cluster.delete::<SandboxClaim>(
                wanted.namespace,
                wanted.name,
                Some(wanted.uid),
                foreground,
            );
            return match deleted.await {
                Err(error) if !is_missing(&error) => Err(error.into()),
                _ => Ok(Action::await_change()),
            };
        }
        for sandbox in self.sandboxes.owned_by(wanted.uid) {
            let name = sandbox.metadata.name.as_deref().unwrap_or_default();
            let uid = sandbox.metadata.uid.as_deref();
            match self
                .cluster
                .delete::<Sandbox>(wanted.namespace, name, uid, false)
                .await
            {
                Err(error) if !is_missing(&error) => return Err(error.into()),
                _ => {}
            }
        }
        let mut after = before.clone();
        after.sandbox = Default::default();
        self.write_status(wanted, &before, &after).await?;
        Ok(Action::await_change())
    }
}
