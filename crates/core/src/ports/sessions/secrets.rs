//! Secrets of sessions.

use super::{NoSessions, SessionError};
use crate::BoxFuture;
use crate::auth::Principal;
use crate::clock::Timestamp;
use crate::session::secret::{InvalidSecret, SecretName, SecretValue};

/// A secret without its value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecretView {
    /// Its name.
    pub name: SecretName,
    /// Whether the windows of the present machine have it, or those of the next when there is none.
    pub active: bool,
    /// When its value was set.
    pub set_at: Timestamp,
}

/// Why an operation on a secret was not done. No text contains a value.
#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    /// The session has no such secret.
    #[error("the session has no secret {0}: set it first")]
    NotFound(SecretName),
    /// The name or the value is refused.
    #[error(transparent)]
    Invalid(#[from] InvalidSecret),
    /// The session has its maximum of secrets.
    #[error("the session has {0} secrets: delete some")]
    TooMany(usize),
    /// The values are too long together.
    #[error("the values of the session's secrets have more than {0} bytes together: delete some")]
    TooLong(usize),
    /// The stored value does not open.
    #[error(
        "the value of the secret {0} does not open with the server's key: set it again, or delete it"
    )]
    Sealed(SecretName),
}

/// The secrets of sessions. Sessions of other teams are not found.
pub trait SessionSecrets: Send + Sync {
    /// The secrets of a session, by name.
    ///
    /// # Errors
    /// See [`SessionError`].
    fn list<'a>(
        &'a self,
        principal: &'a Principal,
        id: &'a str,
    ) -> BoxFuture<'a, Result<Vec<SecretView>, SessionError>>;

    /// Sets the value of a secret. An active one stays active, with the new value.
    ///
    /// # Errors
    /// See [`SessionError`].
    fn set<'a>(
        &'a self,
        principal: &'a Principal,
        id: &'a str,
        name: &'a str,
        value: SecretValue,
    ) -> BoxFuture<'a, Result<SecretView, SessionError>>;

    /// Makes a secret a variable of all windows, until its machine ends. Without a machine, of the next one.
    ///
    /// # Errors
    /// See [`SessionError`].
    fn activate<'a>(
        &'a self,
        principal: &'a Principal,
        id: &'a str,
        name: &'a str,
    ) -> BoxFuture<'a, Result<SecretView, SessionError>>;

    /// Takes the variable from all windows.
    ///
    /// # Errors
    /// See [`SessionError`].
    fn deactivate<'a>(
        &'a self,
        principal: &'a Principal,
        id: &'a str,
        name: &'a str,
    ) -> BoxFuture<'a, Result<SecretView, SessionError>>;

    /// Deletes a secret, and takes the variable from all windows.
    ///
    /// # Errors
    /// See [`SessionError`].
    fn delete<'a>(
        &'a self,
        principal: &'a Principal,
        id: &'a str,
        name: &'a str,
    ) -> BoxFuture<'a, Result<(), SessionError>>;
}

impl SessionSecrets for NoSessions {
    fn list<'a>(
        &'a self,
        _: &'a Principal,
        _: &'a str,
    ) -> BoxFuture<'a, Result<Vec<SecretView>, SessionError>> {
        Box::pin(async { Self::refused() })
    }

    fn set<'a>(
        &'a self,
        _: &'a Principal,
        _: &'a str,
        _: &'a str,
        _: SecretValue,
    ) -> BoxFuture<'a, Result<SecretView, SessionError>> {
        Box::pin(async { Self::refused() })
    }

    fn activate<'a>(
        &'a self,
        _: &'a Principal,
        _: &'a str,
        _: &'a str,
    ) -> BoxFuture<'a, Result<SecretView, SessionError>> {
        Box::pin(async { Self::refused() })
    }

    fn deactivate<'a>(
        &'a self,
        _: &'a Principal,
        _: &'a str,
        _: &'a str,
    ) -> BoxFuture<'a, Result<SecretView, SessionError>> {
        Box::pin(async { Self::refused() })
    }

    fn delete<'a>(
        &'a self,
        _: &'a Principal,
        _: &'a str,
        _: &'a str,
    ) -> BoxFuture<'a, Result<(), SessionError>> {
        Box::pin(async { Self::refused() })
    }
}
