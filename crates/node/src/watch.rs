//! Notices the end of a process that is not a child of ours.

use std::io;
use std::os::fd::OwnedFd;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::pidfd;

/// A process that is being watched.
#[derive(Debug)]
pub struct Watched(AsyncFd<OwnedFd>);

impl Watched {
    /// Begins to watch; for a caller on the runtime.
    ///
    /// # Errors
    /// When there is no such process.
    #[expect(
        unsafe_code,
        reason = "registering a descriptor is a promise not to close it"
    )]
    pub fn new(pid: i32) -> io::Result<Self> {
        let process = pidfd::open(pid)?;
        // SAFETY: an `OwnedFd` stays open and the same until it is dropped.
        let registered = unsafe { AsyncFd::register_with_interest(process, Interest::READABLE) };
        registered.map(Self).map_err(Into::into)
    }

    /// Ends when the process has ended.
    pub async fn ended(&self) {
        // An error would mean that the descriptor can no longer be waited for; the process is
        // then taken for ended, and whoever is told looks again.
        let _ = self.0.readable().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_end_of_a_process_is_noticed() {
        let mut child = std::process::Command::new("sleep")
            .arg("1000")
            .spawn()
            .unwrap();
        let watched = Watched::new(child.id().cast_signed()).unwrap();
        child.kill().unwrap();
        watched.ended().await;
        child.wait().unwrap();
        assert!(Watched::new(child.id().cast_signed()).is_err());
    }
}
