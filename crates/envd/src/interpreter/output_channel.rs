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

use super::budget::{Budget, Reservation, UNIT, units};
use crate::response::Body;

/// Limit of pending bytes for a slow client. A single line may be longer.
const MAX_WAITING: usize = 16 << 20;

/// Bytes of that guaranteed to each execution, regardless of the others.
const GUARANTEED: usize = 1 << 20;

/// Approximate chunk size for many short lines.
const CHUNK: usize = 64 << 10;

/// How long the first line waits for the next one, and the response head for both. Most code is
/// done by then, so the client receives half as many packets. Users do not notice the delay.
const COALESCE_DELAY: Duration = Duration::from_millis(50);

/// The client disconnected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Disconnected;

/// Sending side.
pub(super) struct OutputSender {
    lines: mpsc::UnboundedSender<Line>,
    queue: Arc<Semaphore>,
    own: Arc<Semaphore>,
    budget: Budget,
    /// Whether output was ever blocked for lack of budget.
    blocked: AtomicBool,
}

struct Line {
    bytes: Bytes,
    /// Whether to send it together with the next line, if that follows soon.
    joins_next: bool,
    _queue_permit: Option<OwnedSemaphorePermit>,
    _reservation: Reservation,
}

type Chunk = Result<Frame<Bytes>, Infallible>;

