//! Processes by descriptor: an id can be reused, a descriptor cannot.

use std::io;
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// Opens a process, child or not. The descriptor becomes readable when the process ends.
///
/// # Errors
/// When the process does not exist.
pub fn open(pid: i32) -> io::Result<OwnedFd> {
    let pid = Pid::from_raw(pid).ok_or(Errno::SRCH)?;
    Ok(pidfd_open(pid, PidfdFlags::NONBLOCK)?)
}

/// Kills the process. Succeeds if it has already ended.
///
/// # Errors
/// When it may not be signalled.
pub fn kill(process: &OwnedFd) -> io::Result<()> {
    match pidfd_send_signal(process, Signal::KILL) {
        Err(Errno::SRCH) | Ok(()) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}
