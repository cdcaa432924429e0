//! What goes from an execution to its client: bounded in bytes, so that who prints faster than the
//! client reads is held up, and not the daemon filled.

use std::convert::Infallible;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use futures_util::stream;
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

use crate::answer::Body;

/// How many bytes may wait for a client that reads slowly. A single line may be longer.
const MAX_WAITING: usize = 16 << 20;

/// What room is counted in, so that many short lines are bounded too.
const UNIT: usize = 256;

/// About how many bytes are sent at a time when there are many short lines.
const CHUNK: usize = 64 << 10;

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
    _room: Option<OwnedSemaphorePermit>,
}

/// A feed, and the body of the answer that it goes into.
pub(super) fn feed() -> (Feed, Body) {
    let (lines, waiting) = mpsc::unbounded_channel();
    let room = Arc::new(Semaphore::new(MAX_WAITING / UNIT));
    let chunks = stream::unfold(waiting, |mut waiting| async {
        let chunk = next(&mut waiting).await?;
        Some((Ok::<_, Infallible>(Frame::data(chunk)), waiting))
    });
    let body = StreamBody::new(chunks).map_err(|never| match never {});
    (Feed { lines, room }, body.boxed_unsync())
}

/// The next line, and those that wait behind it as far as they are short.
async fn next(waiting: &mut mpsc::UnboundedReceiver<Line>) -> Option<Bytes> {
    let first = waiting.recv().await?;
    if waiting.is_empty() || first.bytes.len() >= CHUNK {
        return Some(first.bytes);
    }
    let mut chunk = BytesMut::from(&first.bytes[..]);
    while chunk.len() < CHUNK
        && let Ok(line) = waiting.try_recv()
    {
        chunk.extend_from_slice(&line.bytes);
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
        self.push(bytes, Some(room))
    }

    /// Sends a line of ours, which is short, to whoever is still there. That waits for nobody: who
    /// ends an execution does not wait until its client reads.
    pub(super) fn say(&self, line: impl Into<Bytes>) {
        let _ = self.push(line.into(), None);
    }

    fn push(&self, bytes: Bytes, room: Option<OwnedSemaphorePermit>) -> Result<(), Left> {
        let line = Line { bytes, _room: room };
        self.lines.send(line).map_err(|_| Left)
    }

    /// Waits until the client has gone.
    pub(super) async fn closed(&self) {
        self.lines.closed().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn lines_come_out_in_order_and_short_ones_together() {
        let (feed, mut body) = feed();
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
        let (feed, mut body) = feed();
        let line = Bytes::from(vec![b'x'; MAX_WAITING + 1]);
        feed.send(line.clone()).await.unwrap();
        let wait = std::time::Duration::from_secs(1);
        assert!(tokio::time::timeout(wait, feed.send("y")).await.is_err());
        feed.say("z");
        body.frame().await.unwrap().unwrap();
        feed.send("y").await.unwrap();
        let rest = body.frame().await.unwrap().unwrap();
        assert_eq!(rest.into_data().unwrap(), "zy");
    }

    #[tokio::test]
    async fn who_leaves_is_noticed_also_by_who_waits_for_room() {
        let (feed, body) = feed();
        feed.send(vec![b'x'; MAX_WAITING]).await.unwrap();
        let (sent, ()) = tokio::join!(feed.send("y"), async { drop(body) });
        assert_eq!(sent, Err(Left));
        feed.closed().await;
    }
}
