//! A connection to an external machine: name, address, host key, account.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use russh::Preferred;
use russh::client::{self, AuthResult, Handle, Handler};
use russh::keys::{
    Algorithm, HashAlg, PrivateKey, PrivateKeyWithHashAlg, PublicKey, PublicKeyOrCertificate,
};
use shoal_core::ports::external::ExternalError;
use shoal_core::session::machine::{HostKey, SshAddress};
use shoal_core::session::networks::Networks;
use tokio::net::{TcpStream, lookup_host};
use tokio::time::timeout;

/// How long one address may take to accept a connection.
const ACCEPT: Duration = Duration::from_secs(10);

/// How long everything up to the account may take.
const WHOLE: Duration = Duration::from_secs(30);

/// How many addresses of a name are tried.
const ADDRESSES_MAX: usize = 4;

/// The interval of keep-alive requests to a silent machine.
const KEEPALIVE: Duration = Duration::from_secs(15);
const KEEPALIVES_MAX: usize = 3;

/// Room for output that a terminal has not taken yet.
const WINDOW: u32 = 256 << 10;
const PIECES: usize = 16;

/// The parameters of a connection.
pub(crate) struct Target {
    pub(crate) address: SshAddress,
    pub(crate) key: Arc<PrivateKey>,
    pub(crate) networks: Arc<Networks>,
    /// The host key, once it is known.
    pub(crate) host_key: Mutex<Option<HostKey>>,
}

/// Why a connection failed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Known by name.
    External(ExternalError),
    /// The protocol failed.
    Ssh(russh::Error),
}

impl From<russh::Error> for Failure {
    fn from(error: russh::Error) -> Self {
        Self::Ssh(error)
    }
}

/// Checks the host key of a connection.
pub(crate) struct Checker {
    target: Arc<Target>,
    /// The host key that it has seen.
    seen: Arc<Mutex<Option<HostKey>>>,
}

impl Handler for Checker {
    type Error = Failure;

    async fn check_server_key(
        &mut self,
        shown: &PublicKeyOrCertificate,
    ) -> Result<bool, Self::Error> {
        let PublicKeyOrCertificate::PublicKey { key, .. } = shown else {
            return Ok(false);
        };
        let found = host_key(key)?;
        let known = self.target.host_key.lock().clone();
        if let Some(known) = known
            && known.key != found.key
        {
            return Err(Failure::External(ExternalError::HostKeyChanged {
                address: self.target.address.clone(),
                known: known.fingerprint,
                found: found.fingerprint,
            }));
        }
        *self.seen.lock() = Some(found);
        Ok(true)
    }
}

fn host_key(key: &PublicKey) -> Result<HostKey, russh::Error> {
    // Without the comment.
    let bare = PublicKey::from(key.key_data().clone());
    Ok(HostKey {
        key: bare.to_openssh()?,
        fingerprint: key.fingerprint(HashAlg::Sha256).to_string(),
    })
}

/// Connects to the account.
///
/// # Errors
/// See [`ExternalError`].
pub(crate) async fn dial(target: &Arc<Target>) -> Result<Handle<Checker>, ExternalError> {
    match timeout(WHOLE, connect(target)).await {
        Ok(connected) => connected,
        Err(_) => Err(unreachable(target, "the time is over")),
    }
}

async fn connect(target: &Arc<Target>) -> Result<Handle<Checker>, ExternalError> {
    let stream = tcp(target).await?;
    let seen = Arc::new(Mutex::new(None));
    let checker = Checker {
        target: target.clone(),
        seen: seen.clone(),
    };
    let known = target.host_key.lock().clone();
    let config = Arc::new(config(known.as_ref()));
    let connected = client::connect_stream(config, stream, checker).await;
    let mut handle = connected.map_err(|failure| said(target, failure))?;
    let key = PrivateKeyWithHashAlg::new(target.key.clone(), None);
    let username = target.address.username.clone();
    let entered = handle.authenticate_publickey(username, key).await;
    match entered.map_err(|error| said(target, error.into()))? {
        AuthResult::Success => {}
        AuthResult::Failure { .. } => return Err(ExternalError::Refused(target.address.clone())),
    }
    // Trust the key only after the account was accepted: anyone could answer before.
    let mut known = target.host_key.lock();
    let found = seen.lock().take();
    match (&*known, &found) {
        (None, Some(_)) => *known = found,
        // Two first connections at once may have met two machines.
        (Some(known), Some(found)) if known.key != found.key => {
            return Err(ExternalError::HostKeyChanged {
                address: target.address.clone(),
                known: known.fingerprint.clone(),
                found: found.fingerprint.clone(),
            });
        }
        _ => {}
    }
    drop(known);
    Ok(handle)
}

/// Connects to the first address that accepts. The addresses are those that were checked: nothing is looked up again.
async fn tcp(target: &Target) -> Result<TcpStream, ExternalError> {
    let SshAddress { host, port, .. } = &target.address;
    let found = timeout(ACCEPT, lookup_host((host.as_str(), port.get()))).await;
    let found: Vec<SocketAddr> = match found {
        Ok(Ok(found)) => found.take(ADDRESSES_MAX).collect(),
        _ => Vec::new(),
    };
    if found.is_empty() {
        return Err(ExternalError::Unresolved(target.address.clone()));
    }
    let not_allowed = || ExternalError::NotAllowed(target.address.clone());
    let allowed = |address: &SocketAddr| target.networks.allows(address.ip());
    let allowed: Vec<_> = found.into_iter().filter(allowed).collect();
    let mut failed = not_allowed();
    for address in allowed {
        match timeout(ACCEPT, TcpStream::connect(address)).await {
            Ok(Ok(stream)) if !is_here(&stream) || target.networks.names(address.ip()) => {
                // Typed keys are sent at once, not collected.
                let _ = stream.set_nodelay(true);
                return Ok(stream);
            }
            Ok(Ok(_)) => failed = not_allowed(),
            Ok(Err(error)) => failed = unreachable(target, &error.kind().to_string()),
            Err(_) => failed = unreachable(target, "the time is over"),
        }
    }
    Err(failed)
}

/// Whether a connection leads to the machine that it comes from, by one of its public addresses.
fn is_here(stream: &TcpStream) -> bool {
    let ip = |address: std::io::Result<SocketAddr>| address.map(|address| address.ip()).ok();
    let (own, other): (Option<IpAddr>, Option<IpAddr>) =
        (ip(stream.local_addr()), ip(stream.peer_addr()));
    own == other
}

fn config(known: Option<&HostKey>) -> client::Config {
    let mut preferred = Preferred::DEFAULT;
    let known = known.and_then(|known| known.key.parse::<PublicKey>().ok());
    if let Some(known) = known {
        // A machine with several keys shows the one that is known.
        let first = known.algorithm();
        let others = preferred.key.iter().filter(|other| **other != first);
        let all: Vec<Algorithm> = std::iter::once(first.clone())
            .chain(others.cloned())
            .collect();
        preferred.key = all.into();
    }
    client::Config {
        window_size: WINDOW,
        channel_buffer_size: PIECES,
        keepalive_interval: Some(KEEPALIVE),
        keepalive_max: KEEPALIVES_MAX,
        preferred,
        ..client::Config::default()
    }
}

fn unreachable(target: &Target, reason: &str) -> ExternalError {
    ExternalError::Unreachable {
        address: target.address.clone(),
        reason: reason.to_owned(),
    }
}

fn said(target: &Target, failure: Failure) -> ExternalError {
    match failure {
        Failure::External(error) => error,
        Failure::Ssh(error) => unreachable(target, &error.to_string()),
    }
}
