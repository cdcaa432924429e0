//! Broadcast of a process's output to its subscribers.
//!
//! Each subscriber has a bounded queue. If one is full, the process blocks on its output: nothing
//! is lost and memory stays bounded. A single subscriber may block the process indefinitely, like a
//! terminal. If there are others, a subscriber that blocks them for [`SUBSCRIBER_TIMEOUT`] is disconnected
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
const QUEUE_LENGTH: usize = 32;

/// How long a full subscriber may block other subscribers.
pub(super) const SUBSCRIBER_TIMEOUT: Duration = Duration::from_secs(10);

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
pub(super) struct OutputChannel {
    state: Mutex<State>,
    /// Notified when a subscriber joins or leaves.
    changed: Notify,
}

#[derive(Default)]
struct State {
    next: u64,
    subscribers: Vec<Subscriber>,
    closed: bool,
}

#[derive(Clone)]
struct Subscriber {
    id: u64,
    queue: mpsc::Sender<Event>,
    disconnected: Arc<AtomicBool>,
}

/// Receiving side.
pub(super) struct Subscription {
    id: u64,
    events: mpsc::Receiver<Event>,
    disconnected: Arc<AtomicBool>,
    channel: Arc<OutputChannel>,
}

/// Why subscribing failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SubscribeError {
    /// The process has ended.
    Ended,
    /// Too many subscribers.
    Full,
}

impl OutputChannel {
    /// Subscribes from now on.
    pub(super) fn subscribe(self: &Arc<Self>) -> Result<Subscription, SubscribeError> {
        let (queue, events) = mpsc::channel(QUEUE_LENGTH);
        let disconnected = Arc::new(AtomicBool::new(false));
        let mut state = self.state.lock();
        if state.closed {
            return Err(SubscribeError::Ended);
        }
        if state.subscribers.len() >= MAX_SUBSCRIBERS {
            return Err(SubscribeError::Full);
        }
        let id = state.next;
        state.next += 1;
        state.subscribers.push(Subscriber {
            id,
            queue,
            disconnected: Arc::clone(&disconnected),
        });
        drop(state);
        self.changed.notify_waiters();
        Ok(Subscription {
            id,
            events,
            disconnected,
            channel: Arc::clone(self),
        })
    }

    /// Sends an event to all current subscribers.
    pub(super) async fn publish(&self, event: Event) {
        let subscribers = self.state.lock().subscribers.clone();
        let mut full = Vec::new();
        for subscriber in subscribers {
            if let Err(mpsc::error::TrySendError::Full(_)) =
                subscriber.queue.try_send(event.clone())
            {
                full.push(subscriber);
            }
        }
        let mut deadline = None;
        for subscriber in full {
            self.wait_for(&subscriber, &event, &mut deadline).await;
        }
    }

    /// Waits until a full queue has room, its subscriber leaves, or the subscriber is disconnected.
    async fn wait_for(
        &self,
        subscriber: &Subscriber,
        event: &Event,
        deadline: &mut Option<Instant>,
    ) {
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            changed.as_mut().enable();
            let has_others = self.state.lock().subscribers.len() > 1;
            if !has_others {
                *deadline = None;
            }
            let disconnect_at =
                *deadline.get_or_insert_with(|| Instant::now() + SUBSCRIBER_TIMEOUT);
            tokio::select! {
                _ = subscriber.queue.send(event.clone()) => return,
                () = tokio::time::sleep_until(disconnect_at), if has_others => {
                    subscriber.disconnected.store(true, Ordering::Release);
                    self.leave(subscriber.id);
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
        self.state.lock().subscribers.clear();
    }

    fn leave(&self, id: u64) {
        self.state
            .lock()
            .subscribers
            .retain(|subscriber| subscriber.id != id);
        self.changed.notify_waiters();
    }
}

impl Subscription {
    /// The next event. `None` after the last one, or after a disconnect.
    pub(super) async fn next(&mut self) -> Option<Event> {
        self.events.recv().await
    }

    /// Whether the subscriber was disconnected because it blocked others.
    pub(super) fn was_disconnected(&self) -> bool {
        self.disconnected.load(Ordering::Acquire)
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.channel.leave(self.id);
    }
}

#[cfg(test)]
mod tests;
