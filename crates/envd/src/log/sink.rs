//! Writing without waiting.

use std::os::fd::{AsFd, OwnedFd};

use parking_lot::Mutex;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use tokio::sync::Notify;

use crate::polled::Polled;

/// A pipe or file that is written without waiting.
pub(super) struct Sink {
    state: Mutex<State>,
    /// Rings when something is left over.
    left_over: Notify,
}

struct State {
    fd: Option<OwnedFd>,
    /// The rest of a line of which the beginning is written.
    rest: Vec<u8>,
    /// Lines that nobody took.
    dropped: u64,
}

impl Sink {
    /// Standard output.
    ///
    /// Opened anew where the system allows it, so that not waiting is a property of ours and not
    /// of everybody who shares the pipe.
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

    /// Nowhere.
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
            left_over: Notify::new(),
        }
    }

    /// Writes a line, or counts it as dropped.
    pub(super) fn write(&self, line: &[u8]) {
        let mut state = self.state.lock();
        if !state.flush() {
            state.dropped += 1;
            self.left_over.notify_one();
            return;
        }
        match state.write_some(line) {
            Some(written) if written < line.len() => {
                state.rest = line.get(written..).unwrap_or_default().to_vec();
                self.left_over.notify_one();
            }
            Some(_) => {}
            None => {
                state.dropped += 1;
                self.left_over.notify_one();
            }
        }
    }

    /// Writes what is left over whenever there is room again. Never ends; costs nothing while
    /// nothing is left over.
    pub(super) async fn drain(&self) {
        loop {
            self.left_over.notified().await;
            let fd = self
                .state
                .lock()
                .fd
                .as_ref()
                .and_then(|fd| fd.try_clone().ok());
            // A plain file cannot be waited for, and never is full for a while only.
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
    /// Writes what is left over. False when some of it still is.
    fn flush(&mut self) -> bool {
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

    /// Writes as much as there is room for. `None` when there is none at all.
    fn write_some(&mut self, bytes: &[u8]) -> Option<usize> {
        let fd = self.fd.as_ref()?;
        match rustix::io::retry_on_intr(|| rustix::io::write(fd.as_fd(), bytes)) {
            Ok(0) | Err(Errno::AGAIN) => None,
            Ok(written) => Some(written),
            Err(_) => {
                // The reader is gone for good, and with it the reason to try.
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
    fn a_full_pipe_loses_whole_lines_and_says_how_many() {
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
    fn a_reader_that_is_gone_does_not_hurt() {
        let (reader, sink) = pipe();
        drop(reader);
        for _ in 0..3 {
            sink.write(b"line\n");
        }
    }
}
