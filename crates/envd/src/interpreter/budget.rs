//! What all executions of a sandbox may have together of what waits for their clients.
//!
//! A kernel's message is up to 64 MiB long, and a sandbox has up to 64 contexts: each may keep its own
//! bound, and all of them the daemon full. So there is room for a message before its bytes are read,
//! and for a line before it waits. Who gets none is held up, and its kernel with it, until a client
//! of another execution reads or goes.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// What there is, in bytes: for the largest message, the line that it becomes, and one more.
const ALL: usize = 192 << 20;

/// What it is counted in, so that many short lines are bounded too.
pub(super) const UNIT: usize = 256;

/// What all executions share. Those of one sandbox have clones of the same.
#[derive(Debug, Clone)]
pub(super) struct Budget(Arc<Semaphore>);

/// Room for some bytes, until it is dropped.
#[derive(Debug, Default)]
pub(super) struct Room {
    permit: Option<OwnedSemaphorePermit>,
    waited: bool,
}

impl Default for Budget {
    fn default() -> Self {
        Self::of(ALL)
    }
}

impl Budget {
    /// One of so many bytes.
    pub(super) fn of(bytes: usize) -> Self {
        Self(Arc::new(Semaphore::new(bytes / UNIT)))
    }

    /// Waits for room. Who asked first gets it first; nobody gets more than there is.
    pub(super) async fn room(&self, bytes: usize) -> Room {
        let units = units(bytes.min(ALL));
        // Tried first: a poll may also be pending because its task has had its turn.
        if let Ok(permit) = Arc::clone(&self.0).try_acquire_many_owned(units) {
            return Room::from(permit);
        }
        Room {
            // It is never closed.
            permit: Arc::clone(&self.0).acquire_many_owned(units).await.ok(),
            waited: true,
        }
    }
}

#[cfg(test)]
impl Budget {
    /// Waits until there is nothing left for who asks now, not even what is too little for another.
    pub(super) async fn is_waited_for(&self) {
        while self.0.available_permits() > 0 {
            tokio::task::yield_now().await;
        }
    }
}

impl Room {
    /// Whether it is none.
    pub(super) fn is_none(&self) -> bool {
        self.permit.is_none()
    }

    /// Whether somebody had to read or go before there was this room.
    pub(super) fn was_waited_for(&self) -> bool {
        self.waited
    }

    /// Gives back what is not needed for so many bytes.
    pub(super) fn shrink(&mut self, bytes: usize) {
        if let Some(permit) = &mut self.permit {
            let needed = units(bytes) as usize;
            drop(permit.split(permit.num_permits().saturating_sub(needed)));
        }
    }
}

impl From<OwnedSemaphorePermit> for Room {
    fn from(permit: OwnedSemaphorePermit) -> Self {
        Self {
            permit: Some(permit),
            waited: false,
        }
    }
}

/// Room is nothing that a message says.
impl PartialEq for Room {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Room {}

/// How many units so many bytes are.
pub(super) fn units(bytes: usize) -> u32 {
    u32::try_from(bytes.div_ceil(UNIT)).unwrap_or(u32::MAX)
}
