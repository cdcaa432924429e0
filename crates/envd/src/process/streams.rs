//! Pipes and terminals between the daemon and a process.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{Gid, Mode, OFlags, Uid};
use rustix::io::FdFlags;
use rustix::pipe::PipeFlags;
use rustix::pty::OpenptFlags;
use rustix::termios::Winsize;

use crate::user::User;

/// Largest terminal dimension, limited by `winsize`.
const MAX_SIZE: u32 = u16::MAX as u32;

/// Permissions of a terminal, as for `tty`: read and write for the owner, write for the group.
const TERMINAL_MODE: u32 = 0o620;

/// The daemon's ends.
pub(super) enum Ours {
    /// Three pipes.
    Pipes {
        /// Write end of standard input, if any.
        stdin: Option<OwnedFd>,
        /// Read end of standard output.
        stdout: OwnedFd,
        /// Read end of standard error.
        stderr: OwnedFd,
    },
    /// A terminal.
    Terminal(OwnedFd),
}

/// The process's ends.
pub(super) enum Theirs {
    /// Standard input, output and error.
    Pipes([OwnedFd; 3]),
    /// A terminal for all three.
    Terminal(OwnedFd),
}

impl Theirs {
    /// Descriptors for standard input, output and error.
    pub(super) fn stdio(&self) -> [BorrowedFd<'_>; 3] {
        match self {
            Self::Pipes([stdin, stdout, stderr]) => [stdin.as_fd(), stdout.as_fd(), stderr.as_fd()],
            Self::Terminal(terminal) => [terminal.as_fd(); 3],
        }
    }

    /// Whether this is a terminal.
    pub(super) fn is_terminal(&self) -> bool {
        matches!(self, Self::Terminal(_))
    }
}

/// Creates three pipes.
pub(super) fn pipes(with_stdin: bool) -> io::Result<(Ours, Theirs)> {
    let (stdout, their_stdout) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
    let (stderr, their_stderr) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
    let (stdin, their_stdin) = if with_stdin {
        let (theirs, ours) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
        do_not_wait(&ours)?;
        (Some(ours), theirs)
    } else {
        let null = rustix::fs::open("/dev/null", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
        (None, null)
    };
    do_not_wait(&stdout)?;
    do_not_wait(&stderr)?;
    Ok((
        Ours::Pipes {
            stdin,
            stdout,
            stderr,
        },
        Theirs::Pipes([their_stdin, their_stdout, their_stderr]),
    ))
}

/// Creates a terminal owned by a user.
pub(super) fn terminal(size: Winsize, user: &User) -> io::Result<(Ours, Theirs)> {
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let ours = rustix::pty::openpt(flags)?;
    rustix::io::fcntl_setfd(&ours, FdFlags::CLOEXEC)?;
    rustix::pty::grantpt(&ours)?;
    rustix::pty::unlockpt(&ours)?;
    let name = rustix::pty::ptsname(&ours, Vec::new())?;
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
    let theirs = rustix::fs::open(name, flags, Mode::empty())?;
    rustix::termios::tcsetwinsize(&ours, size)?;
    // Lets the user open the terminal by name. Without permission to do so it is still open as
    // stdio.
    let _ = rustix::fs::fchown(
        &theirs,
        Some(Uid::from_raw(user.uid)),
        Some(Gid::from_raw(user.gid)),
    );
    let _ = rustix::fs::fchmod(&theirs, Mode::from_raw_mode(TERMINAL_MODE));
    do_not_wait(&ours)?;
    Ok((Ours::Terminal(ours), Theirs::Terminal(theirs)))
}

/// A terminal size, clamped to the supported range.
pub(super) fn size(cols: u32, rows: u32) -> Winsize {
    let fit = |value: u32| u16::try_from(value.min(MAX_SIZE)).unwrap_or(u16::MAX);
    Winsize {
        ws_row: fit(rows),
        ws_col: fit(cols),
        ws_xpixel: 0,
        ws_ypixel: 0,
    }
}

fn do_not_wait(fd: &OwnedFd) -> io::Result<()> {
    let flags = rustix::fs::fcntl_getfl(fd)?;
    rustix::fs::fcntl_setfl(fd, flags | OFlags::NONBLOCK)?;
    Ok(())
}
