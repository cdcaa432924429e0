//! Other tokens for a sandbox that runs.

use std::collections::BTreeMap;
use std::sync::Arc;

use shoal_core::auth::TokenSalt;
use shoal_core::sandbox::SandboxRecord;

use super::Sandbox;
use crate::entropy;
use crate::telemetry::EventKind;
use shoal_core::ports::sandboxes::SandboxError;

impl Sandbox {
    /// Replaces the tokens. What they are to be is committed before the daemon inside is told, so that
    /// after a crash in between both are known; see [`Sandbox::finish_rotation`].
    pub(super) async fn rotate_tokens(&mut self) -> Result<Arc<SandboxRecord>, SandboxError> {
        self.must_run()?;
        let spec = &self.record.spec;
        if !spec.secure && spec.network.allow_public_traffic {
            return Err(SandboxError::NoTokens(self.record.id.clone()));
        }
        // What was begun and not finished is finished with the tokens that it was begun with: the
        // daemon may have them.
        if self.record.tokens.next.is_none() {
            let mut next = self.record.as_ref().clone();
            next.tokens.next = Some(TokenSalt::from_entropy(entropy::bytes()?));
            self.commit(next).await?;
        }
        self.finish_rotation().await?;
        let detail = BTreeMap::from([("tokens", "rotated".to_owned())]);
        self.emit(EventKind::Updated, detail);
        Ok(self.record.clone())
    }

    /// Finishes a rotation that was begun. The daemon takes the new token from whoever knows the old one
    /// or the new one, so it does not matter whether it has heard of it before.
    pub(super) async fn finish_rotation(&mut self) -> Result<(), SandboxError> {
        if self.record.tokens.next.is_none() {
            return Ok(());
        }
        self.must_run()?;
        if let Some(report) = &self.record.report {
            let told = self.sandboxes.guest.init(report.address, self.init_order());
            told.await?;
        }
        let settled = SandboxRecord {
            tokens: self.record.tokens.settled(),
            ..self.record.as_ref().clone()
        };
        self.commit(settled).await
    }

    /// The same when the server starts, or before a pause: what cannot be finished now is tried by the
    /// next rotation.
    pub(super) async fn settle_rotation(&mut self) {
        if self.record.tokens.next.is_none() || !self.record.state.is_running() {
            return;
        }
        if let Err(error) = self.finish_rotation().await {
            tracing::warn!(sandbox.id = %self.record.id, %error, "new tokens of a sandbox are not in force yet");
        }
    }
}
