//! Commands, files and code inside a running sandbox.

mod code;
pub mod home;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use std::{fmt, io};

use bytes::Bytes;
use futures_core::stream::BoxStream;

use crate::BoxFuture;
use crate::auth::{SandboxPermit, Token};
use crate::ports::external::ExternalError;
use crate::ports::sandboxes::SandboxError;
use crate::sandbox::SandboxRecord;

pub use self::code::{Code, CodeError, CodeEvent, CodeResult, CodeStream};
use self::home::HomeFiles;

/// The contents of a file as a stream, on its way in or out. Never held in memory as a whole.
pub type ByteStream = BoxStream<'static, io::Result<Bytes>>;

/// The size of a terminal, in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TerminalSize {
    /// The columns.
    pub cols: u16,
    /// The rows.
    pub rows: u16,
}

/// A command to run in a sandbox.
#[derive(Debug, Clone, Default)]
pub struct SandboxCommand {
    /// A path, or a name that the sandbox looks up.
    pub program: String,
    /// Its arguments.
    pub args: Vec<String>,
    /// Environment variables, over those of the sandbox.
    pub env: BTreeMap<String, String>,
    /// The working directory; the sandbox's default when absent.
    pub cwd: Option<String>,
    /// A tag by which the daemon finds the process.
    pub tag: Option<String>,
    /// Runs it in a terminal of this size instead of three streams.
    pub terminal: Option<TerminalSize>,
    /// Whether its input can be written. Without, it reads from `/dev/null`.
    pub stdin: bool,
    /// Kills it after this time, whether a client listens or not; none is never.
    pub timeout: Option<Duration>,
}

impl SandboxCommand {
    /// A program with its arguments.
    #[must_use]
    pub fn new(program: &str, args: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self {
            program: program.to_owned(),
            args: args.into_iter().map(Into::into).collect(),
            ..Self::default()
        }
    }

    /// A command line in a login shell, as E2B's `commands.run` runs it.
    #[must_use]
    pub fn shell(line: &str) -> Self {
        Self::new("/bin/bash", ["-l", "-c", line])
    }

    /// Sets an environment variable.
    #[must_use]
    pub fn with_env(mut self, name: &str, value: &str) -> Self {
        self.env.insert(name.to_owned(), value.to_owned());
        self
    }

    /// Sets the working directory.
    #[must_use]
    pub fn with_cwd(mut self, cwd: &str) -> Self {
        self.cwd = Some(cwd.to_owned());
        self
    }

    /// Sets the tag.
    #[must_use]
    pub fn with_tag(mut self, tag: &str) -> Self {
        self.tag = Some(tag.to_owned());
        self
    }

    /// Opens its standard input for writing.
    #[must_use]
    pub fn with_stdin(mut self) -> Self {
        self.stdin = true;
        self
    }

    /// Attaches a terminal of this size instead of three pipes.
    #[must_use]
    pub fn with_terminal(mut self, cols: u16, rows: u16) -> Self {
        self.terminal = Some(TerminalSize { cols, rows });
        self
    }

    /// Kills it after this time.
    #[must_use]
    pub fn with_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }
}

/// Output of a command, or its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CommandOutput {
    /// Bytes on standard output, or on its terminal.
    Stdout(Bytes),
    /// Bytes on standard error.
    Stderr(Bytes),
    /// The command ended. Nothing follows.
    Exit(CommandExit),
}

/// How a command ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandExit {
    /// Its exit code; -1 when a signal ended it.
    pub code: i32,
    /// The reason of its end, if it did not exit by itself: `signal: killed`.
    pub error: Option<String>,
}

/// A running command. Dropping this stops listening, not the command.
pub struct RunningCommand {
    /// Its output. Backpressure: a command blocks while its output is not read. The stream ends after
    /// [`CommandOutput::Exit`], or with an error.
    pub output: BoxStream<'static, Result<CommandOutput, InsideError>>,
    /// Controls the command while it runs.
    pub control: Arc<dyn CommandControl>,
}

impl fmt::Debug for RunningCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunningCommand").finish_non_exhaustive()
    }
}

/// Controls a running command. Each method fails once the command has ended.
pub trait CommandControl: Send + Sync {
    /// Writes to its input or terminal. Waits until there is room.
    ///
    /// # Errors
    /// When the command has ended, or has no input.
    fn input(&self, bytes: Bytes) -> BoxFuture<'_, Result<(), InsideError>>;

    /// Closes its input.
    ///
    /// # Errors
    /// When the command has ended, or has a terminal.
    fn close_input(&self) -> BoxFuture<'_, Result<(), InsideError>>;

    /// Changes the size of its terminal.
    ///
    /// # Errors
    /// When the command has ended, or has no terminal.
    fn resize(&self, size: TerminalSize) -> BoxFuture<'_, Result<(), InsideError>>;

    /// Kills it.
    ///
    /// # Errors
    /// When the command has ended.
    fn kill(&self) -> BoxFuture<'_, Result<(), InsideError>>;
}

/// An entry of a directory in a sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirEntry {
    /// The last part of its path.
    pub name: String,
    /// Its path.
    pub path: String,
    /// Its type; of a link, the type of its target.
    pub kind: FileKind,
    /// Whether it is a symbolic link.
    pub link: bool,
    /// Its size, in bytes.
    pub size: u64,
    /// Its permissions, as `chmod` takes them.
    pub mode: u32,
}

/// The type of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileKind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// Anything else: a device, a socket, a dangling link.
    Other,
}

/// A file that is being read.
pub struct FileContents {
    /// Its size in bytes, if it is known.
    pub size: Option<u64>,
    /// Its bytes.
    pub contents: ByteStream,
}

