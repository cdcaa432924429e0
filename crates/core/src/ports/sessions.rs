//! Sessions, their machines and their terminal windows.

pub mod events;
pub mod files;
pub mod memories;
mod none;
pub mod preview;
pub mod secrets;

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use futures_core::stream::BoxStream;

use self::events::SessionSeenStream;
use self::files::FileError;
pub use self::none::NoSessions;
use crate::BoxFuture;
use crate::auth::Principal;
use crate::clock::Timestamp;
use crate::ports::create::CreateError;
use crate::ports::inside::{InsideError, TerminalSize};
use crate::ports::sandboxes::SandboxError;
use crate::ports::{NoEntropy, NotServed};
use crate::session::machine::{MachineError, MachineParameters};
use crate::session::secret::SecretValue;
use crate::session::{SessionId, SessionRecord, WindowName};
use crate::store::StoreError;

use self::memories::MemoryError;
use self::secrets::SecretError;

/// Output of a command in a window, or its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExecEvent {
    /// A notice about a machine that has just started. Comes first.
    Notice(String),
    /// Bytes on its terminal.
    Output(Bytes),
    /// It has ended. Nothing follows.
    Ended(ExecEnd),
}

/// How a command in a window ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExecEnd {
    /// With this exit code.
    Exited(i32),
    /// A later command, or a request, has cancelled it.
    Cancelled,
    /// Its window or its machine has ended, for this reason.
    Lost(String),
}

/// The events of a command. Dropping it stops listening, not the command.
pub type ExecStream = BoxStream<'static, ExecEvent>;

/// An attached terminal.
pub struct Attached {
    /// The offset of the first byte of `output`, counted from the opening of the window.
    pub offset: u64,
    /// The terminal's output from there on, as a live stream. It ends with the window.
    pub output: BoxStream<'static, Bytes>,
    /// Controls the terminal.
    pub control: Arc<dyn WindowControl>,
}

/// Controls an attached terminal.
pub trait WindowControl: Send + Sync {
    /// Types into it.
    ///
    /// # Errors
    /// When the window has closed.
    fn input(&self, bytes: Bytes) -> BoxFuture<'_, Result<(), SessionError>>;

    /// Changes its size.
    ///
    /// # Errors
    /// When the window has closed.
    fn resize(&self, size: TerminalSize) -> BoxFuture<'_, Result<(), SessionError>>;
}

/// A session to make.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NewSession {
    /// The user's labels.
    pub metadata: BTreeMap<String, String>,
    /// Its machine.
    pub machine: MachineParameters,
    /// The private key of its external machine.
    pub ssh_private_key: Option<SecretValue>,
    /// Whether its machine is kept for a day instead of an hour.
    pub persist: bool,
    /// Whether requests to its preview start its machine.
    pub wake_on_request: bool,
}

/// Changes of a session; absent values stay.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SessionChange {
    /// The user's labels.
    pub metadata: Option<BTreeMap<String, String>>,
    /// Whether its machine is kept for a day instead of an hour.
    pub persist: Option<bool>,
    /// Whether requests to its preview start its machine.
    pub wake_on_request: Option<bool>,
}

/// A session, and what its machine does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionView {
    /// Its record.
    pub record: SessionRecord,
    /// The open windows.
    pub windows: Vec<WindowView>,
    /// When its machine ends unless it is used; none while a command runs, and without a machine.
    pub ends_at: Option<Timestamp>,
    /// The host name of its preview.
    pub public_hostname: String,
}

/// An open window.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WindowView {
    /// Its name.
    pub name: WindowName,
    /// The command that runs in it.
    pub running: Option<String>,
    /// When it was last used.
    pub active: Timestamp,
}

/// The question before a reset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResetQuestion {
    /// The token that confirms the reset.
    pub token: String,
    /// Until when it does.
    pub until: Timestamp,
}

/// The result of a request for a reset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reset {
    /// Nothing yet: it has to be confirmed.
    Asked(ResetQuestion),
    /// The machine has ended; whether there was one.
    Done(bool),
}

