//! Non-blocking output.

use std::os::fd::{AsFd, OwnedFd};

use parking_lot::Mutex;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use tokio::sync::Notify;

use crate::polled::Polled;

/// A pipe or file written without blocking.
pub(super) struct Sink {
    state: Mutex<State>,
    /// Notified when output is pending.
    pending: Notify,
}

struct State {
    fd: Option<OwnedFd>,
    /// The remainder of a partially written line.
    rest: Vec<u8>,
    /// Number of lines dropped.
    dropped: u64,
}

impl Sink {
    /// Standard output.
    ///
    /// Reopened where the system permits it: `O_NONBLOCK` must not affect other holders of the
    /// pipe.
    pub(super) fn stdout() -> Self {
        let stdout = rustix::stdio::stdout();
        let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::APPEND | OFlags::CLOEXEC;
        let fd = rustix::fs::open("/proc/self/fd/1", flags, Mode::empty()).or_else(|_| {
            let own = rustix::io::fcntl_dupfd_cloexec(stdout, 3)?;
            let flags = rustix::fs::fcntl_getfl(&own)?;
            rustix::fs::fcntl_setfl(&own, flags | OFlags::NONBLOCK)?;
            Ok::<_, Errno>(own)
        });
        Self::new(fd.ok())
    }

    /// A sink that discards everything.
    #[cfg(test)]
    pub(super) fn none() -> Self {
        Self::new(None)
    }

    fn new(fd: Option<OwnedFd>) -> Self {
        Self {
            state: Mutex::new(State {
                fd,
                rest: Vec::new(),
                dropped: 0,
            }),
            pending: Notify::new(),
        }
    }

    /// Writes a line, or counts it as dropped.
    pub(super) fn write(&self, line: &[u8]) {
        let mut state = self.state.lock();
        if !state.flush() {
            state.dropped += 1;
            self.pending.notify_one();
            return;
        }
        match state.write_some(line) {
            Some(written) if written < line.len() => {
                state.rest = line.get(written..).unwrap_or_default().to_vec();
                self.pending.notify_one();
            }
            Some(_) => {}
            None => {
                state.dropped += 1;
                self.pending.notify_one();
            }
        }
    }

    /// Flushes pending output whenever the pipe has room. Never returns; idle while nothing is
    /// pending.
    pub(super) async fn drain(&self) {
        loop {
            self.pending.notified().await;
            let fd = self
                .state
                .lock()
                .fd
                .as_ref()
                .and_then(|fd| fd.try_clone().ok());
            // A regular file cannot be polled, and never blocks.
            let Some(fd) = fd.and_then(|fd| Polled::new(fd).ok()) else {
                continue;
            };
            while !self.state.lock().flush() {
                match fd.writable().await {
                    Ok(mut room) => room.clear_ready(),
                    Err(_) => break,
                }
            }
        }
    }
}

impl State {
    /// Flushes pending output. False if some remains.
    fn flush(&mut self) -> bool {
        if self.fd.is_none() {
            self.rest.clear();
            self.dropped = 0;
            return true;
        }
        if !self.rest.is_empty() {
            let rest = std::mem::take(&mut self.rest);
            let written = self.write_some(&rest).unwrap_or(0);
            self.rest = rest.get(written..).unwrap_or_default().to_vec();
        }
        if self.rest.is_empty() && self.dropped > 0 {
            let report = format!(
                "{{\"level\":\"warn\",\"logger\":\"envd\",\"message\":\"log lines were dropped\",\"dropped\":{}}}\n",
                self.dropped
            );
            match self.write_some(report.as_bytes()) {
                Some(written) => {
                    self.dropped = 0;
                    self.rest = report.into_bytes().split_off(written);
                }
                None => return false,
            }
        }
        self.rest.is_empty()
    }

    /// Writes as much as fits. `None` if nothing fits.
    fn write_some(&mut self, bytes: &[u8]) -> Option<usize> {
        let fd = self.fd.as_ref()?;
        match rustix::io::retry_on_intr(|| rustix::io::write(fd.as_fd(), bytes)) {
            Ok(0) | Err(Errno::AGAIN) => None,
            Ok(written) => Some(written),
            Err(_) => {
                // The reader is gone: stop writing.
                self.fd = None;
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;

    fn pipe() -> (std::fs::File, Sink) {
        let (reader, writer) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::NONBLOCK).unwrap();
        (reader.into(), Sink::new(Some(writer)))
    }

    fn read_all(file: &mut std::fs::File) -> Vec<u8> {
        let (mut all, mut buf) = (Vec::new(), [0; 4096]);
        while let Ok(count @ 1..) = file.read(&mut buf) {
            all.extend_from_slice(&buf[..count]);
        }
        all
    }

    #[test]
    fn a_full_pipe_drops_whole_lines_and_counts_them() {
        let (mut reader, sink) = pipe();
        let line = [&[b'x'; 4999][..], b"\n"].concat();
        for _ in 0..100 {
            sink.write(&line);
        }
        let first = read_all(&mut reader);
        sink.write(b"after\n");
        let text = String::from_utf8([first, read_all(&mut reader)].concat()).unwrap();
        let lines: Vec<_> = text.lines().collect();
        let whole = lines.iter().filter(|line| line.len() == 4999).count();
        let report: serde_json::Value = serde_json::from_str(lines[whole]).unwrap();
        assert_eq!(report["dropped"], 100 - whole);
        assert_eq!(lines[whole + 1..], ["after"]);
    }

    #[test]
    fn a_closed_pipe_is_ignored() {
        let (reader, sink) = pipe();
        drop(reader);
        for _ in 0..3 {
            sink.write(b"line\n");
        }
        assert!(sink.state.lock().flush());
    }

    #[tokio::test]
    async fn a_closed_full_pipe_does_not_block_the_drain() {
        let (reader, sink) = pipe();
        let sink = std::sync::Arc::new(sink);
        let drain = tokio::spawn({
            let sink = std::sync::Arc::clone(&sink);
            async move { sink.drain().await }
        });
        for _ in 0..100 {
            sink.write(&[b'x'; 5000]);
        }
        tokio::task::yield_now().await;
        drop(reader);
        // The drain notices the closed pipe and waits for the next line.
        while sink.state.lock().fd.is_some() {
            tokio::task::yield_now().await;
        }
        tokio::task::yield_now().await;
        assert!(!drain.is_finished());
        assert!(sink.state.lock().flush());
    }
}
