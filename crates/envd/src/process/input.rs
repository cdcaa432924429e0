//! Input of a process.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::termios::Winsize;
use tokio::sync::Mutex;

use crate::polled::Polled;

/// Why writing failed. The texts are E2B's.
#[derive(Debug, thiserror::Error)]
pub(super) enum InputError {
    /// Started without standard input, or closed.
    #[error("error writing to stdin: stdin not enabled or closed")]
    NoStdin,
    /// The process has a terminal, which takes its input.
    #[error(
        "error writing to stdin: tty assigned to process — input should be written to the pty, not the stdin"
    )]
    IsTerminal,
    /// The process has no terminal.
    #[error(
        "error writing to tty: tty not assigned to process — input should be written to the stdin, not the tty"
    )]
    NoTerminal,
    /// The process has no terminal to resize.
    #[error("error resizing tty: tty not assigned to process")]
    NoTerminalToResize,
    /// End of file on a terminal is a character.
    #[error("error closing stdin: cannot close stdin for PTY process — send Ctrl+D (0x04) instead")]
    TerminalCannotClose,
    /// The system call failed, usually because the process is gone.
    #[error("error writing to process")]
    Failed(#[source] io::Error),
}

/// Input channel of a process.
pub(super) enum Input {
    /// A pipe until closed. The lock keeps writes of several clients apart.
    Pipe(Mutex<Option<Polled>>),
    /// A terminal, shared with the output side.
    Terminal(Arc<Polled>, Mutex<()>),
}

impl Input {
    /// A pipe, or none.
    pub(super) fn pipe(stdin: Option<OwnedFd>) -> io::Result<Self> {
        let stdin = stdin.map(Polled::new).transpose()?;
        Ok(Self::Pipe(Mutex::new(stdin)))
    }

    /// Writes all bytes to standard input. Waits while the pipe is full.
    pub(super) async fn write_stdin(&self, bytes: &[u8]) -> Result<(), InputError> {
        let Self::Pipe(pipe) = self else {
            return Err(InputError::IsTerminal);
        };
        let pipe = pipe.lock().await;
        let pipe = pipe.as_ref().ok_or(InputError::NoStdin)?;
        write_all(pipe, bytes).await
    }

    /// Writes all bytes to the terminal. Waits while it is full.
    pub(super) async fn write_terminal(&self, bytes: &[u8]) -> Result<(), InputError> {
        let Self::Terminal(terminal, turn) = self else {
            return Err(InputError::NoTerminal);
        };
        let _turn = turn.lock().await;
        write_all(terminal, bytes).await
    }

    /// Closes standard input. Idempotent.
    pub(super) async fn close(&self) -> Result<(), InputError> {
        match self {
            Self::Pipe(pipe) => {
                pipe.lock().await.take();
                Ok(())
            }
            Self::Terminal(..) => Err(InputError::TerminalCannotClose),
        }
    }

    /// Resizes the terminal; the kernel signals its processes.
    pub(super) fn resize(&self, size: Winsize) -> Result<(), InputError> {
        let Self::Terminal(terminal, _) = self else {
            return Err(InputError::NoTerminalToResize);
        };
        let result = rustix::termios::tcsetwinsize(terminal.fd(), size);
        result.map_err(|error| InputError::Failed(error.into()))
    }
}

async fn write_all(fd: &Polled, mut bytes: &[u8]) -> Result<(), InputError> {
    while !bytes.is_empty() {
        let mut room = fd.writable().await.map_err(InputError::Failed)?;
        let written = room.try_io(|fd| Ok(rustix::io::write(fd, bytes)?));
        match written {
            Ok(Ok(written)) => bytes = bytes.get(written..).unwrap_or_default(),
            Ok(Err(error)) if error.kind() == io::ErrorKind::Interrupted => {}
            Ok(Err(error)) => return Err(InputError::Failed(error)),
            Err(_no_room_after_all) => {}
        }
    }
    Ok(())
}
