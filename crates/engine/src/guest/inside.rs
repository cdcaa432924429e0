//! What is done inside a sandbox: commands and files.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::BoxStream;
use shoal_core::BoxFuture;
use shoal_core::auth::Token;

use super::GuestError;

/// A piece of a file after the other, on its way in or out. Never held whole.
pub type GuestBytes = BoxStream<'static, io::Result<Bytes>>;

/// Where a daemon is, what opens it, and as whom it is to act.
#[derive(Debug, Clone)]
pub struct GuestDoor {
    /// The sandbox's address.
    pub address: IpAddr,
    /// What the daemon asks for.
    pub token: Option<Token>,
    /// The user of the sandbox to act as; its default user when none is given.
    pub user: Option<String>,
}

impl GuestDoor {
    /// Acts as somebody else.
    #[must_use]
    pub fn with_user(mut self, user: &str) -> Self {
        self.user = Some(user.to_owned());
        self
    }
}

/// The size of a terminal, in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TerminalSize {
    /// The columns.
    pub cols: u16,
    /// The rows.
    pub rows: u16,
}

/// What to run in a sandbox, and how.
#[derive(Debug, Clone, Default)]
pub struct GuestCommand {
    /// A path, or a name that is looked up in the sandbox.
    pub program: String,
    /// Its arguments.
    pub args: Vec<String>,
    /// Variables, over those of the sandbox.
    pub env: BTreeMap<String, String>,
    /// Where it starts; the default directory when none is given.
    pub cwd: Option<String>,
    /// With a terminal of this size instead of three streams.
    pub terminal: Option<TerminalSize>,
    /// Whether it has an input that can be written. Without, it reads from `/dev/null`.
    pub stdin: bool,
    /// After which time the daemon kills it, whether anybody listens or not; none is never.
    pub timeout: Option<Duration>,
}

impl GuestCommand {
    /// A program with its arguments.
    #[must_use]
    pub fn new(program: &str, args: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self {
            program: program.to_owned(),
            args: args.into_iter().map(Into::into).collect(),
            ..Self::default()
        }
    }
}

/// What a command printed, or how it ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GuestOutput {
    /// Bytes on standard output, or on its terminal.
    Stdout(Bytes),
    /// Bytes on standard error.
    Stderr(Bytes),
    /// It ended. Nothing follows.
    Exit(GuestExit),
}

/// How a command ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GuestExit {
    /// Its exit code; -1 when a signal ended it.
    pub code: i32,
    /// What ended it, when that was not itself: `signal: killed`.
    pub error: Option<String>,
}

/// A command that runs. Dropping this stops listening, not the command.
pub struct GuestProcess {
    /// What it prints, as it is read: a command whose output nobody reads waits. Ends behind
    /// [`GuestOutput::Exit`], or with an error.
    pub output: BoxStream<'static, Result<GuestOutput, GuestError>>,
    /// What can be done to it meanwhile.
    pub control: Arc<dyn GuestControl>,
}

impl fmt::Debug for GuestProcess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GuestProcess").finish_non_exhaustive()
    }
}

/// What can be done to a command that runs. Each fails once it has ended.
pub trait GuestControl: Send + Sync {
    /// Writes to its input or terminal. Waits until it has room for it.
    ///
    /// # Errors
    /// When it does not run, or has no input.
    fn input(&self, bytes: Bytes) -> BoxFuture<'_, Result<(), GuestError>>;

    /// Ends its input.
    ///
    /// # Errors
    /// When it does not run, or has a terminal.
    fn close_input(&self) -> BoxFuture<'_, Result<(), GuestError>>;

    /// Changes the size of its terminal.
    ///
    /// # Errors
    /// When it does not run, or has no terminal.
    fn resize(&self, size: TerminalSize) -> BoxFuture<'_, Result<(), GuestError>>;

    /// Ends it for good.
    ///
    /// # Errors
    /// When it does not run.
    fn kill(&self) -> BoxFuture<'_, Result<(), GuestError>>;
}

/// What lies at a path in a sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GuestEntry {
    /// The last part of its path.
    pub name: String,
    /// Where it is.
    pub path: String,
    /// What it is; of a link, what its target is.
    pub kind: GuestFileKind,
    /// Whether it is a link.
    pub link: bool,
    /// Its bytes.
    pub size: u64,
    /// Its permissions, as `chmod` takes them.
    pub mode: u32,
}

/// What an entry is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GuestFileKind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// Something else: a device, a socket, a link that leads nowhere.
    Other,
}

/// A file's contents, on their way out.
pub struct GuestFile {
    /// How many bytes there are, if the daemon knows.
    pub size: Option<u64>,
    /// The bytes.
    pub contents: GuestBytes,
}

impl fmt::Debug for GuestFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GuestFile")
            .field("size", &self.size)
            .finish_non_exhaustive()
    }
}
