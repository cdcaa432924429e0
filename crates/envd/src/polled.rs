//! A descriptor registered with the event loop.

#![expect(
    unsafe_code,
    reason = "AsyncFd::register requires a descriptor that stays open"
)]

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use tokio::io::unix::{AsyncFd, AsyncFdReadyGuard};

/// A descriptor with async readiness. It stays open as long as this value or any other clone of its
/// `Arc`.
pub(crate) struct Polled(AsyncFd<Arc<OwnedFd>>);

/// Readiness, until cleared.
pub(crate) type Ready<'a> = AsyncFdReadyGuard<'a, Arc<OwnedFd>>;

impl Polled {
    /// Registers a non-blocking descriptor.
    ///
    /// # Errors
    /// If it is a regular file, which cannot be polled.
    pub(crate) fn new(fd: impl Into<Arc<OwnedFd>>) -> io::Result<Self> {
        // SAFETY: the descriptor must stay open and keep its number while registered. It belongs to an
        // `OwnedFd` in an `Arc` that `AsyncFd` holds, and nothing can move it out.
        Ok(Self(unsafe { AsyncFd::register(fd.into()) }?))
    }

    /// The descriptor.
    pub(crate) fn fd(&self) -> &Arc<OwnedFd> {
        self.0.get_ref()
    }

    /// Waits until readable. Clear the guard before reading, so that data arriving meanwhile sets
    /// readiness again.
    pub(crate) async fn readable(&self) -> io::Result<Ready<'_>> {
        self.0.readable().await
    }

    /// Waits until writable.
    pub(crate) async fn writable(&self) -> io::Result<Ready<'_>> {
        self.0.writable().await
    }
}