/// Receiving side.
pub(super) struct OutputStream(Peekable<BoxStream<'static, Chunk>>);

/// Creates a channel.
pub(super) fn channel(budget: &Budget) -> (OutputSender, OutputStream) {
    let (lines, waiting) = mpsc::unbounded_channel();
    let queue = Arc::new(Semaphore::new(MAX_WAITING / UNIT));
    let chunks = stream::unfold(waiting, |mut waiting| async {
        let chunk = next(&mut waiting).await?;
        Some((Ok(Frame::data(chunk)), waiting))
    });
    let channel = OutputSender {
        lines,
        queue,
        own: Arc::new(Semaphore::new(GUARANTEED / UNIT)),
        budget: budget.clone(),
        blocked: AtomicBool::new(false),
    };
    (channel, OutputStream(chunks.boxed().peekable()))
}

impl OutputStream {
    /// Waits for the first output, at most [`COALESCE_DELAY`], to send it along with the response head.
    pub(super) async fn first_output(mut self) -> Self {
        let _ = timeout(COALESCE_DELAY, Pin::new(&mut self.0).peek()).await;
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
    let mut behind = if first.joins_next {
        timeout(COALESCE_DELAY, waiting.recv()).await.ok().flatten()
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

impl OutputSender {
    /// Sends a line when there is budget. `had` is the reservation of its source message. With a
    /// reservation it never waits for another, which could deadlock with an execution in the same
    /// state.
    pub(super) async fn send(
        &self,
        line: impl Into<Bytes>,
        mut had: Reservation,
    ) -> Result<(), Disconnected> {
        let bytes = line.into();
        let queue = Arc::clone(&self.queue);
        let queue = queue.acquire_many_owned(units(bytes.len().min(MAX_WAITING)));
        let length = bytes.len();
        let waiting = async {
            let reservation = if had.is_none() {
                self.reserve(length).await
            } else {
                had.shrink(length);
                had
            };
            (queue.await, reservation)
        };
        tokio::pin!(waiting);
        // Outside of tokio's cooperative budget, whose exhaustion does not mean blocked output.
        if let Some((queue, reservation)) = unconstrained(waiting.as_mut()).now_or_never() {
            return self.push(bytes, false, queue.ok(), reservation);
        }
        self.mark_blocked();
        let (queue, reservation) = tokio::select! {
            (queue, reservation) = waiting => (queue.map_err(|_| Disconnected)?, reservation),
            () = self.closed() => return Err(Disconnected),
        };
        self.push(bytes, false, Some(queue), reservation)
    }

    /// Records that output or the kernel was blocked by a slow client.
    pub(super) fn mark_blocked(&self) {
        self.blocked.store(true, Ordering::Relaxed);
    }

    /// Whether output was blocked by a slow client.
    pub(super) fn was_blocked(&self) -> bool {
        self.blocked.load(Ordering::Relaxed)
    }

    /// Reserves budget, from the guaranteed part if possible.
    async fn reserve(&self, bytes: usize) -> Reservation {
        if bytes > GUARANTEED {
            return self.budget.reserve(bytes).await;
        }
        let own = Arc::clone(&self.own).acquire_many_owned(units(bytes));
        tokio::select! {
            biased;
            // The semaphore is never closed.
            own = own => own.map(Reservation::from).unwrap_or_default(),
            shared = self.budget.reserve(bytes) => shared,
        }
    }

    /// Sends a short line of the daemon without waiting. Ending an execution must not wait for its
    /// client.
    pub(super) fn send_now(&self, line: impl Into<Bytes>) {
        let _ = self.push(line.into(), false, None, Reservation::default());
    }

    /// Like [`send_now`](Self::send_now), but joins the next line if that follows soon.
    pub(super) fn send_with_next(&self, line: impl Into<Bytes>) {
        let _ = self.push(line.into(), true, None, Reservation::default());
    }

    fn push(
        &self,
        bytes: Bytes,
        joins_next: bool,
        queue: Option<OwnedSemaphorePermit>,
        reservation: Reservation,
    ) -> Result<(), Disconnected> {
        let line = Line {
            bytes,
            joins_next,
            _queue_permit: queue,
            _reservation: reservation,
        };
        self.lines.send(line).map_err(|_| Disconnected)
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

    async fn send(channel: &OutputSender, line: impl Into<Bytes>) -> Result<(), Disconnected> {
        channel.send(line, Reservation::default()).await
    }

    #[tokio::test]
    async fn lines_are_ordered_and_short_ones_joined() {
        let (channel, lines) = channel(&Budget::default());
        let mut body = lines.body();
        for line in ["a\n", "b\n", "c\n"] {
            send(&channel, line).await.unwrap();
        }
        drop(channel);
        let frame = body.frame().await.unwrap().unwrap();
        assert_eq!(frame.into_data().unwrap(), "a\nb\nc\n");
        assert!(body.frame().await.is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_client_blocks_the_execution() {
        let (channel, lines) = channel(&Budget::default());
        let mut body = lines.body();
        let line = Bytes::from(vec![b'x'; MAX_WAITING + 1]);
        send(&channel, line.clone()).await.unwrap();
        let wait = Duration::from_secs(1);
        assert!(timeout(wait, send(&channel, "y")).await.is_err());
        channel.send_now("z");
        body.frame().await.unwrap().unwrap();
        send(&channel, "y").await.unwrap();
        let rest = body.frame().await.unwrap().unwrap();
        assert_eq!(rest.into_data().unwrap(), "zy");
    }

    #[tokio::test]
    async fn a_burst_within_the_budget_does_not_block() {
        let (channel, lines) = channel(&Budget::default());
        for _ in 0..1000 {
            send(&channel, "x\n").await.unwrap();
        }
        assert!(!channel.was_blocked());
        send(&channel, vec![b'x'; MAX_WAITING - (1000 * UNIT)])
            .await
            .unwrap();
        let (sent, ()) = tokio::join!(send(&channel, "y"), async { drop(lines) });
        assert_eq!((sent, channel.was_blocked()), (Err(Disconnected), true));
    }

    #[tokio::test]
    async fn a_disconnect_is_noticed_while_waiting_for_budget() {
        let (channel, lines) = channel(&Budget::default());
        send(&channel, vec![b'x'; MAX_WAITING]).await.unwrap();
        let (sent, ()) = tokio::join!(send(&channel, "y"), async { drop(lines) });
        assert_eq!(sent, Err(Disconnected));
        channel.closed().await;
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_line_goes_with_the_next_but_does_not_wait_long() {
        let (channel, lines) = channel(&Budget::default());
        let mut body = lines.body();
        let start = Instant::now();
        channel.send_with_next("1");
        let (frame, ()) = tokio::join!(body.frame(), async {
            tokio::time::sleep(COALESCE_DELAY / 2).await;
            channel.send_now("2");
        });
        assert_eq!(frame.unwrap().unwrap().into_data().unwrap(), "12");
        assert_eq!(start.elapsed(), COALESCE_DELAY / 2);

        channel.send_with_next("3");
        let frame = body.frame().await.unwrap().unwrap();
        assert_eq!(frame.into_data().unwrap(), "3");
        assert_eq!(start.elapsed(), COALESCE_DELAY / 2 + COALESCE_DELAY);
    }

    #[tokio::test(start_paused = true)]
    async fn a_response_waits_briefly_for_its_first_line() {
        let (channel, lines) = channel(&Budget::default());
        let start = Instant::now();
        let lines = lines.first_output().await;
        assert_eq!(start.elapsed(), COALESCE_DELAY);
        // Not complete when the head is due.
        channel.send_with_next("1");
        tokio::time::sleep(COALESCE_DELAY / 2).await;
        let lines = lines.first_output().await;
        channel.send_now("2");
        let lines = lines.first_output().await;
        assert_eq!(start.elapsed(), COALESCE_DELAY * 5 / 2);
        drop(channel);
        let body = lines.body().collect().await.unwrap();
        assert_eq!(body.to_bytes(), "12");
    }

    #[tokio::test(start_paused = true)]
    async fn executions_share_a_budget_and_each_has_a_guaranteed_part() {
        let budget = Budget::with_bytes(8 << 20);
        let wait = Duration::from_secs(1);
        let (one, other) = (channel(&budget), channel(&budget));
        let line = |bytes: usize| Bytes::from(vec![b'x'; bytes]);
        send(&one.0, line(7 << 20)).await.unwrap();
        // The first is not read. Another execution has its guaranteed part, and no more.
        assert!(timeout(wait, send(&other.0, line(2 << 20))).await.is_err());
        for _ in 0..2 {
            send(&other.0, line(GUARANTEED)).await.unwrap();
        }
        assert!(
            timeout(wait, send(&other.0, line(GUARANTEED)))
                .await
                .is_err()
        );
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
        let budget = Budget::with_bytes(8 << 20);
        let (channel, _lines) = channel(&budget);
        let had = budget.reserve(8 << 20).await;
        channel.send(vec![b'x'; 4 << 20], had).await.unwrap();
        let wait = Duration::from_secs(1);
        assert!(timeout(wait, budget.reserve(5 << 20)).await.is_err());
        assert!(timeout(wait, budget.reserve(4 << 20)).await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn a_reservation_never_waits_for_another() {
        let budget = Budget::with_bytes(8 << 20);
        let (channel, _lines) = channel(&budget);
        let [had, _others] = [budget.reserve(4 << 20).await, budget.reserve(4 << 20).await];
        let sent = channel.send(vec![b'x'; 5 << 20], had);
        timeout(Duration::from_secs(1), sent)
            .await
            .unwrap()
            .unwrap();
        assert!(!channel.was_blocked());
    }
}
