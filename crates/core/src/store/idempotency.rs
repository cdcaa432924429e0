//! Idempotency keys of create requests.

use crate::BoxFuture;
use crate::clock::Timestamp;
use crate::id::{SandboxId, TeamId};
use crate::sandbox::IdempotencyKey;

use super::StoreError;

/// The outcome of claiming an idempotency key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IdempotencyClaim {
    /// The key is new: carry out the request.
    First,
    /// The same request is still in progress.
    InProgress,
    /// The key was used for another request.
    Mismatch,
    /// The same request created this sandbox.
    Done(SandboxId),
}

/// Keeps the idempotency keys of requests.
pub trait IdempotencyStore: Send + Sync {
    /// Claims an idempotency key for a request with this digest.
    ///
    /// # Errors
    /// See [`StoreError`].
    fn claim_idempotency(
        &self,
        team: TeamId,
        key: &str,
        request: &[u8; 32],
        now: Timestamp,
    ) -> BoxFuture<'_, Result<IdempotencyClaim, StoreError>>;

    /// Settles a claim: with the sandbox that the request created, or with `None`, which makes the
    /// key usable again. A claim that is already settled stays as it is.
    ///
    /// # Errors
    /// See [`StoreError`].
    fn settle_idempotency(
        &self,
        team: TeamId,
        claim: &IdempotencyKey,
        sandbox: Option<&SandboxId>,
    ) -> BoxFuture<'_, Result<(), StoreError>>;

    /// Releases every unsettled claim of a previous server, so that its key can be used again. Called
    /// once the sandboxes of that server are known.
    ///
    /// # Errors
    /// See [`StoreError`].
    fn release_idempotency(&self) -> BoxFuture<'_, Result<(), StoreError>>;
}
