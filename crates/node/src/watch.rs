//! Detects the end of a process that is not our child.

use std::io;
use std::os::fd::OwnedFd;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::pidfd;

/// A watched process.
#[derive(Debug)]
pub struct Watched(AsyncFd<OwnedFd>);

impl Watched {
    /// Starts to watch. Must be called on the runtime.
    ///
    /// # Errors
    /// When the process does not exist.
    #[expect(
        unsafe_code,
        reason = "registering a descriptor is a promise not to close it"
    )]
    pub fn new(pid: i32) -> io::Result<Self> {
        let process = pidfd::open(pid)?;
        // SAFETY: an `OwnedFd` stays open and unchanged until it is dropped.
        let registered = unsafe { AsyncFd::register_with_interest(process, Interest::READABLE) };
        registered.map(Self).map_err(Into::into)
    }

    /// Resolves when the process has ended.
    pub async fn ended(&self) {
        // An error means that the descriptor can no longer be awaited. The process then counts as
        // ended, and the caller checks it.
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
