//! Holding every process of a group still.

use std::io;
use std::time::{Duration, Instant};

use super::{Cgroup, Controller, Place, read, write};
use crate::exhausted::insist;

/// How long processes may take to stand still; some milliseconds are usual. One that waits for a disk is
/// not still before it has got what it waits for.
const PATIENCE: Duration = Duration::from_millis(250);

/// How often is looked whether they do: the kernel tells nobody in the first version.
const EVERY: Duration = Duration::from_millis(1);

impl Cgroup {
    /// Begins to hold the group's processes still, or lets them go on.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn hold(&self, still: bool) -> io::Result<()> {
        match self.place(Controller::Freezer) {
            Place::V1(path) => write(
                &path.join("freezer.state"),
                if still { "FROZEN" } else { "THAWED" },
            ),
            Place::V2(path) => write(&path.join("cgroup.freeze"), u8::from(still)),
        }
    }

    /// Holds the group's processes still, and waits until they are. Blocks.
    ///
    /// # Errors
    /// When one is not in time: they go on then.
    pub fn hold_still(&self) -> io::Result<()> {
        let end = Instant::now() + PATIENCE;
        self.hold(true)?;
        let error = loop {
            match self.is_still() {
                Ok(true) => return Ok(()),
                Ok(false) if Instant::now() < end => std::thread::sleep(EVERY),
                Ok(false) => {
                    let text = "a process does not stand still";
                    break io::Error::new(io::ErrorKind::TimedOut, text);
                }
                Err(error) => break error,
            }
        };
        // The first error is the one that counts.
        let _ = insist(|| self.hold(false));
        Err(error)
    }

    fn is_still(&self) -> io::Result<bool> {
        match self.place(Controller::Freezer) {
            Place::V1(path) => Ok(read(&path.join("freezer.state"))?.trim() == "FROZEN"),
            Place::V2(path) => {
                let events = read(&path.join("cgroup.events"))?;
                Ok(events.lines().any(|line| line == "frozen 1"))
            }
        }
    }
}
