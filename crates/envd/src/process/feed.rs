//! Broadcast of a process's output to its subscribers.
//!
//! Each subscriber has a bounded queue. If one is full, the process blocks on its output: nothing
//! is lost and memory stays bounded. A single subscriber may block the process indefinitely, like a
//! terminal. If there are others, a subscriber that blocks them for [`PATIENCE`] is disconnected
//! and its stream ends with `resource_exhausted`. A subscriber that disconnects releases the
//! process.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use shoal_protocol::process::process_event::EndEvent;
use tokio::sync::{Notify, mpsc};
use tokio::time::Instant;

/// Queue length of a subscriber in events of at most 32 KiB.
const QUEUE: usize = 32;

/// How long a full subscriber may block other subscribers.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);

/// Limit of subscribers per process.
const MAX_SUBSCRIBERS: usize = 256;

/// Output or end of a process.
#[derive(Debug, Clone)]
pub(super) enum Event {
    /// Standard output.
    Stdout(Bytes),
    /// Standard error.
    Stderr(Bytes),
    /// Terminal output.
    Terminal(Bytes),
    /// The end. Always last.
    End(Arc<EndEvent>),
}

/// Sending side.
#[derive(Default)]
pub(super) struct Feed {
    state: Mutex<State>,
    /// Notified when a subscriber joins or leaves.
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

/// Receiving side.
pub(super) struct Subscription {
    id: u64,
    events: mpsc::Receiver<Event>,
    cut: Arc<AtomicBool>,
    feed: Arc<Feed>,
}

/// Why subscribing failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refusal {
    /// The process has ended.
    Ended,
    /// Too many subscribers.
    Full,
}

impl Feed {
    /// Subscribes from now on.
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

    /// Sends an event to all current subscribers.
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

    /// Waits until a full queue has room, its subscriber leaves, or the subscriber is disconnected.
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

    /// Publishes the last event and closes the channel.
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
    /// The next event. `None` after the last one, or after a disconnect.
    pub(super) async fn next(&mut self) -> Option<Event> {
        self.events.recv().await
    }

    /// Whether the subscriber was disconnected because it blocked others.
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
