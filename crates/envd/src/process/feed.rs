//! From one process to all who listen to it.
//!
//! Each subscriber has a bounded queue, and a process whose output finds a full one waits: nothing
//! is lost, and memory stays bounded. Alone, a subscriber may take as long as it likes, just as a
//! terminal may. In company it may not: while it holds up the others for [`PATIENCE`] it is cut
//! off, its stream ends with `resource_exhausted`, and the others go on. Who leaves is no longer
//! waited for. So a slow reader slows the process, and a stuck one stops nobody but itself.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use shoal_protocol::process::process_event::EndEvent;
use tokio::sync::{Notify, mpsc};
use tokio::time::Instant;

/// How many events may wait for a subscriber. An event holds at most 32 KiB.
const QUEUE: usize = 32;

/// For how long a subscriber with a full queue may hold up others.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);

/// The most subscribers of one process.
const MAX_SUBSCRIBERS: usize = 256;

/// What a process did.
#[derive(Debug, Clone)]
pub(super) enum Event {
    /// Printed on standard output.
    Stdout(Bytes),
    /// Printed on standard error.
    Stderr(Bytes),
    /// Printed on its terminal.
    Terminal(Bytes),
    /// Ended. Nothing follows.
    End(Arc<EndEvent>),
}

/// The sending end.
#[derive(Default)]
pub(super) struct Feed {
    state: Mutex<State>,
    /// Rings when somebody comes or goes.
    changed: Notify,
}

#[derive(Default)]
struct State {
    next: u64,
    seats: Vec<Seat>,
    closed: bool,
}

#[derive(Clone)]
struct Seat {
    id: u64,
    queue: mpsc::Sender<Event>,
    cut: Arc<AtomicBool>,
}

/// One listener's end.
pub(super) struct Subscription {
    id: u64,
    events: mpsc::Receiver<Event>,
    cut: Arc<AtomicBool>,
    feed: Arc<Feed>,
}

/// Why nobody else can listen to a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refusal {
    /// It ended.
    Ended,
    /// Too many do.
    Full,
}

impl Feed {
    /// Listens, from now on.
    pub(super) fn subscribe(self: &Arc<Self>) -> Result<Subscription, Refusal> {
        let (queue, events) = mpsc::channel(QUEUE);
        let cut = Arc::new(AtomicBool::new(false));
        let mut state = self.state.lock();
        if state.closed {
            return Err(Refusal::Ended);
        }
        if state.seats.len() >= MAX_SUBSCRIBERS {
            return Err(Refusal::Full);
        }
        let id = state.next;
        state.next += 1;
        state.seats.push(Seat {
            id,
            queue,
            cut: Arc::clone(&cut),
        });
        drop(state);
        self.changed.notify_waiters();
        Ok(Subscription {
            id,
            events,
            cut,
            feed: Arc::clone(self),
        })
    }

    /// Passes an event on to everybody who listens now.
    pub(super) async fn publish(&self, event: Event) {
        let seats = self.state.lock().seats.clone();
        let mut full = Vec::new();
        for seat in seats {
            if let Err(mpsc::error::TrySendError::Full(_)) = seat.queue.try_send(event.clone()) {
                full.push(seat);
            }
        }
        let mut deadline = None;
        for seat in full {
            self.wait_for(&seat, &event, &mut deadline).await;
        }
    }

    /// Waits until a full queue has room, its owner leaves, or it held up others for too long.
    async fn wait_for(&self, seat: &Seat, event: &Event, deadline: &mut Option<Instant>) {
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            changed.as_mut().enable();
            let company = self.state.lock().seats.len() > 1;
            if !company {
                *deadline = None;
            }
            let patience = *deadline.get_or_insert_with(|| Instant::now() + PATIENCE);
            tokio::select! {
                _ = seat.queue.send(event.clone()) => return,
                () = tokio::time::sleep_until(patience), if company => {
                    seat.cut.store(true, Ordering::Release);
                    self.leave(seat.id);
                    return;
                }
                () = changed => {}
            }
        }
    }

    /// Passes the last event on and ends.
    pub(super) async fn close(&self, last: Event) {
        self.state.lock().closed = true;
        self.publish(last).await;
        self.state.lock().seats.clear();
    }

    fn leave(&self, id: u64) {
        self.state.lock().seats.retain(|seat| seat.id != id);
        self.changed.notify_waiters();
    }
}

impl Subscription {
    /// The next event. `None` after the last one, or when it was cut off.
    pub(super) async fn next(&mut self) -> Option<Event> {
        self.events.recv().await
    }

    /// Whether it was cut off because it held up others.
    pub(super) fn was_cut(&self) -> bool {
        self.cut.load(Ordering::Acquire)
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.feed.leave(self.id);
    }
}

#[cfg(test)]
mod tests;
