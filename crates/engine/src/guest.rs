//! The port to the daemon inside a sandbox.

mod envd;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use shoal_core::BoxFuture;
use shoal_core::auth::Token;
use shoal_core::ports::inside::{InsideError, SandboxClient};
use shoal_core::resources::Mib;
use shoal_protocol::activity::Activity;
use shoal_protocol::client::{RunEnd, SandboxTarget};

pub use self::envd::EnvdGuest;

/// The values that the daemon gets at the start of a run.
#[derive(Debug, Clone)]
pub struct InitSpec {
    /// Environment of every process.
    pub env: BTreeMap<String, String>,
    /// The token that it requires until then. In the memory of a clone it is the original's. None when
    /// it requires no token, as older daemons do.
    pub known_token: Option<Token>,
    /// The token that it requires from then on.
    pub access_token: Token,
    /// Whether programs in the sandbox need no token.
    pub open_inside: bool,
    /// Its memory. The sandbox's kernel may know only the first value.
    pub memory: Mib,
    /// The user that commands run as.
    pub user: String,
    /// The directory in which commands start; the user's home when absent.
    pub workdir: Option<String>,
}

/// Talks to daemons.
pub trait Guest: Send + Sync {
    /// Initializes the daemon at `address` at the start of a run, and waits for it to come up. Returns
    /// its version.
    ///
    /// # Errors
    /// When it does not answer within the implementation's timeout, or refuses.
    fn init(&self, address: IpAddr, spec: InitSpec) -> BoxFuture<'_, Result<String, InsideError>>;

    /// Announces a checkpoint: the deadlines of the daemon's processes stop until the next `init` or
    /// `unfreeze`. With `sync` the file systems are synced first.
    ///
    /// # Errors
    /// When it does not answer in time, or refuses.
    fn freeze(
        &self,
        address: IpAddr,
        token: Option<Token>,
        sync: bool,
    ) -> BoxFuture<'_, Result<(), InsideError>>;

    /// The programs in the sandbox.
    ///
    /// # Errors
    /// When it does not answer in time, or is too old to say.
    fn activity(
        &self,
        address: IpAddr,
        token: Option<Token>,
    ) -> BoxFuture<'_, Result<Activity, InsideError>>;

    /// Announces that the sandbox continues.
    ///
    /// # Errors
    /// When it does not answer in time, or refuses.
    fn unfreeze(
        &self,
        address: IpAddr,
        token: Option<Token>,
    ) -> BoxFuture<'_, Result<(), InsideError>>;

    /// Connects to a port of the sandbox once, and sends nothing.
    ///
    /// # Errors
    /// When nothing accepts the connection in time.
    fn probe(&self, address: IpAddr, port: u16) -> BoxFuture<'_, Result<(), InsideError>>;

    /// A client of a sandbox. With `end` its calls fail once the run has ended.
    fn open(&self, target: SandboxTarget, end: Option<RunEnd>) -> Arc<dyn SandboxClient>;
}
