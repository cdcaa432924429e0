//! The past output of a window, for clients that attach later.

use std::collections::VecDeque;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::watch;

/// How much of a window's output is kept, in bytes.
const KEPT: usize = 256 << 10;

/// The last output of a window. Offsets count from its opening.
#[derive(Debug)]
pub(crate) struct Scrollback {
    kept: Mutex<VecDeque<u8>>,
    /// The offset of the end.
    end: watch::Sender<u64>,
}

impl Default for Scrollback {
    fn default() -> Self {
        Self {
            kept: Mutex::default(),
            end: watch::Sender::new(0),
        }
    }
}

impl Scrollback {
    /// Appends output. The oldest goes when there is too much.
    pub(crate) fn push(&self, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        let mut kept = self.kept.lock();
        kept.extend(bytes);
        let over = kept.len().saturating_sub(KEPT);
        kept.drain(..over);
        // Under the lock, so that the offset matches the buffer.
        self.end.send_modify(|end| *end += bytes.len() as u64);
    }

    /// The output from `since` on, and its offset, which is later than `since` if the beginning is not kept any more.
    pub(crate) fn since(&self, since: u64) -> (u64, Bytes) {
        let kept = self.kept.lock();
        let end = *self.end.borrow();
        let oldest = end - kept.len() as u64;
        let start = since.clamp(oldest, end);
        // At most the length of the buffer, which is a `usize`.
        let skipped = usize::try_from(start - oldest).unwrap_or(kept.len());
        (start, kept.iter().skip(skipped).copied().collect())
    }

    /// Tells of more output.
    pub(crate) fn watch(&self) -> watch::Receiver<u64> {
        self.end.subscribe()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_output_goes_first() {
        let scrollback = Scrollback::default();
        scrollback.push(b"begin");
        assert_eq!(scrollback.since(2), (2, Bytes::from_static(b"gin")));
        assert_eq!(scrollback.since(99), (5, Bytes::new()));
        scrollback.push(&vec![b'x'; KEPT]);
        let (start, kept) = scrollback.since(0);
        assert_eq!((start, kept.len()), (5, KEPT));
        assert_eq!(*scrollback.watch().borrow(), 5 + KEPT as u64);
    }
}
