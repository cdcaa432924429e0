//! Captures the output of a command, within bounds.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe::Receiver;
use tokio::task::JoinSet;

/// Bytes kept of each stream. Clients of the API accept 16 MiB in all.
pub(super) const KEPT: usize = 4 << 20;

/// Read size.
const PIECE: usize = 64 << 10;

/// How long output is awaited after the exit, while other processes have the pipes open.
const AFTER_EXIT: Duration = Duration::from_secs(1);

/// The output of a stream so far.
#[derive(Default)]
struct Kept {
    bytes: Vec<u8>,
    /// Whether more came than is kept.
    cut: bool,
    /// Whether the result was taken: later output is discarded.
    taken: bool,
}

/// The output of a command while it is read.
pub(super) struct Capture {
    streams: [Arc<Mutex<Kept>>; 2],
    readers: JoinSet<()>,
}

/// The captured text of a stream.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Captured {
    /// The text. Bytes that are no UTF-8 are replaced.
    pub(super) text: String,
    /// Whether it is only the beginning.
    pub(super) cut: bool,
}

impl Capture {
    /// Starts to read standard output and error.
    pub(super) fn start(output: [OwnedFd; 2]) -> Self {
        let mut readers = JoinSet::new();
        let streams = output.map(|stream| {
            let kept = Arc::<Mutex<Kept>>::default();
            // They are non-blocking pipes.
            if let Ok(stream) = Receiver::from_owned_fd(stream) {
                readers.spawn(read(stream, Arc::clone(&kept)));
            }
            kept
        });
        Self { streams, readers }
    }

    /// The captured output, after the exit. Processes that the command left behind may still print;
    /// their output is discarded, so that they do not fail.
    pub(super) async fn finish(mut self) -> [Captured; 2] {
        let all = async { while self.readers.join_next().await.is_some() {} };
        let _ = tokio::time::timeout(AFTER_EXIT, all).await;
        self.readers.detach_all();
        self.streams.map(|kept| {
            let mut kept = kept.lock();
            kept.taken = true;
            Captured {
                text: String::from_utf8_lossy(&std::mem::take(&mut kept.bytes)).into_owned(),
                cut: kept.cut,
            }
        })
    }
}

async fn read(mut stream: Receiver, kept: Arc<Mutex<Kept>>) {
    let mut piece = vec![0; PIECE];
    while let Ok(count @ 1..) = stream.read(&mut piece).await {
        let mut kept = kept.lock();
        if kept.taken {
            continue;
        }
        let room = KEPT - kept.bytes.len();
        kept.cut |= count > room;
        kept.bytes.extend(piece.iter().take(count.min(room)));
    }
}
