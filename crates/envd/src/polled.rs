//! A descriptor that the event loop watches.

#![expect(unsafe_code, reason = "tokio asks for a promise that a type can give")]

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use tokio::io::unix::{AsyncFd, AsyncFdReadyGuard};

/// A descriptor that can be waited for. It is open as long as this is, and longer if it is shared.
pub(crate) struct Polled(AsyncFd<Arc<OwnedFd>>);

/// What was found, until it is cleared.
pub(crate) type Ready<'a> = AsyncFdReadyGuard<'a, Arc<OwnedFd>>;

impl Polled {
    /// Begins to watch a descriptor that does not make its reader wait.
    ///
    /// # Errors
    /// When it is a plain file, which cannot be waited for.
    pub(crate) fn new(fd: impl Into<Arc<OwnedFd>>) -> io::Result<Self> {
        // SAFETY: the number must stay the same and be open while it is registered. It is that of
        // an `OwnedFd` that nobody can take out of its `Arc`, of which this holds one.
        Ok(Self(unsafe { AsyncFd::register(fd.into()) }?))
    }

    /// The descriptor itself.
    pub(crate) fn fd(&self) -> &Arc<OwnedFd> {
        self.0.get_ref()
    }

    /// Waits until it can be read. To be cleared before reading all there is, so that what comes
    /// meanwhile is news.
    pub(crate) async fn readable(&self) -> io::Result<Ready<'_>> {
        self.0.readable().await
    }

    /// Waits until it can be written.
    pub(crate) async fn writable(&self) -> io::Result<Ready<'_>> {
        self.0.writable().await
    }
}
