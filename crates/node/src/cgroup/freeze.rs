//! Freezing every process of a group.

use std::io;
use std::time::{Duration, Instant};

use super::{Cgroup, Controller, Mount, read, write};
use crate::exhausted::retry_exhausted;

/// How long freezing may take; a few milliseconds are usual. A process that waits for a disk
/// freezes only when the disk answers.
const FREEZE_TIMEOUT: Duration = Duration::from_millis(250);

/// Polling interval: cgroup v1 sends no notification.
const POLL_INTERVAL: Duration = Duration::from_millis(1);

impl Cgroup {
    /// Starts to freeze the group's processes, or thaws them.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn set_frozen(&self, frozen: bool) -> io::Result<()> {
        match self.place(Controller::Freezer) {
            Mount::V1(path) => write(
                &path.join("freezer.state"),
                if frozen { "FROZEN" } else { "THAWED" },
            ),
            Mount::V2(path) => write(&path.join("cgroup.freeze"), u8::from(frozen)),
        }
    }

    /// Freezes the group's processes and waits until they are frozen. Blocks.
    ///
    /// # Errors
    /// When a process does not freeze in time; the group is thawed then.
    pub fn freeze(&self) -> io::Result<()> {
        let end = Instant::now() + FREEZE_TIMEOUT;
        self.set_frozen(true)?;
        let error = loop {
            match self.is_still() {
                Ok(true) => return Ok(()),
                Ok(false) if Instant::now() < end => std::thread::sleep(POLL_INTERVAL),
                Ok(false) => {
                    let text = "a process does not freeze";
                    break io::Error::new(io::ErrorKind::TimedOut, text);
                }
                Err(error) => break error,
            }
        };
        // Report the first error.
        let _ = retry_exhausted(|| self.set_frozen(false));
        Err(error)
    }

    fn is_still(&self) -> io::Result<bool> {
        match self.place(Controller::Freezer) {
            Mount::V1(path) => Ok(read(&path.join("freezer.state"))?.trim() == "FROZEN"),
            Mount::V2(path) => {
                let events = read(&path.join("cgroup.events"))?;
                Ok(events.lines().any(|line| line == "frozen 1"))
            }
        }
    }
}
