//! Output of a process.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::watch;

use super::output_channel::{Event, OutputChannel};
use crate::log::lines::{LineRate, Lines};
use crate::polled::Polled;

/// Longest pipe read per event (spec: 32 KiB).
const PIPE_CHUNK: usize = 32 << 10;

/// Longest terminal read per event (spec: 16 KiB).
const TERMINAL_CHUNK: usize = 16 << 10;

/// Bytes still read from a stream after its signalled process exited. More than the default pipe
/// capacity, so that all its own output is read; bounded, because its children may print forever.
const MAX_DRAINED: usize = 1 << 20;

/// Read buffer shared by all streams: no await occurs while it is locked.
pub(super) struct Scratch(Mutex<Box<[u8]>>);

impl Default for Scratch {
    fn default() -> Self {
        Self(Mutex::new(vec![0; PIPE_CHUNK].into_boxed_slice()))
    }
}

/// Output stream of a process.
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

    /// Name in log entries.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Stdout => "stdout",
            Self::Stderr => "stderr",
            Self::Terminal => "pty",
        }
    }
}

/// Reads one output stream to its end.
pub(super) struct Reader {
    /// The stream.
    pub(super) stream: Stream,
    /// Its descriptor.
    pub(super) fd: Arc<Polled>,
    /// Channel to the subscribers.
    pub(super) output: Arc<OutputChannel>,
    /// Set when only buffered output is still to be read.
    pub(super) drain_only: watch::Receiver<bool>,
    /// Line logger. Terminal output is not logged: it consists of screen updates, not lines.
    pub(super) lines: Option<Lines>,
}

impl Reader {
    /// Reads until the end of the stream.
    pub(super) async fn run(mut self, scratch: Arc<Scratch>, rate: Arc<LineRate>) {
        let mut remaining = MAX_DRAINED;
        loop {
            let draining = *self.drain_only.borrow();
            let bytes = match self.read(&scratch) {
                Ok(Some(bytes)) => bytes,
                Ok(None) if draining => break,
                Ok(None) => {
                    self.wait().await;
                    continue;
                }
                Err(_ended) => break,
            };
            if let Some(lines) = &mut self.lines {
                lines.push(&bytes, &rate);
            }
            remaining = remaining.saturating_sub(if draining { bytes.len() } else { 0 });
            self.output.publish(self.stream.event(bytes)).await;
            if remaining == 0 {
                break;
            }
        }
        if let Some(lines) = &mut self.lines {
            lines.finish(&rate);
        }
    }

    /// Reads available bytes. `None` if there are none now; an error at the end of the stream.
    fn read(&self, scratch: &Scratch) -> io::Result<Option<Bytes>> {
        let mut scratch = scratch.0.lock();
        let buffer = scratch
            .get_mut(..self.stream.chunk())
            .ok_or(io::ErrorKind::InvalidInput)?;
        let read = || rustix::io::read(self.fd.fd(), &mut *buffer);
        match rustix::io::retry_on_intr(read) {
            // All writers have closed.
            Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => Ok(buffer.get(..count).map(Bytes::copy_from_slice)),
            Err(rustix::io::Errno::AGAIN) => Ok(None),
            // The end of a terminal is reported as EIO.
            Err(error) => Err(error.into()),
        }
    }

    /// Waits for readiness, or for the signal to stop waiting.
    async fn wait(&mut self) {
        tokio::select! {
            ready = self.fd.readable() => {
                // The next read drains the stream until EAGAIN, so no data is missed.
                if let Ok(mut ready) = ready {
                    ready.clear_ready();
                }
            }
            _ = self.drain_only.changed() => {}
        }
    }
}
