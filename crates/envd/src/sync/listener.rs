//! The answer to a request for a watch.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::stream;
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use parking_lot::Mutex;
use shoal_protocol::sync::{KEEPALIVE, WatchFailure, WatchLine};
use tokio::sync::{Notify, mpsc};

use super::Current;
use super::control::Control;
use super::watcher::encode;
use crate::heap::HeapTrimmer;
use crate::response::{BodyError, HttpResponse};

/// The memory that a watch may have used: worth giving back to the kernel.
const TABLE_SIZE: u64 = 32 << 20;

/// The reader of a watch. Ends the watch when dropped.
pub(super) struct Listener {
    pub(super) lines: mpsc::Receiver<Bytes>,
    pub(super) replaced: Arc<Notify>,
    pub(super) control: Arc<Control>,
    pub(super) current: Arc<Mutex<Option<Current>>>,
    pub(super) heap: Arc<HeapTrimmer>,
    pub(super) ended: bool,
}

impl Listener {
    /// The answer that it becomes.
    pub(super) fn answer(self) -> HttpResponse {
        let pieces = stream::unfold(self, async |mut listener: Self| {
            let piece = listener.next().await?;
            Some((Ok::<_, BodyError>(Frame::data(piece)), listener))
        });
        HttpResponse::new(StreamBody::new(pieces).boxed_unsync())
    }

    /// The next piece of the answer.
    async fn next(&mut self) -> Option<Bytes> {
        if self.ended {
            return None;
        }
        let piece = tokio::select! {
            biased;
            () = self.replaced.notified() => {
                self.ended = true;
                let line = WatchLine::Failed {
                    reason: WatchFailure::Replaced,
                    message: "another watch has begun".to_owned(),
                };
                return Some(encode(&line).into());
            }
            piece = tokio::time::timeout(KEEPALIVE, self.lines.recv()) => piece,
        };
        piece.unwrap_or_else(|_| Some(Bytes::from_static(b"\n")))
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.control.end();
        let mut current = self.current.lock();
        if current
            .as_ref()
            .is_some_and(|current| Arc::ptr_eq(&current.control, &self.control))
        {
            *current = None;
        }
        self.heap.record_transfer(TABLE_SIZE);
    }
}
