//! Output channel of an execution, bounded in bytes: output faster than the client reads blocks the
//! kernel instead of filling the daemon's memory.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::stream::{self, BoxStream, Peekable};
use futures_util::{FutureExt, StreamExt};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::unconstrained;
use tokio::time::timeout;

use super::budget::{Budget, Room, UNIT, units};
use crate::answer::Body;

/// Limit of pending bytes for a slow client. A single line may be longer.
const MAX_WAITING: usize = 16 << 20;

/// Bytes of that guaranteed to each execution, whatever others use.
const OWN: usize = 1 << 20;

/// Approximate chunk size for many short lines.
const CHUNK: usize = 64 << 10;

/// How long the first line waits for the next one, and the response head for both. Most code is
/// done by then, so the client receives half as many packets. Users do not notice the delay.
const SOON: Duration = Duration::from_millis(50);

/// The client disconnected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Left;

/// Sending side.
pub(super) struct Feed {
    lines: mpsc::UnboundedSender<Line>,
    room: Arc<Semaphore>,
    own: Arc<Semaphore>,
    budget: Budget,
    /// Whether output was ever blocked for lack of budget.
    held: AtomicBool,
}

struct Line {
    bytes: Bytes,
    /// Whether to send it together with the next line, if that follows soon.
    waits: bool,
    _room: Option<OwnedSemaphorePermit>,
    _share: Room,
}

type Chunk = Result<Frame<Bytes>, Infallible>;

