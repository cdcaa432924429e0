//! Ending every process of a group.

use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::{Cgroup, Controller, Place, write};

/// How long processes may take to end after a signal that they cannot refuse. A process in an
/// uninterruptible wait is the kernel's to end; it is reported, not waited for longer.
const PATIENCE: Duration = Duration::from_secs(10);

impl Cgroup {
    /// Ends all processes and waits until they have ended. Blocks. Success when there are none.
    ///
    /// The group is held still first, so that none can be started behind the signal's back.
    ///
    /// # Errors
    /// When one does not end in time.
    pub(crate) fn kill(&self) -> io::Result<()> {
        let end = Instant::now() + PATIENCE;
        loop {
            let handles: Vec<OwnedFd> =
                self.processes()?.into_iter().filter_map(|pid| open(pid).ok()).collect();
            if handles.is_empty() {
                return if self.processes()?.is_empty() { Ok(()) } else { Err(stuck()) };
            }
            // A group that is gone, or that cannot be held, is signalled all the same.
            let _ = self.hold(true);
            for handle in &handles {
                signal(handle)?;
            }
            let _ = self.hold(false);
            for handle in &handles {
                await_end(handle, end)?;
            }
        }
    }

    /// Holds the group's processes still, or lets them go on.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub(crate) fn hold(&self, still: bool) -> io::Result<()> {
        match self.place(Controller::Freezer) {
            Place::V1(path) => {
                write(&path.join("freezer.state"), if still { "FROZEN" } else { "THAWED" })
            }
            Place::V2(path) => write(&path.join("cgroup.freeze"), u8::from(still)),
        }
    }
}

fn stuck() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "processes of the sandbox do not end")
}

#[expect(unsafe_code, reason = "pidfd calls have no safe wrapper in the libraries at hand")]
fn open(pid: i32) -> io::Result<OwnedFd> {
    // SAFETY: the call takes two integers and returns a new descriptor or an error.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    let fd = i32::try_from(fd).map_err(io::Error::other)?;
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is new and nobody else's.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

#[expect(unsafe_code, reason = "pidfd calls have no safe wrapper in the libraries at hand")]
fn signal(handle: &OwnedFd) -> io::Result<()> {
    let none: *const libc::siginfo_t = std::ptr::null();
    // SAFETY: the descriptor is open, and a null `siginfo` is allowed.
    let sent = unsafe {
        libc::syscall(libc::SYS_pidfd_send_signal, handle.as_raw_fd(), libc::SIGKILL, none, 0)
    };
    match io::Error::last_os_error() {
        error if sent < 0 && error.raw_os_error() != Some(libc::ESRCH) => Err(error),
        _ => Ok(()),
    }
}

fn await_end(handle: &OwnedFd, end: Instant) -> io::Result<()> {
    loop {
        let left = end.saturating_duration_since(Instant::now());
        let millis = u16::try_from(left.as_millis()).unwrap_or(u16::MAX);
        let mut waited = [PollFd::new(handle.as_fd(), PollFlags::POLLIN)];
        match poll(&mut waited, PollTimeout::from(millis)) {
            Ok(0) if Instant::now() >= end => return Err(stuck()),
            Ok(0) | Err(nix::errno::Errno::EINTR) => {}
            Ok(_) => return Ok(()),
            Err(errno) => return Err(errno.into()),
        }
    }
}
