//! What goes from an execution to its client: bounded in bytes, so that who prints faster than the
//! client reads is held up, and not the daemon filled.

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

/// How many bytes may wait for a client that reads slowly. A single line may be longer.
const MAX_WAITING: usize = 16 << 20;

/// How much of that an execution has for itself, whatever others keep waiting.
const OWN: usize = 1 << 20;

/// About how many bytes are sent at a time when there are many short lines.
const CHUNK: usize = 64 << 10;

/// How long the first line waits for the next one, and the head of the answer for both: most code
/// is done by then, and half as many packets go to its client. Who waits to see that code has begun
/// is a person, who does not notice.
const SOON: Duration = Duration::from_millis(50);

/// The client has gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Left;

/// The execution's end.
pub(super) struct Feed {
    lines: mpsc::UnboundedSender<Line>,
    room: Arc<Semaphore>,
    own: Arc<Semaphore>,
    budget: Budget,
    /// Whether a line, or what was to become one, has ever waited for room.
    held: AtomicBool,
}

struct Line {
    bytes: Bytes,
    /// Whether it is sent together with the next one, if that comes soon.
    waits: bool,
    _room: Option<OwnedSemaphorePermit>,
    _share: Room,
}

type Chunk = Result<Frame<Bytes>, Infallible>;

/// The client's end.
pub(super) struct Lines(Peekable<BoxStream<'static, Chunk>>);

/// A feed, and what comes out of it.
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
    /// Waits until there is something to send, or [`SOON`] is over: the head of an answer goes with
    /// it, but clients learn their status in any case.
    pub(super) async fn begun(mut self) -> Self {
        let _ = timeout(SOON, Pin::new(&mut self.0).peek()).await;
        self
    }

    /// The body of the answer.
    pub(super) fn body(self) -> Body {
        let body = StreamBody::new(self.0).map_err(|never| match never {});
        body.boxed_unsync()
    }
}

/// The next line, and those that wait behind it as far as they are short.
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
    /// Sends a line as soon as there is room for it; `had` is the room of what it was made of. Who has
    /// some waits for no more: that may be with another who does the same.
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
        // Without the bound on what a task may do at a time: one who has reached it is not held up.
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

    /// Notes that who sends, or the kernel, is held up, because nobody reads.
    pub(super) fn note_held(&self) {
        self.held.store(true, Ordering::Relaxed);
    }

    /// Whether who sends was held up, because nobody read.
    pub(super) fn has_held(&self) -> bool {
        self.held.load(Ordering::Relaxed)
    }

    /// Waits for room among all that wait for clients.
    async fn share(&self, bytes: usize) -> Room {
        if bytes > OWN {
            return self.budget.room(bytes).await;
        }
        let own = Arc::clone(&self.own).acquire_many_owned(units(bytes));
        tokio::select! {
            biased;
            // It is never closed.
            own = own => own.map(Room::from).unwrap_or_default(),
            room = self.budget.room(bytes) => room,
        }
    }

    /// Sends a line of ours, which is short, to whoever is still there. That waits for nobody: who
    /// ends an execution does not wait until its client reads.
    pub(super) fn say(&self, line: impl Into<Bytes>) {
        let _ = self.push(line.into(), false, None, Room::default());
    }

    /// The same for a line that does not matter much by itself: it goes with the next one, if that
    /// comes soon.
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

    /// Waits until the client has gone.
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
    async fn lines_come_out_in_order_and_short_ones_together() {
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
    async fn who_does_not_read_holds_the_execution_up() {
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
    async fn who_sends_much_at_a_time_is_not_held_up_as_long_as_there_is_room() {
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
    async fn who_leaves_is_noticed_also_by_who_waits_for_room() {
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
    async fn an_answer_waits_for_its_first_line_but_not_long_and_loses_none() {
        let (feed, lines) = feed(&Budget::default());
        let start = Instant::now();
        let lines = lines.begun().await;
        assert_eq!(start.elapsed(), SOON);
        // Not over yet when the head has to go.
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
    async fn all_executions_have_so_much_together_and_each_a_little_for_itself() {
        let budget = Budget::of(8 << 20);
        let wait = Duration::from_secs(1);
        let (one, other) = (feed(&budget), feed(&budget));
        let line = |bytes: usize| Bytes::from(vec![b'x'; bytes]);
        send(&one.0, line(7 << 20)).await.unwrap();
        // Nobody reads it. Another has what is its own, and no more.
        assert!(timeout(wait, send(&other.0, line(2 << 20))).await.is_err());
        for _ in 0..2 {
            send(&other.0, line(OWN)).await.unwrap();
        }
        assert!(timeout(wait, send(&other.0, line(OWN))).await.is_err());
        // Until the first one is read, or its client goes.
        let mut body = one.1.body();
        body.frame().await.unwrap().unwrap();
        send(&other.0, line(2 << 20)).await.unwrap();
        send(&one.0, line(5 << 20)).await.unwrap();
        assert!(timeout(wait, send(&other.0, line(2 << 20))).await.is_err());
        drop(body);
        send(&other.0, line(2 << 20)).await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_line_has_the_room_of_what_it_was_made_of_and_gives_back_the_rest() {
        let budget = Budget::of(8 << 20);
        let (feed, _lines) = feed(&budget);
        let had = budget.room(8 << 20).await;
        feed.send(vec![b'x'; 4 << 20], had).await.unwrap();
        let wait = Duration::from_secs(1);
        assert!(timeout(wait, budget.room(5 << 20)).await.is_err());
        assert!(timeout(wait, budget.room(4 << 20)).await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn who_has_room_waits_for_no_more() {
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
