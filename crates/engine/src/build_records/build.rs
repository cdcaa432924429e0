//! One build, with its log and its resources while it runs.

use std::collections::HashSet;
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};
use shoal_core::build::{BuildLogEntry, BuildRecord, LogLevel, Part};
use shoal_core::clock::Timestamp;
use shoal_core::id::SnapshotId;
use tokio::sync::watch;

/// The most lines of a build's log.
const LINES_MAX: usize = 10_000;

/// The most bytes of a build's log.
const LOG_MAX: usize = 2 << 20;

/// The most bytes of a line.
const LINE_MAX: usize = 4 << 10;

/// A build with the log of its run.
#[derive(Debug)]
pub(crate) struct Build {
    record: RwLock<Arc<BuildRecord>>,
    log: Mutex<Log>,
    /// The snapshots that it uses or has made. The end of another build must not remove them.
    held: Mutex<HashSet<SnapshotId>>,
    /// Becomes true when it must end.
    pub(crate) cancelled: watch::Sender<bool>,
    /// Turns true when nothing more will happen.
    ended: watch::Sender<bool>,
}

impl Build {
    pub(super) fn new(record: BuildRecord) -> Arc<Self> {
        Arc::new(Self {
            record: RwLock::new(Arc::new(record)),
            log: Mutex::default(),
            held: Mutex::default(),
            cancelled: watch::Sender::new(false),
            ended: watch::Sender::new(false),
        })
    }

    pub(crate) fn record(&self) -> Arc<BuildRecord> {
        self.record.read().clone()
    }

    /// Lets its next value be seen.
    pub(super) fn show(&self, next: BuildRecord) {
        *self.record.write() = Arc::new(next);
    }

    /// The part of its log that is still in memory.
    pub(super) fn said(&self) -> Vec<BuildLogEntry> {
        self.log.lock().lines.clone()
    }

    /// Forgets its output.
    pub(super) fn forget_said(&self) {
        *self.log.lock() = Log::default();
    }

    /// The snapshots that are kept for it.
    pub(super) fn held(&self) -> Vec<SnapshotId> {
        self.held.lock().iter().copied().collect()
    }

    /// Keeps none of them any more.
    pub(super) fn let_go(&self) -> Vec<SnapshotId> {
        self.held.lock().drain().collect()
    }

    /// Keeps a snapshot as long as the build is carried out.
    pub(crate) fn hold(&self, id: SnapshotId) {
        self.held.lock().insert(id);
    }

    /// The part that spoke last.
    pub(crate) fn last_part(&self) -> Option<Part> {
        self.log.lock().lines.last().and_then(|entry| entry.part)
    }

    /// Says that nothing more will happen: its tags mean what it has made.
    pub(crate) fn end(&self) {
        self.ended.send_replace(true);
    }

    /// Ends when the build has.
    pub(crate) async fn ended(&self) {
        // The sender is here: it cannot go.
        let _ = self.ended.subscribe().wait_for(|ended| *ended).await;
    }

    /// Records a line. A long line is cut; after too many lines, one note says so.
    pub(crate) fn say(&self, at: Timestamp, level: LogLevel, part: Option<Part>, message: &str) {
        self.log.lock().take(BuildLogEntry {
            at,
            level,
            message: cut(message),
            part,
        });
    }
}

/// The log of a build, within bounds.
#[derive(Debug, Default)]
struct Log {
    lines: Vec<BuildLogEntry>,
    bytes: usize,
    full: bool,
}

impl Log {
    fn take(&mut self, mut entry: BuildLogEntry) {
        let full = self.lines.len() >= LINES_MAX || self.bytes >= LOG_MAX;
        // Why it failed is kept in any case.
        if full && entry.level < LogLevel::Error {
            if self.full {
                return;
            }
            self.full = true;
            "(what it says from here on is not kept)".clone_into(&mut entry.message);
        }
        self.bytes += entry.message.len();
        self.lines.push(entry);
    }
}

/// A line within the bound.
fn cut(message: &str) -> String {
    let mut end = message.len().min(LINE_MAX);
    while !message.is_char_boundary(end) {
        end -= 1;
    }
    message[..end].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_without_end_is_not_kept_and_why_it_failed_is() {
        let mut log = Log::default();
        let line = |level| BuildLogEntry {
            at: Timestamp::from_unix_millis(0),
            level,
            message: "x".repeat(LINE_MAX),
            part: None,
        };
        for _ in 0..2 * LOG_MAX / LINE_MAX {
            log.take(line(LogLevel::Info));
        }
        assert!(log.bytes < LOG_MAX + 2 * LINE_MAX);
        let lines = log.lines.len();
        log.take(line(LogLevel::Error));
        assert_eq!(log.lines.len(), lines + 1);
    }

    #[test]
    fn a_line_is_cut_between_characters() {
        let long = "ä".repeat(LINE_MAX);
        assert!(cut(&long).len() <= LINE_MAX);
        assert_eq!(cut("short"), "short");
    }
}
