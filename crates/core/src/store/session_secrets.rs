//! Sealed secrets of sessions.

use std::fmt;

use crate::BoxFuture;
use crate::clock::Timestamp;
use crate::id::SandboxId;
use crate::session::SessionId;
use crate::session::secret::{Activation, SecretName};

use super::StoreError;

/// A secret as it is stored. The store sees no value.
#[derive(Clone, PartialEq, Eq)]
pub struct SealedSecret {
    /// Its name.
    pub name: SecretName,
    /// Its encrypted value.
    pub sealed: Vec<u8>,
    /// Where it is active.
    pub activation: Option<Activation>,
    /// When its value was set.
    pub set_at: Timestamp,
}

impl fmt::Debug for SealedSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SealedSecret")
            .field("name", &self.name)
            .field("activation", &self.activation)
            .field("set_at", &self.set_at)
            .finish_non_exhaustive()
    }
}

/// Keeps the secrets of each session. The end of a session deletes its secrets.
pub trait SessionSecretStore: Send + Sync {
    /// The secrets of a session, by name.
    ///
    /// # Errors
    /// See [`StoreError`].
    fn session_secrets(
        &self,
        session: &SessionId,
    ) -> BoxFuture<'_, Result<Vec<SealedSecret>, StoreError>>;

    /// Writes a secret, over the one with its name.
    ///
    /// # Errors
    /// See [`StoreError`]; also when there is no such session.
    fn put_session_secret(
        &self,
        session: &SessionId,
        secret: SealedSecret,
    ) -> BoxFuture<'_, Result<(), StoreError>>;

    /// Deletes a secret; whether there was one.
    ///
    /// # Errors
    /// See [`StoreError`].
    fn delete_session_secret(
        &self,
        session: &SessionId,
        name: &SecretName,
    ) -> BoxFuture<'_, Result<bool, StoreError>>;

    /// A machine starts: it gets the secrets that were activated for the next one.
    ///
    /// # Errors
    /// See [`StoreError`].
    fn bind_session_secrets(
        &self,
        session: &SessionId,
        machine: &SandboxId,
    ) -> BoxFuture<'_, Result<(), StoreError>>;
}
