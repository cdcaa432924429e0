//! Slots that are ready before they are asked for.

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

/// How long nobody must have taken a slot before the next is made, while there are enough: making
/// one keeps a processor busy for some 20 ms, which whoever just took one needs for its start.
const LULL: Duration = Duration::from_millis(200);

/// How long to wait before a slot that could not be taken away is tried again.
const AGAIN: Duration = Duration::from_secs(1);

/// A store of ready slots that fills itself.
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
    /// Held while one slot is being made ahead, so that closing waits for it.
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

    /// Begins to fill, on the runtime of the caller.
    pub(super) fn start(&self) {
        let state = self.state.clone();
        tokio::spawn(async move {
            while !state.closed.load(Ordering::Acquire) {
                if state.clear_leaving().await {
                    let _ = timeout(AGAIN, state.taken.notified()).await;
                } else if !state.fill_one().await {
                    state.taken.notified().await;
                    state.lull().await;
                }
            }
        });
    }

    /// The oldest ready slot, or a new one; none when the range is used up.
    ///
    /// # Errors
    /// When a new one cannot be made.
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

    /// Looks for what there is to do.
    pub(super) fn look(&self) {
        self.state.taken.notify_one();
    }

    /// Ends the filling and takes the ready slots away.
    ///
    /// # Errors
    /// When one stays.
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
    /// Waits until nobody has taken a slot for a moment, or until few are left.
    async fn lull(&self) {
        while self.can_wait() && timeout(LULL, self.taken.notified()).await.is_ok() {}
    }

    fn can_wait(&self) -> bool {
        self.ready.lock().len() * 2 > self.size && !self.closed.load(Ordering::Acquire)
    }

    /// Takes away what could not be taken away before; whether something is left.
    async fn clear_leaving(&self) -> bool {
        if self.shared.leaving.lock().is_empty() {
            return false;
        }
        let shared = self.shared.clone();
        // Why one stays has been said.
        blocking(move || shared.dispose_leaving()).await.is_err()
    }

    /// Makes one slot if one is missing; whether to go on at once.
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
                // Whoever takes next tries again, and is told.
                tracing::warn!(%error, "cannot make a network slot ahead");
                false
            }
        }
    }
}
