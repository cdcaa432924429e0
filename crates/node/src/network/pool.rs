//! Slots created ahead of time.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Mutex as AsyncMutex, Notify};
use tokio::time::timeout;

use super::{Shared, Slot};
use crate::blocking;

/// How long no slot may have been taken before another is created, while enough are ready. Creating
/// one uses a processor for about 20 ms, which the sandbox that took the last slot needs to start.
const IDLE_BEFORE_FILL: Duration = Duration::from_millis(200);

/// How long to wait before a failed removal of a slot is retried.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// A pool of ready slots that refills itself.
#[derive(Debug, Clone)]
pub(super) struct Pool {
    state: Arc<State>,
}

#[derive(Debug)]
struct State {
    shared: Arc<Shared>,
    ready: Mutex<VecDeque<Slot>>,
    size: usize,
    taken: Notify,
    closed: AtomicBool,
    /// Held while a slot is being created ahead, so that closing waits for it.
    filling: AsyncMutex<()>,
}

impl Pool {
    pub(super) fn new(shared: Arc<Shared>, size: usize) -> Self {
        Self {
            state: Arc::new(State {
                shared,
                ready: Mutex::new(VecDeque::new()),
                size,
                taken: Notify::new(),
                closed: AtomicBool::new(false),
                filling: AsyncMutex::new(()),
            }),
        }
    }

    /// Starts to refill, on the caller's runtime.
    pub(super) fn start(&self) {
        let state = self.state.clone();
        tokio::spawn(async move {
            while !state.closed.load(Ordering::Acquire) {
                if state.clear_leaving().await {
                    let _ = timeout(RETRY_DELAY, state.taken.notified()).await;
                } else if !state.fill_one().await {
                    state.taken.notified().await;
                    state.wait_idle().await;
                }
            }
        });
    }

    /// Takes the oldest ready slot, or creates one; `None` when the range is used up.
    ///
    /// # Errors
    /// When a new slot cannot be created.
    pub(super) async fn take(&self) -> io::Result<Option<Slot>> {
        let ready = self.state.ready.lock().pop_front();
        self.state.taken.notify_one();
        match ready {
            Some(slot) => Ok(Some(slot)),
            None => {
                let shared = self.state.shared.clone();
                blocking(move || shared.make()).await
            }
        }
    }

    /// Wakes the refilling task.
    pub(super) fn wake(&self) {
        self.state.taken.notify_one();
    }

    /// Stops the refilling and removes the ready slots.
    ///
    /// # Errors
    /// When one remains.
    pub(super) async fn close(&self) -> io::Result<()> {
        self.state.closed.store(true, Ordering::Release);
        self.state.taken.notify_one();
        let _last = self.state.filling.lock().await;
        let ready: Vec<Slot> = self.state.ready.lock().drain(..).collect();
        let shared = self.state.shared.clone();
        blocking(move || ready.iter().try_for_each(|slot| shared.dispose(slot.index))).await
    }
}

impl State {
    /// Waits until no slot has been taken for a moment, or until few are left.
    async fn wait_idle(&self) {
        while self.can_wait()
            && timeout(IDLE_BEFORE_FILL, self.taken.notified())
                .await
                .is_ok()
        {}
    }

    fn can_wait(&self) -> bool {
        self.ready.lock().len() * 2 > self.size && !self.closed.load(Ordering::Acquire)
    }

    /// Retries failed removals; returns whether some remain.
    async fn clear_leaving(&self) -> bool {
        if self.shared.leaving.lock().is_empty() {
            return false;
        }
        let shared = self.shared.clone();
        // The reason is already logged.
        blocking(move || shared.dispose_leaving()).await.is_err()
    }

    /// Creates a missing slot; returns whether to continue immediately.
    async fn fill_one(&self) -> bool {
        let _filling = self.filling.lock().await;
        if self.closed.load(Ordering::Acquire) || self.ready.lock().len() >= self.size {
            return false;
        }
        let shared = self.shared.clone();
        match blocking(move || shared.make()).await {
            Ok(Some(slot)) => {
                self.ready.lock().push_back(slot);
                true
            }
            Ok(None) => false,
            Err(error) => {
                // The next take retries, and returns the error.
                tracing::warn!(%error, "cannot create a network slot ahead of time");
                false
            }
        }
    }
}
