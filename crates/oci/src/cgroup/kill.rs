//! Ending every process of a group.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::Cgroup;
use crate::pidfd;

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
            let handles = self.signal()?;
            if handles.is_empty() {
                return if self.processes()?.is_empty() {
                    Ok(())
                } else {
                    Err(stuck())
                };
            }
            for handle in &handles {
                await_end(handle, end)?;
            }
        }
    }

    /// Kills every process that the group has now. Returns what ends when they do.
    ///
    /// # Errors
    /// When one cannot be killed.
    pub(crate) fn signal(&self) -> io::Result<Vec<OwnedFd>> {
        let handles: Vec<OwnedFd> = self
            .processes()?
            .into_iter()
            .filter_map(|pid| pidfd::open(pid).ok())
            .collect();
        if handles.is_empty() {
            return Ok(handles);
        }
        // A group that is gone, or that cannot be held, is signalled all the same.
        let _ = self.hold(true);
        for handle in &handles {
            pidfd::kill(handle)?;
        }
        let _ = self.hold(false);
        Ok(handles)
    }
}

fn stuck() -> io::Error {
    io::Error::new(
        io::ErrorKind::TimedOut,
        "processes of the sandbox do not end",
    )
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
