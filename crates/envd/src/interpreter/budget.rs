//! Memory limit for pending output of all executions together.
//!
//! A kernel's message may have 64 MiB, and a sandbox up to 64 contexts. Limits per context would
//! not protect the daemon. So a message is admitted before its bytes are read, and a line before it
//! is queued. Without budget the execution blocks, and with it its kernel, until a client of
//! another execution reads or disconnects.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Total budget in bytes: the largest message, the line made of it, and one more.
const TOTAL: usize = 192 << 20;

/// Allocation unit, so that many short lines are accounted too.
pub(super) const UNIT: usize = 256;

/// Budget shared by all executions of a sandbox.
#[derive(Debug, Clone)]
pub(super) struct Budget(Arc<Semaphore>);

/// A reservation, released when dropped.
#[derive(Debug, Default)]
pub(super) struct Reservation {
    permit: Option<OwnedSemaphorePermit>,
    waited: bool,
}

impl Default for Budget {
    fn default() -> Self {
        Self::with_bytes(TOTAL)
    }
}

impl Budget {
    /// A budget of this size.
    pub(super) fn with_bytes(bytes: usize) -> Self {
        Self(Arc::new(Semaphore::new(bytes / UNIT)))
    }

    /// Reserves memory, first come first served. A request is clamped to the total.
    pub(super) async fn reserve(&self, bytes: usize) -> Reservation {
        let units = units(bytes.min(TOTAL));
        // Tried synchronously first, because tokio's cooperative budget may make the future pending
        // too.
        if let Ok(permit) = Arc::clone(&self.0).try_acquire_many_owned(units) {
            return Reservation::from(permit);
        }
        Reservation {
            // The semaphore is never closed.
            permit: Arc::clone(&self.0).acquire_many_owned(units).await.ok(),
            waited: true,
        }
    }
}

#[cfg(test)]
impl Budget {
    /// Waits until the next request must wait, including one too large for the remainder.
    pub(super) async fn wait_until_contended(&self) {
        while self.0.available_permits() > 0 {
            tokio::task::yield_now().await;
        }
    }
}

impl Reservation {
    /// Whether nothing is reserved.
    pub(super) fn is_none(&self) -> bool {
        self.permit.is_none()
    }

    /// Whether the reservation had to wait.
    pub(super) fn had_to_wait(&self) -> bool {
        self.waited
    }

    /// Releases all but this many bytes.
    pub(super) fn shrink(&mut self, bytes: usize) {
        if let Some(permit) = &mut self.permit {
            let needed = units(bytes) as usize;
            drop(permit.split(permit.num_permits().saturating_sub(needed)));
        }
    }
}

impl From<OwnedSemaphorePermit> for Reservation {
    fn from(permit: OwnedSemaphorePermit) -> Self {
        Self {
            permit: Some(permit),
            waited: false,
        }
    }
}

/// Reservations do not take part in the comparison of messages.
impl PartialEq for Reservation {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Reservation {}

/// Units for this many bytes.
pub(super) fn units(bytes: usize) -> u32 {
    u32::try_from(bytes.div_ceil(UNIT)).unwrap_or(u32::MAX)
}
