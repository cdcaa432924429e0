//! Process output as log entries.

use std::time::{Duration, Instant};

use memchr::memchr;
use parking_lot::Mutex;

use super::rate::Rate;
use super::{Level, Log};

/// Longest output line per entry, in bytes. Longer lines are split.
const MAX_PROCESS_LINE: usize = 8 << 10;

/// Rate limit of logged lines over all processes. The log is for reading; subscribers receive the
/// complete output.
const BURST: u32 = 512;
const INTERVAL: Duration = Duration::from_millis(10);

/// Rate limit shared by all processes.
pub(crate) struct LineRate(Mutex<Rate>);

impl Default for LineRate {
    fn default() -> Self {
        Self(Mutex::new(Rate::new(BURST, INTERVAL, Instant::now())))
    }
}

/// Splits one output stream of a process into lines.
pub(crate) struct Lines {
    log: Log,
    stream: &'static str,
    pid: u32,
    partial: Vec<u8>,
}

impl Lines {
    /// A splitter for one stream of a process.
    pub(crate) fn new(log: Log, stream: &'static str, pid: u32) -> Self {
        Self {
            log,
            stream,
            pid,
            partial: Vec::new(),
        }
    }

    /// Adds output.
    pub(crate) fn push(&mut self, mut bytes: &[u8], rate: &LineRate) {
        while let Some(end) = memchr(b'\n', bytes) {
            let (line, rest) = bytes.split_at(end);
            self.partial.extend_from_slice(line);
            self.send(rate);
            bytes = rest.get(1..).unwrap_or_default();
        }
        for piece in bytes.chunks(MAX_PROCESS_LINE) {
            if self.partial.len() + piece.len() > MAX_PROCESS_LINE {
                self.send(rate);
            }
            self.partial.extend_from_slice(piece);
        }
    }

    /// Logs an incomplete last line.
    pub(crate) fn finish(&mut self, rate: &LineRate) {
        if !self.partial.is_empty() {
            self.send(rate);
        }
    }

    fn send(&mut self, rate: &LineRate) {
        let line = std::mem::take(&mut self.partial);
        for piece in line.chunks(MAX_PROCESS_LINE) {
            let Some(refused) = rate.0.lock().allow(Instant::now()) else {
                continue;
            };
            let mut entry = self
                .log
                .entry(Level::Info, "process", "output")
                .with("stream", self.stream)
                .with("pid", self.pid)
                .with_long("line", &String::from_utf8_lossy(piece));
            if refused > 0 {
                entry = entry.with("left_out", refused);
            }
            entry.send();
        }
        // Reuse the buffer.
        self.partial = line;
        self.partial.clear();
    }
}
