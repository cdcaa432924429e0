//! Processes by descriptor: a number can pass to another process, a descriptor cannot.

#![expect(
    unsafe_code,
    reason = "the calls have no safe wrapper in the libraries at hand"
)]

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// Opens a process, whoever's child it is. The descriptor becomes readable when it ends.
///
/// # Errors
/// When there is no such process.
pub fn open(pid: i32) -> io::Result<OwnedFd> {
    // SAFETY: the call takes two integers and returns a new descriptor or an error.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, libc::PIDFD_NONBLOCK) };
    let fd = i32::try_from(fd).map_err(io::Error::other)?;
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is new and nobody else's.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Ends the process. Success when it has ended already.
///
/// # Errors
/// When it may not be signalled.
pub fn kill(process: &OwnedFd) -> io::Result<()> {
    let none: *const libc::siginfo_t = std::ptr::null();
    // SAFETY: the descriptor is open, and a null `siginfo` is allowed.
    let sent = unsafe {
        libc::syscall(
            libc::SYS_pidfd_send_signal,
            process.as_raw_fd(),
            libc::SIGKILL,
            none,
            0,
        )
    };
    match io::Error::last_os_error() {
        error if sent < 0 && error.raw_os_error() != Some(libc::ESRCH) => Err(error),
        _ => Ok(()),
    }
}