impl fmt::Debug for FileContents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileContents")
            .field("size", &self.size)
            .finish_non_exhaustive()
    }
}

/// Why an operation inside a sandbox failed.
#[derive(Debug, thiserror::Error)]
pub enum InsideError {
    /// The daemon does not answer.
    #[error("the daemon in the sandbox does not answer: {0}")]
    Unreachable(String),
    /// The daemon answers and refuses.
    #[error("the daemon in the sandbox refuses: {0}")]
    Refused(String),
    /// The file or process does not exist in the sandbox.
    #[error("{0}")]
    NotFound(String),
    /// The operation does not fit its object: a directory in the place of a file.
    #[error("{0}")]
    Invalid(String),
    /// The user does not exist in the sandbox.
    #[error("{0}")]
    UnknownUser(String),
    /// The user in the sandbox lacks the permission.
    #[error("{0}")]
    Denied(String),
    /// The sandbox's disk is full.
    #[error("{0}")]
    NoSpace(String),
    /// A limit of the daemon is reached: processes, entries of a list, listeners.
    #[error("{0}")]
    TooMuch(String),
    /// The timeout has passed.
    #[error("the time that was given is over")]
    TimedOut,
    /// It is an external machine, which cannot be used.
    #[error(transparent)]
    External(#[from] ExternalError),
}

/// Runs a line in a login shell: bash if it is on the search path, else `sh`.
const ANY_LOGIN_SHELL: &str =
    r#"if command -v bash >/dev/null 2>&1; then exec bash -lc -- "$1"; fi; exec sh -lc -- "$1""#;

/// Starts a command line in a login shell: bash, or `sh` in a sandbox without bash. `command` has
/// everything but the program and its arguments.
///
/// # Errors
/// Those of [`SandboxClient::run`].
pub async fn run_line(
    client: &dyn SandboxClient,
    line: &str,
    command: SandboxCommand,
) -> Result<RunningCommand, InsideError> {
    let in_shell = |path: &str, args: &[&str]| SandboxCommand {
        program: path.to_owned(),
        args: args.iter().map(|&argument| argument.to_owned()).collect(),
        ..command.clone()
    };
    let bash = in_shell("/bin/bash", &["-lc", "--", line]);
    let started = client.run(bash).await;
    // Usually bash is at this path, which saves the start of a second shell.
    if !matches!(started, Err(InsideError::Invalid(_))) {
        return started;
    }
    let any = in_shell("/bin/sh", &["-c", ANY_LOGIN_SHELL, "sh", line]);
    client.run(any).await
}

/// The way into running sandboxes.
pub trait SandboxAccess: Send + Sync {
    /// Opens a client of a sandbox, which acts as `user`, or as the sandbox's default user. Wakes a
    /// paused sandbox that traffic may wake.
    ///
    /// # Errors
    /// [`SandboxError::Paused`] when it stays paused, [`SandboxError::Busy`] while its state changes,
    /// [`SandboxError::NotFound`] when it has ended.
    fn open<'a>(
        &'a self,
        permit: &'a SandboxPermit,
        user: Option<&'a str>,
    ) -> BoxFuture<'a, Result<Arc<dyn SandboxClient>, SandboxError>>;

    /// The token that clients of the daemon inside present; none when the sandbox is not secured.
    fn envd_access_token(&self, record: &SandboxRecord) -> Option<Token>;

    /// The token that the gateway requires; none when the sandbox is public.
    fn traffic_access_token(&self, record: &SandboxRecord) -> Option<Token>;
}

/// A client of one run of a sandbox. Calls under way fail when the run ends.
pub trait SandboxClient: Send + Sync {
    /// Runs a command and listens to it.
    ///
    /// # Errors
    /// When it cannot be started, or the daemon does not answer.
    fn run(&self, command: SandboxCommand) -> BoxFuture<'_, Result<RunningCommand, InsideError>>;

    /// Writes a file and makes its parents. Takes as long as `contents` do.
    ///
    /// # Errors
    /// When the daemon refuses it or does not answer, or when `contents` fail: then a part of the file
    /// may remain.
    fn write_file(
        &self,
        path: String,
        contents: ByteStream,
    ) -> BoxFuture<'_, Result<(), InsideError>>;

    /// Reads a file.
    ///
    /// # Errors
    /// When it is missing or no file, or the daemon does not answer.
    fn read_file(&self, path: String) -> BoxFuture<'_, Result<FileContents, InsideError>>;

    /// Lists a directory, one level deep.
    ///
    /// # Errors
    /// When it is missing or no directory, or the daemon does not answer.
    fn list_dir(&self, path: String) -> BoxFuture<'_, Result<Vec<DirEntry>, InsideError>>;

    /// Describes a file or a directory.
    ///
    /// # Errors
    /// When it is missing, or the daemon does not answer.
    fn stat(&self, path: String) -> BoxFuture<'_, Result<DirEntry, InsideError>>;

    /// Removes a file, or a directory with its contents. Succeeds when nothing is there.
    ///
    /// # Errors
    /// When it cannot be removed, or the daemon does not answer.
    fn remove(&self, path: String) -> BoxFuture<'_, Result<(), InsideError>>;

    /// Runs code in the sandbox's interpreter. Returns once the execution has started, behind others in
    /// the same context.
    ///
    /// # Errors
    /// When the sandbox has no interpreter, or the interpreter refuses the code or does not answer.
    fn run_code(&self, code: Code) -> BoxFuture<'_, Result<CodeStream, InsideError>>;

    /// The files of a session below a directory of the user: its home, if the path is empty.
    fn home(&self, directory: &str) -> Arc<dyn HomeFiles>;
}
