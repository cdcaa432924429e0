//! External machines of sessions, which are reached over SSH.

use std::sync::Arc;

use crate::BoxFuture;
use crate::ports::inside::{InsideError, SandboxClient};
use crate::ports::sessions::preview::PortForward;
use crate::session::machine::{HostKey, SshAddress};
use crate::session::secret::SecretValue;

/// An external machine to connect to.
#[derive(Debug, Clone)]
pub struct ExternalMachine {
    /// Where it is, and the account.
    pub address: SshAddress,
    /// The private key of the account.
    pub key: SecretValue,
    /// The host key that it had before; none at the first connection, which trusts the one that it sees.
    pub host_key: Option<HostKey>,
}

/// Why an external machine cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ExternalError {
    /// The installation connects to no external machines.
    #[error(
        "`ssh_connection` and `ssh_private_key` are not served: this installation connects to no external machines"
    )]
    Disabled,
    /// The private key has a passphrase.
    #[error(
        "`ssh_private_key` has a passphrase, which cannot be entered: give a key without, made for this account alone"
    )]
    EncryptedKey,
    /// The private key is of a kind that is not used.
    #[error("`ssh_private_key` is of the kind {0}: give an Ed25519 or ECDSA key")]
    UnsupportedKey(String),
    /// The text is no private key.
    #[error("`ssh_private_key` is no private key: give one in the format of OpenSSH, or as PEM")]
    UnreadableKey,
    /// The key of the session cannot be decrypted.
    #[error("the private key of the session was sealed with another key: make another session")]
    Sealed,
    /// The address is none that the installation connects to.
    #[error(
        "`ssh_connection` {0}: its address is not in the networks that this installation connects to (`sessions.ssh_networks`)"
    )]
    NotAllowed(SshAddress),
    /// The name has no address.
    #[error("`ssh_connection` {0}: the name has no address")]
    Unresolved(SshAddress),
    /// Nothing answers as an SSH server.
    #[error("the external machine {address} does not answer: {reason}")]
    Unreachable {
        /// Where.
        address: SshAddress,
        /// Why.
        reason: String,
    },
    /// The account refuses the key.
    #[error("the external machine {0} refuses the private key: add its public key to the account")]
    Refused(SshAddress),
    /// The host key is another than at the first connection.
    #[error(
        "the host key of {address} has changed from {known} to {found}: somebody may be in between. If the machine was set up anew, make another session"
    )]
    HostKeyChanged {
        /// Where.
        address: SshAddress,
        /// The fingerprint of the first connection.
        known: String,
        /// The present one.
        found: String,
    },
    /// The machine has no SFTP.
    #[error("the external machine {0} has no SFTP: enable the subsystem `sftp` of its SSH server")]
    NoSftp(SshAddress),
    /// The machine has no bash.
    #[error("the account {0} runs no /bin/bash: install it, and allow commands")]
    NoBash(SshAddress),
    /// The connection was lost.
    #[error("the connection to the external machine {0} was lost: the next command connects again")]
    Lost(SshAddress),
    /// The session has closed the connection.
    #[error("the session has closed the connection to its external machine")]
    Closed,
}

/// A client of an external machine. It connects again when the connection was lost.
pub trait ExternalClient: SandboxClient + PortForward {
    /// Whether its connection is open.
    fn is_open(&self) -> bool;

    /// Closes the connections for good, and ends the shells in them.
    fn close(&self);
}

/// A connected external machine.
pub struct Opened {
    /// The client.
    pub client: Arc<dyn ExternalClient>,
    /// The host key.
    pub host_key: HostKey,
}

/// The way to external machines.
pub trait ExternalMachines: Send + Sync {
    /// Refuses an address or a key that can never work, without connecting.
    ///
    /// # Errors
    /// When the key is unusable, or the address is not allowed.
    fn check(&self, address: &SshAddress, key: &SecretValue) -> Result<(), ExternalError>;

    /// Connects to a machine.
    ///
    /// # Errors
    /// See [`ExternalError`].
    fn open(&self, machine: ExternalMachine) -> BoxFuture<'_, Result<Opened, ExternalError>>;
}

impl From<ExternalError> for crate::ports::sessions::SessionError {
    fn from(error: ExternalError) -> Self {
        InsideError::External(error).into()
    }
}
