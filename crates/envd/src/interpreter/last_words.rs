//! Captures a kernel's output outside of messages. It is drained so that the kernel never blocks;
//! only its end is kept, to explain an exit.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe::Receiver;
use tokio::task::JoinSet;

/// Bytes kept.
const KEPT: usize = 2 << 10;

/// Timeout for remaining output after the exit.
const LAST: Duration = Duration::from_millis(200);

/// The end of a kernel's output.
#[derive(Default)]
pub(super) struct LastWords {
    kept: Arc<Mutex<VecDeque<u8>>>,
    readers: JoinSet<()>,
}

impl LastWords {
    /// Starts to read.
    pub(super) fn of(streams: [OwnedFd; 2]) -> Self {
        let kept = Arc::<Mutex<VecDeque<u8>>>::default();
        let mut readers = JoinSet::new();
        for stream in streams {
            // They are non-blocking pipes.
            if let Ok(stream) = Receiver::from_owned_fd(stream) {
                readers.spawn(read(stream, Arc::clone(&kept)));
            }
        }
        Self { kept, readers }
    }

    /// The captured text, after the exit.
    pub(super) async fn wait(&mut self) -> String {
        let all = async { while self.readers.join_next().await.is_some() {} };
        let _ = tokio::time::timeout(LAST, all).await;
        self.now()
    }

    /// The captured text so far.
    pub(super) fn now(&self) -> String {
        let kept: Vec<u8> = self.kept.lock().iter().copied().collect();
        let text = String::from_utf8_lossy(&kept);
        match text.trim() {
            "" => "no output".to_owned(),
            text => text.to_owned(),
        }
    }
}

async fn read(mut stream: Receiver, kept: Arc<Mutex<VecDeque<u8>>>) {
    let mut buffer = [0; KEPT];
    while let Ok(count @ 1..) = stream.read(&mut buffer).await {
        let mut kept = kept.lock();
        kept.extend(buffer.iter().take(count));
        let surplus = kept.len().saturating_sub(KEPT);
        kept.drain(..surplus);
    }
}
