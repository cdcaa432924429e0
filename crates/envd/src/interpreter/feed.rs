//! What goes from an execution to its client: bounded in bytes, so that who prints faster than the
//! client reads is held up, and not the daemon filled.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream, Peekable};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::time::timeout;

use crate::answer::Body;

/// How many bytes may wait for a client that reads slowly. A single line may be longer.
const MAX_WAITING: usize = 16 << 20;

/// What room is counted in, so that many short lines are bounded too.
const UNIT: usize = 256;

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
}

struct Line {
    bytes: Bytes,
    /// Whether it is sent together with the next one, if that comes soon.
    waits: bool,
    _room: Option<OwnedSemaphorePermit>,
}

type Chunk = Result<Frame<Bytes>, Infallible>;

/// The client's end.
pub(super) struct Lines(Peekable<BoxStream<'static, Chunk>>);

/// A feed, and what comes out of it.
pub(super) fn feed() -> (Feed, Lines) {
    let (lines, waiting) = mpsc::unbounded_channel();
    let room = Arc::new(Semaphore::new(MAX_WAITING / UNIT));
    let chunks = stream::unfold(waiting, |mut waiting| async {
        let chunk = next(&mut waiting).await?;
        Some((Ok(Frame::data(chunk)), waiting))
    });
    (Feed { lines, room }, Lines(chunks.boxed().peekable()))
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
    /// Sends a line as soon as there is room for it.
    pub(super) async fn send(&self, line: impl Into<Bytes>) -> Result<(), Left> {
        let bytes = line.into();
        let units = bytes.len().div_ceil(UNIT).min(MAX_WAITING / UNIT);
        let room = Arc::clone(&self.room);
        let room = room.acquire_many_owned(u32::try_from(units).unwrap_or(u32::MAX));
        let room = tokio::select! {
            room = room => room.map_err(|_| Left)?,
            () = self.closed() => return Err(Left),
        };
        self.push(bytes, false, Some(room))
    }

    /// Sends a line of ours, which is short, to whoever is still there. That waits for nobody: who
    /// ends an execution does not wait until its client reads.
    pub(super) fn say(&self, line: impl Into<Bytes>) {
        let _ = self.push(line.into(), false, None);
    }

    /// The same for a line that does not matter much by itself: it goes with the next one, if that
    /// comes soon.
    pub(super) fn say_with_next(&self, line: impl Into<Bytes>) {
        let _ = self.push(line.into(), true, None);
    }

    fn push(
        &self,
        bytes: Bytes,
        waits: bool,
        room: Option<OwnedSemaphorePermit>,
    ) -> Result<(), Left> {
        let line = Line {
            bytes,
            waits,
            _room: room,
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

    #[tokio::test]
    async fn lines_come_out_in_order_and_short_ones_together() {
        let (feed, lines) = feed();
        let mut body = lines.body();
        for line in ["a\n", "b\n", "c\n"] {
            feed.send(line).await.unwrap();
        }
        drop(feed);
        let frame = body.frame().await.unwrap().unwrap();
        assert_eq!(frame.into_data().unwrap(), "a\nb\nc\n");
        assert!(body.frame().await.is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn who_does_not_read_holds_the_execution_up() {
        let (feed, lines) = feed();
        let mut body = lines.body();
        let line = Bytes::from(vec![b'x'; MAX_WAITING + 1]);
        feed.send(line.clone()).await.unwrap();
        let wait = Duration::from_secs(1);
        assert!(timeout(wait, feed.send("y")).await.is_err());
        feed.say("z");
        body.frame().await.unwrap().unwrap();
        feed.send("y").await.unwrap();
        let rest = body.frame().await.unwrap().unwrap();
        assert_eq!(rest.into_data().unwrap(), "zy");
    }

    #[tokio::test]
    async fn who_leaves_is_noticed_also_by_who_waits_for_room() {
        let (feed, lines) = feed();
        feed.send(vec![b'x'; MAX_WAITING]).await.unwrap();
        let (sent, ()) = tokio::join!(feed.send("y"), async { drop(lines) });
        assert_eq!(sent, Err(Left));
        feed.closed().await;
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_line_goes_with_the_next_but_does_not_wait_long() {
        let (feed, lines) = feed();
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
        let (feed, lines) = feed();
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
}
