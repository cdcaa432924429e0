//! Killing every process of a group.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::Cgroup;
use crate::exhausted::{is_exhausted, retry_exhausted};
use crate::pidfd;

/// How long processes may take to end after SIGKILL. A process in uninterruptible sleep is
/// reported, not waited for longer.
const KILL_TIMEOUT: Duration = Duration::from_secs(10);

/// How many processes are awaited together. Each costs a descriptor, and a sandbox may have
/// thousands of processes.
const AWAITED: usize = 32;

impl Cgroup {
    /// Kills all processes and waits for their end. Blocks. Idempotent.
    ///
    /// The group is frozen first, so that no process can fork past the signal.
    ///
    /// # Errors
    /// When a process does not end in time.
    pub fn kill(&self) -> io::Result<()> {
        let end = Instant::now() + KILL_TIMEOUT;
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

    /// Kills every current process of the group. Returns descriptors that become readable when the
    /// first [`AWAITED`] processes end: awaiting thousands would cost as many descriptors.
    ///
    /// # Errors
    /// When a process cannot be killed.
    pub fn signal(&self) -> io::Result<Vec<OwnedFd>> {
        let processes = self.processes()?;
        if processes.is_empty() {
            return Ok(Vec::new());
        }
        // A group that is gone, or that does not freeze, is signalled anyway.
        let _ = self.set_frozen(true);
        let killed = kill_each(&processes);
        // Frozen processes do not end.
        let _ = retry_exhausted(|| self.set_frozen(false));
        killed
    }
}

fn kill_each(processes: &[i32]) -> io::Result<Vec<OwnedFd>> {
    let mut handles = Vec::new();
    for pid in processes {
        let handle = match pidfd::open(*pid) {
            Ok(handle) => handle,
            Err(error) if is_exhausted(&error) => return Err(error),
            // It has already ended.
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
        "processes of the sandbox do not exit",
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