/// Why an operation on a session was not done.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// No such session exists, or it belongs to another team.
    #[error("session {0} was not found")]
    NotFound(String),
    /// No such window is open.
    #[error("window {0} is not open")]
    NoWindow(WindowName),
    /// The session has its maximum of windows.
    #[error("the session has {0} windows open: close one, or use one of them")]
    TooManyWindows(usize),
    /// The team has its maximum of sessions.
    #[error("your team has {0} sessions: delete some")]
    TooMany(usize),
    /// The labels are too long together.
    #[error("the labels have more than {0} bytes: keep large values in files")]
    Metadata(usize),
    /// The command is empty, too long, or contains a NUL.
    #[error("give a command line of at most 1 MiB, without NUL")]
    InvalidCommand,
    /// The token does not confirm a reset.
    #[error("the token does not confirm a reset: ask again without one")]
    NotConfirmed,
    /// The session is being deleted.
    #[error("session {0} is being deleted")]
    Ending(SessionId),
    /// The operation on a secret was not done.
    #[error(transparent)]
    Secret(#[from] SecretError),
    /// The operation on a memory was not done.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// The parameters of its machine do not go together.
    #[error(transparent)]
    Machine(#[from] MachineError),
    /// This installation has no such machine.
    #[error("`{parameter}` is not available here: {reason}")]
    NoSuchMachine {
        /// The parameter that asks for it.
        parameter: &'static str,
        /// Why there is none.
        reason: String,
    },
    /// Docker in the machine does not do its work.
    #[error("Docker in the machine of the session: {0}")]
    Docker(String),
    /// No container has the image in which commands must run.
    #[error("`docker_image`: {0}")]
    Image(String),
    /// Its machine cannot be made.
    #[error(transparent)]
    Create(#[from] CreateError),
    /// The operation on its machine failed.
    #[error(transparent)]
    Sandbox(#[from] SandboxError),
    /// The daemon inside the machine fails.
    #[error(transparent)]
    Inside(#[from] InsideError),
    /// The operation on its files failed.
    #[error(transparent)]
    File(#[from] FileError),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The system has no randomness.
    #[error(transparent)]
    Entropy(#[from] NoEntropy),
    /// The backend does not serve this.
    #[error(transparent)]
    NotServed(#[from] NotServed),
}

/// The sessions of all teams. Those of other teams are not found.
pub trait Sessions: Send + Sync {
    /// Makes a session. It has no machine yet.
    ///
    /// # Errors
    /// See [`SessionError`].
    fn create<'a>(
        &'a self,
        principal: &'a Principal,
        new: NewSession,
    ) -> BoxFuture<'a, Result<SessionView, SessionError>>;

    /// The sessions of the team, the newest first.
    ///
    /// # Errors
    /// See [`SessionError`].
    fn list<'a>(
        &'a self,
        principal: &'a Principal,
    ) -> BoxFuture<'a, Result<Vec<SessionView>, SessionError>>;

    /// One session.
    ///
    /// # Errors
    /// See [`SessionError`].
    fn get<'a>(
        &'a self,
        principal: &'a Principal,
        id: &'a str,
    ) -> BoxFuture<'a, Result<SessionView, SessionError>>;

    /// Changes a session.
    ///
    /// # Errors
    /// See [`SessionError`].
    fn change<'a>(
        &'a self,
        principal: &'a Principal,
        id: &'a str,
        change: SessionChange,
    ) -> BoxFuture<'a, Result<SessionView, SessionError>>;

    /// Deletes a session, its machine and everything that is kept of it.
    ///
    /// # Errors
    /// See [`SessionError`]; then it can be deleted again.
    fn delete<'a>(
        &'a self,
        principal: &'a Principal,
        id: &'a str,
    ) -> BoxFuture<'a, Result<(), SessionError>>;

    /// Runs a command in a window, in place of the one that runs there. Starts the machine and opens the window when there
    /// is none. The command continues without a listener.
    ///
    /// # Errors
    /// See [`SessionError`].
    fn exec<'a>(
        &'a self,
        principal: &'a Principal,
        id: &'a str,
        window: &'a WindowName,
        command: &'a str,
    ) -> BoxFuture<'a, Result<ExecStream, SessionError>>;

    /// Cancels the command of a window. Returns once the command is being ended.
    ///
    /// # Errors
    /// See [`SessionError`].
    fn cancel<'a>(
        &'a self,
        principal: &'a Principal,
        id: &'a str,
        window: &'a WindowName,
    ) -> BoxFuture<'a, Result<(), SessionError>>;

    /// Attaches a terminal to a window, from this offset of its output on. Starts the machine and opens the window when
    /// there is none.
    ///
    /// # Errors
    /// See [`SessionError`].
    fn attach<'a>(
        &'a self,
        principal: &'a Principal,
        id: &'a str,
        window: &'a WindowName,
        since: u64,
    ) -> BoxFuture<'a, Result<Attached, SessionError>>;

    /// Ends the machine at once, when `token` confirms it. Without a token it returns the question.
    ///
    /// # Errors
    /// See [`SessionError`].
    fn reset<'a>(
        &'a self,
        principal: &'a Principal,
        id: &'a str,
        token: Option<&'a str>,
    ) -> BoxFuture<'a, Result<Reset, SessionError>>;

    /// The events of a session from now on: the subscription exists when this returns.
    ///
    /// # Errors
    /// See [`SessionError`].
    fn follow(&self, principal: &Principal, id: &str) -> Result<SessionSeenStream, SessionError>;
}
