//! Rotation of the tokens of a running sandbox.

use std::collections::BTreeMap;
use std::sync::Arc;

use shoal_core::auth::TokenSalt;
use shoal_core::sandbox::SandboxRecord;

use super::Sandbox;
use crate::random;
use crate::telemetry::EventKind;
use shoal_core::ports::sandboxes::SandboxError;

impl Sandbox {
    /// Replaces the tokens. The new salt is committed before the daemon gets the new token, so that both
    /// tokens are known after a crash in between; see [`Sandbox::finish_rotation`].
    pub(super) async fn rotate_tokens(&mut self) -> Result<Arc<SandboxRecord>, SandboxError> {
        self.must_be_awake().await?;
        self.must_run()?;
        let spec = &self.record.spec;
        if !spec.secure && spec.network.allow_public_traffic {
            return Err(SandboxError::NoTokens(self.record.id.clone()));
        }
        // An unfinished rotation is finished with its own salt: the daemon may have that token.
        if self.record.tokens.next.is_none() {
            let mut next = self.record.as_ref().clone();
            next.tokens.next = Some(TokenSalt::from_entropy(random::bytes()?));
            self.commit(next).await?;
        }
        self.finish_rotation().await?;
        let detail = BTreeMap::from([("tokens", "rotated".to_owned())]);
        self.emit(EventKind::Updated, detail);
        Ok(self.record.clone())
    }

    /// Finishes a rotation. The daemon accepts the new token from a caller with the old one or the new
    /// one, so this can be repeated.
    pub(super) async fn finish_rotation(&mut self) -> Result<(), SandboxError> {
        if self.record.tokens.next.is_none() {
            return Ok(());
        }
        self.must_run()?;
        if let Some(report) = &self.record.report {
            let told = self
                .sandboxes
                .parts
                .guest
                .init(report.address, self.init_spec());
            told.await?;
        }
        let settled = SandboxRecord {
            tokens: self.record.tokens.settled(),
            ..self.record.as_ref().clone()
        };
        self.commit(settled).await
    }

    /// Finishes a rotation when the server starts, and before a pause. After a failure the next rotation
    /// retries it.
    pub(super) async fn settle_rotation(&mut self) {
        if self.record.tokens.next.is_none() || !self.record.state.is_running() {
            return;
        }
        if let Err(error) = self.finish_rotation().await {
            tracing::warn!(sandbox.id = %self.record.id, %error, "new tokens of a sandbox are not in force yet");
        }
    }
}
