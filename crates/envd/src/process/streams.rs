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
pub(super) enum DaemonEnds {
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
pub(super) enum ProcessEnds {
    /// Standard input, output and error.
    Pipes([OwnedFd; 3]),
    /// A terminal for all three.
    Terminal(OwnedFd),
}

impl ProcessEnds {
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
pub(super) fn pipes(with_stdin: bool) -> io::Result<(DaemonEnds, ProcessEnds)> {
    let (stdout, their_stdout) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
    let (stderr, their_stderr) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
    let (stdin, their_stdin) = if with_stdin {
        let (process_ends, daemon_ends) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
        do_not_wait(&daemon_ends)?;
        (Some(daemon_ends), process_ends)
    } else {
        let null = rustix::fs::open("/dev/null", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
        (None, null)
    };
    do_not_wait(&stdout)?;
    do_not_wait(&stderr)?;
    Ok((
        DaemonEnds::Pipes {
            stdin,
            stdout,
            stderr,
        },
        ProcessEnds::Pipes([their_stdin, their_stdout, their_stderr]),
    ))
}

/// Creates a terminal owned by a user.
pub(super) fn terminal(size: Winsize, user: &User) -> io::Result<(DaemonEnds, ProcessEnds)> {
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let daemon_ends = rustix::pty::openpt(flags)?;
    rustix::io::fcntl_setfd(&daemon_ends, FdFlags::CLOEXEC)?;
    rustix::pty::grantpt(&daemon_ends)?;
    rustix::pty::unlockpt(&daemon_ends)?;
    let name = rustix::pty::ptsname(&daemon_ends, Vec::new())?;
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
    let process_ends = rustix::fs::open(name, flags, Mode::empty())?;
    rustix::termios::tcsetwinsize(&daemon_ends, size)?;
    // Lets the user open the terminal by name. Without permission to do so it is still open as
    // stdio.
    let _ = rustix::fs::fchown(
        &process_ends,
        Some(Uid::from_raw(user.uid)),
        Some(Gid::from_raw(user.gid)),
    );
    let _ = rustix::fs::fchmod(&process_ends, Mode::from_raw_mode(TERMINAL_MODE));
    do_not_wait(&daemon_ends)?;
    Ok((
        DaemonEnds::Terminal(daemon_ends),
        ProcessEnds::Terminal(process_ends),
    ))
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
