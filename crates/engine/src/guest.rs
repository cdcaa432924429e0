//! The port to the daemon inside a sandbox.

mod envd;

use std::collections::BTreeMap;
use std::net::IpAddr;

use shoal_core::BoxFuture;
use shoal_core::auth::Token;

pub use self::envd::EnvdGuest;

/// What the daemon is told when a run begins.
#[derive(Debug, Clone)]
pub struct InitOrder {
    /// Environment of every process.
    pub env: BTreeMap<String, String>,
    /// What it asks of callers until then: in the memory of a clone there is its original's.
    pub known_token: Option<Token>,
    /// What it asks of callers from then on; none leaves it as it is.
    pub access_token: Option<Token>,
    /// Who commands run as.
    pub user: String,
    /// Where commands start; the user's home when none is given.
    pub workdir: Option<String>,
}

/// Why the daemon did not do it.
#[derive(Debug, thiserror::Error)]
pub enum GuestError {
    /// It does not answer.
    #[error("the daemon in the sandbox does not answer: {0}")]
    Unreachable(String),
    /// It answers, and refuses.
    #[error("the daemon in the sandbox refuses: {0}")]
    Refused(String),
}

/// Talks to daemons.
pub trait Guest: Send + Sync {
    /// Tells the daemon at `address` that a run begins, waiting for it to come up. Returns its
    /// version.
    ///
    /// # Errors
    /// When it does not answer for as long as the implementation is patient, or refuses.
    fn init(&self, address: IpAddr, order: InitOrder) -> BoxFuture<'_, Result<String, GuestError>>;

    /// Tells the daemon that the sandbox is about to be saved: until the next `init` or `unfreeze`
    /// no deadline of its processes comes nearer. With `sync` what was written is on disk then.
    ///
    /// # Errors
    /// When it does not answer soon, or refuses.
    fn freeze(
        &self,
        address: IpAddr,
        token: Option<Token>,
        sync: bool,
    ) -> BoxFuture<'_, Result<(), GuestError>>;

    /// Tells the daemon that the sandbox goes on.
    ///
    /// # Errors
    /// When it does not answer soon, or refuses.
    fn unfreeze(
        &self,
        address: IpAddr,
        token: Option<Token>,
    ) -> BoxFuture<'_, Result<(), GuestError>>;
}
