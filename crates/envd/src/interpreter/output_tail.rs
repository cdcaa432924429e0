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
const TAIL_LENGTH: usize = 2 << 10;

/// Timeout for remaining output after the exit.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(1);

/// The end of a kernel's output.
#[derive(Default)]
pub(super) struct OutputTail {
    tail: Arc<Mutex<VecDeque<u8>>>,
    readers: JoinSet<()>,
}

impl OutputTail {
    /// Starts to read.
    pub(super) fn capture(streams: [OwnedFd; 2]) -> Self {
        let tail = Arc::<Mutex<VecDeque<u8>>>::default();
        let mut readers = JoinSet::new();
        for stream in streams {
            // They are non-blocking pipes.
            if let Ok(stream) = Receiver::from_owned_fd(stream) {
                readers.spawn(read(stream, Arc::clone(&tail)));
            }
        }
        Self { tail, readers }
    }

    /// The captured text, after the exit.
    pub(super) async fn after_exit(&mut self) -> String {
        let all = async { while self.readers.join_next().await.is_some() {} };
        let _ = tokio::time::timeout(DRAIN_TIMEOUT, all).await;
        self.so_far()
    }

    /// The captured text so far.
    pub(super) fn so_far(&self) -> String {
        let tail: Vec<u8> = self.tail.lock().iter().copied().collect();
        let text = String::from_utf8_lossy(&tail);
        match text.trim() {
            "" => "no output".to_owned(),
            text => text.to_owned(),
        }
    }
}

async fn read(mut stream: Receiver, tail: Arc<Mutex<VecDeque<u8>>>) {
    let mut buffer = [0; TAIL_LENGTH];
    while let Ok(count @ 1..) = stream.read(&mut buffer).await {
        let mut tail = tail.lock();
        tail.extend(buffer.iter().take(count));
        let surplus = tail.len().saturating_sub(TAIL_LENGTH);
        tail.drain(..surplus);
    }
}
