//! Reading what a process prints.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::watch;

use super::feed::{Event, Feed};
use crate::log::lines::{LineRate, Lines};
use crate::polled::Polled;

/// The most bytes of a pipe in one event (spec: 32 KiB).
const PIPE_CHUNK: usize = 32 << 10;

/// The most bytes of a terminal in one event (spec: 16 KiB).
const TERMINAL_CHUNK: usize = 16 << 10;

/// How many bytes are still taken of a stream whose process was told to end and did: more than a
/// pipe holds by default, so that nothing of its own is lost, and no more, as its children may
/// print for ever.
const LEFT_IN_PIPE: usize = 1 << 20;

/// Where bytes are read to before they are known to be few or many. One serves all streams, as
/// nothing waits while it is in use.
pub(super) struct Scratch(Mutex<Box<[u8]>>);

impl Default for Scratch {
    fn default() -> Self {
        Self(Mutex::new(vec![0; PIPE_CHUNK].into_boxed_slice()))
    }
}

/// Which stream it is.
#[derive(Debug, Clone, Copy)]
pub(super) enum Stream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
    /// The terminal.
    Terminal,
}

impl Stream {
    fn event(self, bytes: Bytes) -> Event {
        match self {
            Self::Stdout => Event::Stdout(bytes),
            Self::Stderr => Event::Stderr(bytes),
            Self::Terminal => Event::Terminal(bytes),
        }
    }

    fn chunk(self) -> usize {
        match self {
            Self::Stdout | Self::Stderr => PIPE_CHUNK,
            Self::Terminal => TERMINAL_CHUNK,
        }
    }

    /// What the log calls it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Stdout => "stdout",
            Self::Stderr => "stderr",
            Self::Terminal => "pty",
        }
    }
}

/// Reads one stream of a process to its end.
pub(super) struct Reader {
    /// Which it is.
    pub(super) stream: Stream,
    /// What it is read from.
    pub(super) fd: Arc<Polled>,
    /// Who listens.
    pub(super) feed: Arc<Feed>,
    /// Becomes true when only what is there already shall be read.
    pub(super) leave: watch::Receiver<bool>,
    /// Makes log entries of it. A terminal is not logged: it is pictures rather than lines.
    pub(super) lines: Option<Lines>,
}

impl Reader {
    /// Reads until there is nothing more to come.
    pub(super) async fn run(mut self, scratch: Arc<Scratch>, rate: Arc<LineRate>) {
        let mut left = LEFT_IN_PIPE;
        loop {
            let leaving = *self.leave.borrow();
            let bytes = match self.read(&scratch) {
                Ok(Some(bytes)) => bytes,
                Ok(None) if leaving => break,
                Ok(None) => {
                    self.wait().await;
                    continue;
                }
                Err(_ended) => break,
            };
            if let Some(lines) = &mut self.lines {
                lines.push(&bytes, &rate);
            }
            left = left.saturating_sub(if leaving { bytes.len() } else { 0 });
            self.feed.publish(self.stream.event(bytes)).await;
            if left == 0 {
                break;
            }
        }
        if let Some(lines) = &mut self.lines {
            lines.finish(&rate);
        }
    }

    /// What is there now. `None` when there is nothing, an error when nothing can come.
    fn read(&self, scratch: &Scratch) -> io::Result<Option<Bytes>> {
        let mut scratch = scratch.0.lock();
        let buffer = scratch
            .get_mut(..self.stream.chunk())
            .ok_or(io::ErrorKind::InvalidInput)?;
        let read = || rustix::io::read(self.fd.fd(), &mut *buffer);
        match rustix::io::retry_on_intr(read) {
            // The last writer is gone.
            Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => Ok(buffer.get(..count).map(Bytes::copy_from_slice)),
            Err(rustix::io::Errno::AGAIN) => Ok(None),
            // A terminal nobody has open any more says so by EIO.
            Err(error) => Err(error.into()),
        }
    }

    /// Waits until there is something, or nobody waits any longer.
    async fn wait(&mut self) {
        tokio::select! {
            ready = self.fd.readable() => {
                // Reading goes on until there is nothing, so what is asked for next is news.
                if let Ok(mut ready) = ready {
                    ready.clear_ready();
                }
            }
            _ = self.leave.changed() => {}
        }
    }
}
