//! Ending every process of a group.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::Cgroup;
use crate::exhausted::{insist, is_exhausted};
use crate::pidfd;

/// How long processes may take to end after a signal that they cannot refuse. A process in an
/// uninterruptible wait is the kernel's to end; it is reported, not waited for longer.
const PATIENCE: Duration = Duration::from_secs(10);

/// How many ends are waited for at once. Each costs a descriptor, and a sandbox may have thousands
/// of processes.
const AWAITED: usize = 32;

impl Cgroup {
    /// Ends all processes and waits until they have ended. Blocks. Success when there are none.
    ///
    /// The group is held still first, so that none can be started behind the signal's back.
    ///
    /// # Errors
    /// When one does not end in time.
    pub fn kill(&self) -> io::Result<()> {
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

    /// Kills every process that the group has now. Returns what ends when the first of them do: of
    /// thousands, not all are waited for at once.
    ///
    /// # Errors
    /// When one cannot be killed.
    pub fn signal(&self) -> io::Result<Vec<OwnedFd>> {
        let processes = self.processes()?;
        if processes.is_empty() {
            return Ok(Vec::new());
        }
        // A group that is gone, or that cannot be held, is signalled all the same.
        let _ = self.hold(true);
        let killed = kill_each(&processes);
        // Processes that are held do not end.
        let _ = insist(|| self.hold(false));
        killed
    }
}

fn kill_each(processes: &[i32]) -> io::Result<Vec<OwnedFd>> {
    let mut handles = Vec::new();
    for pid in processes {
        let handle = match pidfd::open(*pid) {
            Ok(handle) => handle,
            Err(error) if is_exhausted(&error) => return Err(error),
            // It has ended meanwhile.
            Err(_) => continue,
        };
        pidfd::kill(&handle)?;
        if handles.len() < AWAITED {
            handles.push(handle);
        }
    }
    Ok(handles)
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
