//! Sessions: the terminal windows of one.

use std::sync::Arc;

use bytes::Bytes;
use futures_core::stream::BoxStream;

use crate::BoxFuture;
use crate::ports::NoEntropy;
use crate::ports::inside::{InsideError, TerminalSize};
use crate::session::WindowName;

/// Output of a command in a window, or its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExecEvent {
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
    /// What is on the terminal from there on, and what comes. It ends with the window.
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

/// Why an operation on a session was not done.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// No such window is open.
    #[error("window {0} is not open")]
    NoWindow(WindowName),
    /// The daemon inside the machine fails.
    #[error(transparent)]
    Inside(#[from] InsideError),
    /// The system has no randomness.
    #[error(transparent)]
    Entropy(#[from] NoEntropy),
}
