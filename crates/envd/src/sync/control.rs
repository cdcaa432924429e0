//! Requests to the thread of a watch.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use parking_lot::Mutex;
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;

use super::watcher::WatchEnd;

/// The requests to a watch.
#[derive(Debug)]
pub(super) struct Control {
    wake: OwnedFd,
    asked: Mutex<Asked>,
}

#[derive(Debug, Default)]
struct Asked {
    flush: u64,
    ended: bool,
}

impl Control {
    /// The control of a new watch.
    ///
    /// # Errors
    /// If no file descriptor is available.
    pub(super) fn new() -> Result<Self, Errno> {
        Ok(Self {
            wake: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            asked: Mutex::default(),
        })
    }

    /// Requests a flush and returns its number; `None` if the watch has ended.
    pub(super) fn flush(&self) -> Option<u64> {
        let mut asked = self.asked.lock();
        if asked.ended {
            return None;
        }
        asked.flush += 1;
        self.wake();
        Some(asked.flush)
    }

    /// Ends the watch.
    pub(super) fn end(&self) {
        self.asked.lock().ended = true;
        self.wake();
    }

    /// Becomes readable when there is a request.
    pub(super) fn requested(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }

    fn wake(&self) {
        // The write fails only if the counter is full, and then the watch wakes anyway.
        let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
    }

    /// Clears the wake-up. Check the requests afterwards: they may have come before.
    pub(super) fn sleep(&self) {
        let mut count = [0; 8];
        let _ = rustix::io::read(&self.wake, &mut count);
    }

    /// The number of the last requested flush.
    pub(super) fn asked(&self) -> Result<u64, WatchEnd> {
        let asked = self.asked.lock();
        if asked.ended {
            return Err(WatchEnd::Closed);
        }
        Ok(asked.flush)
    }
}