/// Receiving side.
pub(super) struct Lines(Peekable<BoxStream<'static, Chunk>>);

/// Creates a channel.
pub(super) fn feed(budget: &Budget) -> (Feed, Lines) {
    let (lines, waiting) = mpsc::unbounded_channel();
    let room = Arc::new(Semaphore::new(MAX_WAITING / UNIT));
    let chunks = stream::unfold(waiting, |mut waiting| async {
        let chunk = next(&mut waiting).await?;
        Some((Ok(Frame::data(chunk)), waiting))
    });
    let feed = Feed {
        lines,
        room,
        own: Arc::new(Semaphore::new(OWN / UNIT)),
        budget: budget.clone(),
        held: AtomicBool::new(false),
    };
    (feed, Lines(chunks.boxed().peekable()))
}

impl Lines {
    /// Waits for the first output, at most [`SOON`], to send it along with the response head.
    pub(super) async fn begun(mut self) -> Self {
        let _ = timeout(SOON, Pin::new(&mut self.0).peek()).await;
        self
    }

    /// The response body.
    pub(super) fn body(self) -> Body {
        let body = StreamBody::new(self.0).map_err(|never| match never {});
        body.boxed_unsync()
    }
}

/// The next line, joined with further short ones that are pending.
async fn next(waiting: &mut mpsc::UnboundedReceiver<Line>) -> Option<Bytes> {
    let first = waiting.recv().await?;
    let mut behind = if first.waits {
        timeout(SOON, waiting.recv()).await.ok().flatten()
    } else if first.bytes.len() < CHUNK {
        waiting.try_recv().ok()
    } else {
        None
    };
    if behind.is_none() {
        return Some(first.bytes);
    }
    let mut chunk = BytesMut::from(&first.bytes[..]);
    while let Some(line) = behind {
        chunk.extend_from_slice(&line.bytes);
        behind = if chunk.len() < CHUNK {
            waiting.try_recv().ok()
        } else {
            None
        };
    }
    Some(chunk.freeze())
}

impl Feed {
    /// Sends a line when there is budget. `had` is the reservation of its source message. With a
    /// reservation it never waits for another, which could deadlock with an execution in the same
    /// state.
    pub(super) async fn send(&self, line: impl Into<Bytes>, mut had: Room) -> Result<(), Left> {
        let bytes = line.into();
        let room = Arc::clone(&self.room);
        let room = room.acquire_many_owned(units(bytes.len().min(MAX_WAITING)));
        let length = bytes.len();
        let waiting = async {
            let share = if had.is_none() {
                self.share(length).await
            } else {
                had.shrink(length);
                had
            };
            (room.await, share)
        };
        tokio::pin!(waiting);
        // Outside of tokio's cooperative budget, whose exhaustion does not mean blocked output.
        if let Some((room, share)) = unconstrained(waiting.as_mut()).now_or_never() {
            return self.push(bytes, false, room.ok(), share);
        }
        self.note_held();
        let (room, share) = tokio::select! {
            (room, share) = waiting => (room.map_err(|_| Left)?, share),
            () = self.closed() => return Err(Left),
        };
        self.push(bytes, false, Some(room), share)
    }

    /// Records that output or the kernel was blocked by a slow client.
    pub(super) fn note_held(&self) {
        self.held.store(true, Ordering::Relaxed);
    }

    /// Whether output was blocked by a slow client.
    pub(super) fn has_held(&self) -> bool {
        self.held.load(Ordering::Relaxed)
    }

    /// Reserves budget, from the guaranteed part if possible.
    async fn share(&self, bytes: usize) -> Room {
        if bytes > OWN {
            return self.budget.room(bytes).await;
        }
        let own = Arc::clone(&self.own).acquire_many_owned(units(bytes));
        tokio::select! {
            biased;
            // The semaphore is never closed.
            own = own => own.map(Room::from).unwrap_or_default(),
            room = self.budget.room(bytes) => room,
        }
    }

    /// Sends a short line of the daemon without waiting. Ending an execution must not wait for its
    /// client.
    pub(super) fn say(&self, line: impl Into<Bytes>) {
        let _ = self.push(line.into(), false, None, Room::default());
    }

    /// Like [`say`](Self::say), but joins the next line if that follows soon.
    pub(super) fn say_with_next(&self, line: impl Into<Bytes>) {
        let _ = self.push(line.into(), true, None, Room::default());
    }

    fn push(
        &self,
        bytes: Bytes,
        waits: bool,
        room: Option<OwnedSemaphorePermit>,
        share: Room,
    ) -> Result<(), Left> {
        let line = Line {
            bytes,
            waits,
            _room: room,
            _share: share,
        };
        self.lines.send(line).map_err(|_| Left)
    }

    /// Waits until the client disconnects.
    pub(super) async fn closed(&self) {
        self.lines.closed().await;
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;

    async fn send(feed: &Feed, line: impl Into<Bytes>) -> Result<(), Left> {
        feed.send(line, Room::default()).await
    }

    #[tokio::test]
    async fn lines_are_ordered_and_short_ones_joined() {
        let (feed, lines) = feed(&Budget::default());
        let mut body = lines.body();
        for line in ["a\n", "b\n", "c\n"] {
            send(&feed, line).await.unwrap();
        }
        drop(feed);
        let frame = body.frame().await.unwrap().unwrap();
        assert_eq!(frame.into_data().unwrap(), "a\nb\nc\n");
        assert!(body.frame().await.is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_client_blocks_the_execution() {
        let (feed, lines) = feed(&Budget::default());
        let mut body = lines.body();
        let line = Bytes::from(vec![b'x'; MAX_WAITING + 1]);
        send(&feed, line.clone()).await.unwrap();
        let wait = Duration::from_secs(1);
        assert!(timeout(wait, send(&feed, "y")).await.is_err());
        feed.say("z");
        body.frame().await.unwrap().unwrap();
        send(&feed, "y").await.unwrap();
        let rest = body.frame().await.unwrap().unwrap();
        assert_eq!(rest.into_data().unwrap(), "zy");
    }

    #[tokio::test]
    async fn a_burst_within_the_budget_does_not_block() {
        let (feed, lines) = feed(&Budget::default());
        for _ in 0..1000 {
            send(&feed, "x\n").await.unwrap();
        }
        assert!(!feed.has_held());
        send(&feed, vec![b'x'; MAX_WAITING - (1000 * UNIT)])
            .await
            .unwrap();
        let (sent, ()) = tokio::join!(send(&feed, "y"), async { drop(lines) });
        assert_eq!((sent, feed.has_held()), (Err(Left), true));
    }

    #[tokio::test]
    async fn a_disconnect_is_noticed_while_waiting_for_budget() {
        let (feed, lines) = feed(&Budget::default());
        send(&feed, vec![b'x'; MAX_WAITING]).await.unwrap();
        let (sent, ()) = tokio::join!(send(&feed, "y"), async { drop(lines) });
        assert_eq!(sent, Err(Left));
        feed.closed().await;
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_line_goes_with_the_next_but_does_not_wait_long() {
        let (feed, lines) = feed(&Budget::default());
        let mut body = lines.body();
        let start = Instant::now();
        feed.say_with_next("1");
        let (frame, ()) = tokio::join!(body.frame(), async {
            tokio::time::sleep(SOON / 2).await;
            feed.say("2");
        });
        assert_eq!(frame.unwrap().unwrap().into_data().unwrap(), "12");
        assert_eq!(start.elapsed(), SOON / 2);

        feed.say_with_next("3");
        let frame = body.frame().await.unwrap().unwrap();
        assert_eq!(frame.into_data().unwrap(), "3");
        assert_eq!(start.elapsed(), SOON / 2 + SOON);
    }

    #[tokio::test(start_paused = true)]
    async fn a_response_waits_briefly_for_its_first_line() {
        let (feed, lines) = feed(&Budget::default());
        let start = Instant::now();
        let lines = lines.begun().await;
        assert_eq!(start.elapsed(), SOON);
        // Not complete when the head is due.
        feed.say_with_next("1");
        tokio::time::sleep(SOON / 2).await;
        let lines = lines.begun().await;
        feed.say("2");
        let lines = lines.begun().await;
        assert_eq!(start.elapsed(), SOON * 5 / 2);
        drop(feed);
        let body = lines.body().collect().await.unwrap();
        assert_eq!(body.to_bytes(), "12");
    }

    #[tokio::test(start_paused = true)]
    async fn executions_share_a_budget_and_each_has_a_guaranteed_part() {
        let budget = Budget::of(8 << 20);
        let wait = Duration::from_secs(1);
        let (one, other) = (feed(&budget), feed(&budget));
        let line = |bytes: usize| Bytes::from(vec![b'x'; bytes]);
        send(&one.0, line(7 << 20)).await.unwrap();
        // The first is not read. Another execution has its guaranteed part, and no more.
        assert!(timeout(wait, send(&other.0, line(2 << 20))).await.is_err());
        for _ in 0..2 {
            send(&other.0, line(OWN)).await.unwrap();
        }
        assert!(timeout(wait, send(&other.0, line(OWN))).await.is_err());
        // Until the first is read, or its client disconnects.
        let mut body = one.1.body();
        body.frame().await.unwrap().unwrap();
        send(&other.0, line(2 << 20)).await.unwrap();
        send(&one.0, line(5 << 20)).await.unwrap();
        assert!(timeout(wait, send(&other.0, line(2 << 20))).await.is_err());
        drop(body);
        send(&other.0, line(2 << 20)).await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_line_keeps_a_part_of_its_messages_reservation() {
        let budget = Budget::of(8 << 20);
        let (feed, _lines) = feed(&budget);
        let had = budget.room(8 << 20).await;
        feed.send(vec![b'x'; 4 << 20], had).await.unwrap();
        let wait = Duration::from_secs(1);
        assert!(timeout(wait, budget.room(5 << 20)).await.is_err());
        assert!(timeout(wait, budget.room(4 << 20)).await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn a_reservation_never_waits_for_another() {
        let budget = Budget::of(8 << 20);
        let (feed, _lines) = feed(&budget);
        let [had, _others] = [budget.room(4 << 20).await, budget.room(4 << 20).await];
        let sent = feed.send(vec![b'x'; 5 << 20], had);
        timeout(Duration::from_secs(1), sent)
            .await
            .unwrap()
            .unwrap();
        assert!(!feed.has_held());
    }
}
