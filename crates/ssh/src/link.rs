//! The connections to one external machine.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use russh::Disconnect;
use russh::client::{Handle, Msg};
use russh::{Channel, ChannelMsg};
use shoal_core::ports::external::{ExternalError, ExternalMachine};
use shoal_core::session::machine::{HostKey, SshAddress};
use shoal_core::session::networks::Networks;
use tokio::sync::{Semaphore, watch};
use tokio::time::{Instant, timeout};

use crate::dial::{Checker, Target, dial};
use crate::forward::FORWARDS_MAX;
use crate::key;
use crate::sftp::Sftp;

/// How long the machine may take to answer a request about a channel.
pub(crate) const ANSWER: Duration = Duration::from_secs(20);

/// For how long a refusal of the account counts for those who try again by themselves. Servers lock accounts out that try
/// often.
const REFUSED: Duration = Duration::from_secs(60);

/// A command that shows whether the account runs bash, and the machine's time.
const PROBE: &str = "exec /bin/bash -c 'echo \"shoal $(date +%s)\"'";

/// The most bytes of the answer, including the output of the shell's start files.
const PROBE_MAX: usize = 64 << 10;

/// A connection for commands and files.
pub(crate) struct Main {
    handle: Handle<Checker>,
    pub(crate) sftp: Sftp,
    /// The home directory.
    pub(crate) home: String,
    /// The time of the machine in seconds since 1970, less this machine's.
    pub(crate) ahead: i64,
}

/// An external machine. It is connected when it is used.
pub(crate) struct Link {
    target: Arc<Target>,
    main: tokio::sync::Mutex<Option<Arc<Main>>>,
    /// The same, for those who do not wait.
    open: Mutex<Option<Arc<Main>>>,
    /// The latest refusal.
    refused: Mutex<Option<(Instant, ExternalError)>>,
    closed: watch::Sender<bool>,
    /// The places of connections to ports.
    pub(crate) forwards: Arc<Semaphore>,
}

impl Link {
    /// A machine that is not connected yet.
    ///
    /// # Errors
    /// When the key is unusable.
    pub(crate) fn new(
        machine: &ExternalMachine,
        networks: Arc<Networks>,
    ) -> Result<Self, ExternalError> {
        let target = Target {
            address: machine.address.clone(),
            key: Arc::new(key::read(&machine.key)?),
            networks,
            host_key: Mutex::new(machine.host_key.clone()),
        };
        Ok(Self {
            target: Arc::new(target),
            main: tokio::sync::Mutex::default(),
            open: Mutex::default(),
            refused: Mutex::default(),
            closed: watch::channel(false).0,
            forwards: Arc::new(Semaphore::new(FORWARDS_MAX)),
        })
    }

    pub(crate) fn host_key(&self) -> Option<HostKey> {
        self.target.host_key.lock().clone()
    }

    pub(crate) fn address(&self) -> &SshAddress {
        &self.target.address
    }

    pub(crate) fn lost(&self) -> ExternalError {
        if self.is_closed() {
            return ExternalError::Closed;
        }
        ExternalError::Lost(self.target.address.clone())
    }

    fn is_closed(&self) -> bool {
        *self.closed.borrow()
    }

    /// Says when it is closed for good.
    pub(crate) fn closing(&self) -> watch::Receiver<bool> {
        self.closed.subscribe()
    }

    /// Whether the connection for commands and files is open.
    pub(crate) fn is_open(&self) -> bool {
        self.open.lock().as_ref().is_some_and(|main| main.is_open())
    }

    /// The connection for commands and files, which is made if it is not open.
    ///
    /// # Errors
    /// See [`ExternalError`].
    pub(crate) async fn main(&self) -> Result<Arc<Main>, ExternalError> {
        let mut main = self.main.lock().await;
        if let Some(open) = main.as_ref().filter(|main| main.is_open()) {
            return Ok(open.clone());
        }
        *main = None;
        *self.open.lock() = None;
        let handle = self.dial().await?;
        let made = Arc::new(self.begin(handle).await?);
        *self.open.lock() = Some(made.clone());
        if self.is_closed() {
            // It was closed meanwhile.
            self.close();
            return Err(ExternalError::Closed);
        }
        *main = Some(made.clone());
        Ok(made)
    }

    /// A connection of its own, for a terminal.
    ///
    /// # Errors
    /// See [`ExternalError`].
    pub(crate) async fn dial(&self) -> Result<Handle<Checker>, ExternalError> {
        if self.is_closed() {
            return Err(ExternalError::Closed);
        }
        if let Some((at, error)) = &*self.refused.lock()
            && at.elapsed() < REFUSED
        {
            return Err(error.clone());
        }
        let dialled = dial(&self.target).await;
        if let Err(error @ (ExternalError::Refused(_) | ExternalError::HostKeyChanged { .. })) =
            &dialled
        {
            *self.refused.lock() = Some((Instant::now(), error.clone()));
        }
        dialled
    }

    async fn begin(&self, handle: Handle<Checker>) -> Result<Main, ExternalError> {
        let address = &self.target.address;
        let seconds = timeout(ANSWER, probe(&handle)).await.ok().flatten();
        let seconds = seconds.ok_or_else(|| ExternalError::NoBash(address.clone()))?;
        let answered_at = now();
        let sftp = timeout(ANSWER, Sftp::open(&handle)).await.ok().flatten();
        let no_sftp = || ExternalError::NoSftp(address.clone());
        let sftp = sftp.ok_or_else(no_sftp)?;
        let home = sftp.home().await.map_err(|_| no_sftp())?;
        Ok(Main {
            handle,
            sftp,
            home,
            // Behind rather than ahead by the time of the answer.
            ahead: seconds - answered_at,
        })
    }

    /// Closes the connection for good.
    pub(crate) fn close(&self) {
        self.closed.send_replace(true);
        if let Some(main) = self.open.lock().take() {
            // Its users see its end.
            tokio::spawn(async move { main.disconnect().await });
        }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.closed.send_replace(true);
    }
}

impl Main {
    fn is_open(&self) -> bool {
        !self.handle.is_closed() && !self.sftp.is_broken()
    }

    /// A channel for a command.
    pub(crate) async fn channel(&self) -> Result<Channel<Msg>, russh::Error> {
        self.handle.channel_open_session().await
    }

    async fn disconnect(&self) {
        disconnect(&self.handle).await;
    }
}

/// Ends a connection. One that has ended need not be ended.
pub(crate) async fn disconnect(handle: &Handle<Checker>) {
    let _ = handle.disconnect(Disconnect::ByApplication, "", "en").await;
}

/// Seconds since 1970 on this machine.
pub(crate) fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs().try_into().unwrap_or(i64::MAX))
}

/// The time of a machine that runs bash; none when it does not.
async fn probe(handle: &Handle<Checker>) -> Option<i64> {
    let mut channel = handle.channel_open_session().await.ok()?;
    channel.exec(true, PROBE).await.ok()?;
    let mut said = Vec::new();
    while let Some(message) = channel.wait().await {
        match message {
            ChannelMsg::Data { data } if said.len() < PROBE_MAX => said.extend_from_slice(&data),
            ChannelMsg::Failure => return None,
            ChannelMsg::Close => break,
            _ => {}
        }
    }
    let said = String::from_utf8_lossy(&said);
    let mut lines = said.lines().rev();
    lines.find_map(|line| line.strip_prefix("shoal ")?.trim().parse().ok())
}
