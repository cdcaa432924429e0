//! The thread that watches a home directory.
//!
//! It scans the home once, and then the paths of inotify's events. A scan compares the files with the table, so the kind,
//! order and number of events do not matter. When the kernel dropped events, it scans everything again, and reads only the
//! files whose stamp changed.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use shoal_protocol::sync::{WatchFailure, WatchLine};
use shoal_session_files::gitignore::{self, Ignoring};
use shoal_session_files::path::SessionPath;
use shoal_session_files::state::Digest;
use tokio::sync::mpsc;

use super::control::Control;
use super::dirty::Dirty;
use super::home::Home;
use super::notifier::{Noticed, Notifier};
use super::run::Run;
use super::table::{Table, TooMany};

/// The maximum number of bytes of one batch of lines.
const PIECE: usize = 32 << 10;

/// The interval of full scans while some directories have no inotify watch.
const RESCAN: Duration = Duration::from_secs(2);

/// The shortest pause after a full scan, as a multiple of its duration.
const REST: u32 = 4;

/// How long events wait while the server writes many files: each file makes several.
const LULL: Duration = Duration::from_millis(30);

/// How many paths are looked at before the next events are read.
pub(super) const LOOKED: usize = 512;

/// How many times a flush scans the paths that changed during its own scans.
const LOOKS: usize = 3;

/// The maximum number of reported limits.
const LIMITS_MAX: usize = 100;

/// Why a watch ends.
#[derive(Debug, thiserror::Error)]
pub(super) enum WatchEnd {
    /// The client disconnected.
    #[error("nobody listens")]
    Closed,
    /// The home has too many files.
    #[error(transparent)]
    TooMany(#[from] TooMany),
    /// The home was removed.
    #[error("the home directory was removed or renamed")]
    Gone,
    /// A system call failed.
    #[error("the kernel does not tell of changes: {0}")]
    Kernel(Errno),
}

impl WatchEnd {
    fn line(&self) -> Option<WatchLine> {
        let reason = match self {
            Self::Closed => return None,
            Self::TooMany(_) => WatchFailure::TooMany,
            Self::Gone => WatchFailure::Gone,
            Self::Kernel(_) => WatchFailure::Other,
        };
        let message = self.to_string();
        Some(WatchLine::Failed { reason, message })
    }
}

/// A line of the answer, encoded.
pub(super) fn encode(line: &WatchLine) -> Vec<u8> {
    // Lines always encode.
    let mut text = serde_json::to_vec(line).unwrap_or_default();
    text.push(b'\n');
    text
}

/// The sender of lines to the client.
pub(super) struct Output {
    lines: mpsc::Sender<Bytes>,
    buffer: Vec<u8>,
}

impl Output {
    pub(super) fn new(lines: mpsc::Sender<Bytes>) -> Self {
        Self {
            lines,
            buffer: Vec::new(),
        }
    }

    /// Queues a line.
    pub(super) fn tell(&mut self, line: &WatchLine) -> Result<(), WatchEnd> {
        self.buffer.extend(encode(line));
        if self.buffer.len() < PIECE {
            return Ok(());
        }
        self.send()
    }

    /// Sends the queued lines. Blocks while the client is slow; the kernel queues thousands of events meanwhile.
    pub(super) fn send(&mut self) -> Result<(), WatchEnd> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        let piece = Bytes::from(std::mem::take(&mut self.buffer));
        self.lines
            .blocking_send(piece)
            .map_err(|_| WatchEnd::Closed)
    }
}

/// A watch of one home directory.
pub(super) struct Watcher {
    pub(super) home: Home,
    /// The path of the home.
    pub(super) path: PathBuf,
    /// The maximum size of a synchronized file, in bytes.
    pub(super) file_max: u64,
    pub(super) table: Arc<Mutex<Table>>,
    pub(super) notifier: Notifier,
    pub(super) dirty: Dirty,
    pub(super) rules: Ignoring,
    /// The digests of the `.gitignore` files of the rules, by directory.
    pub(super) ignore_files: BTreeMap<String, Digest>,
    pub(super) output: Output,
    control: Arc<Control>,
    limits: BTreeSet<(Option<SessionPath>, String)>,
    settled: u64,
    /// The earliest time of the next full scan.
    rested: Instant,
}

impl Watcher {
    pub(super) fn new(
        home: Home,
        path: PathBuf,
        file_max: u64,
        table: Arc<Mutex<Table>>,
        control: Arc<Control>,
        lines: mpsc::Sender<Bytes>,
    ) -> Self {
        Self {
            home,
            path,
            file_max,
            table,
            notifier: Notifier::new(),
            dirty: Dirty::default(),
            rules: Ignoring::default(),
            ignore_files: BTreeMap::new(),
            output: Output::new(lines),
            control,
            limits: BTreeSet::new(),
            settled: 0,
            rested: Instant::now(),
        }
    }

    /// Watches until the client disconnects or the watch fails. Blocking.
    pub(super) fn run(mut self) -> WatchEnd {
        let end = match self.watch() {
            Ok(never) => match never {},
            Err(end) => end,
        };
        self.control.end();
        if let Some(line) = end.line() {
            let _ = self.output.tell(&line).and_then(|()| self.output.send());
        }
        end
    }

    fn watch(&mut self) -> Result<std::convert::Infallible, WatchEnd> {
        self.scan_all()?;
        self.settle(0)?;
        let mut lull = None;
        loop {
            self.wait(lull.take())?;
            self.control.sleep();
            let flush = self.control.asked()?;
            let flushes = flush > self.settled;
            let gone = self.read_events();
            if self.dirty.take_everything() || (self.is_rescan_due() || flushes) && self.is_blind()
            {
                self.scan_all()?;
            }
            lull = self.look_at_due()?;
            if flushes {
                self.settle(flush)?;
            }
            self.output.send()?;
            if gone || self.home.is_gone() {
                return Err(WatchEnd::Gone);
            }
        }
    }

    /// Whether a path can change without an inotify event.
    fn is_blind(&self) -> bool {
        self.notifier.is_partial()
    }

    fn is_rescan_due(&self) -> bool {
        Instant::now() >= self.rested
    }

    /// Looks at some of the paths whose time has come. While the server writes many files, these are not read: changes
    /// inside are more urgent. If there were no others, returns how long the next events may wait.
    fn look_at_due(&mut self) -> Result<Option<Duration>, WatchEnd> {
        let now = Instant::now();
        let due = self.dirty.take_due(LOOKED, now);
        let count = due.len();
        let urgent = self.urgent(due, now);
        let lull = (count > 0 && urgent.is_empty()).then_some(LULL);
        self.look_at_all(urgent)?;
        Ok(lull)
    }

    /// Puts the files off that the server has just written, and returns the others.
    pub(super) fn urgent(&mut self, mut paths: Vec<SessionPath>, now: Instant) -> Vec<SessionPath> {
        let mut table = self.table.lock();
        if let Some(until) = table.busy_until(now) {
            let written =
                |path: &mut SessionPath| path.name() != gitignore::NAME && table.is_written(path);
            let later: Vec<_> = paths.extract_if(.., written).collect();
            for path in later {
                table.keep(&path);
                self.dirty.put_off(path, until, now);
            }
        }
        paths
    }

    /// Looks at paths, whose order is that of the names.
    pub(super) fn look_at_all(&mut self, paths: Vec<SessionPath>) -> Result<(), WatchEnd> {
        let mut directory: Option<Run> = None;
        for path in paths {
            if directory.as_ref().is_none_or(|run| !run.has(&path)) {
                directory = Run::open(&self.home, &path, false).ok();
            }
            // Without it, something has happened to the directory, and comes as its own event.
            if let Some(run) = &directory {
                self.look_at(run.directory(), &path)?;
            }
        }
        Ok(())
    }

    /// Waits for events, requests or the next full scan. For the time of a lull, only for requests.
    fn wait(&self, lull: Option<Duration>) -> Result<(), WatchEnd> {
        let requested = self.control.requested();
        if let Some(lull) = lull.and_then(|lull| Timespec::try_from(lull).ok()) {
            let mut asked = [PollFd::new(&requested, PollFlags::IN)];
            match poll(&mut asked, Some(&lull)) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(errno) => return Err(WatchEnd::Kernel(errno)),
            }
        }
        let rescan = self.notifier.is_partial().then_some(self.rested);
        let due = self.dirty.next_due().into_iter().chain(rescan).min();
        let left = due.map(|due| due.saturating_duration_since(Instant::now()));
        let timeout = left.and_then(|left| Timespec::try_from(left).ok());
        let mut descriptors = vec![PollFd::new(&requested, PollFlags::IN)];
        descriptors.extend(self.notifier.fd().map(|fd| PollFd::new(fd, PollFlags::IN)));
        match poll(&mut descriptors, timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(errno) => Err(WatchEnd::Kernel(errno)),
        }
    }

    /// Reads inotify's events. Returns whether the home was removed.
    pub(super) fn read_events(&mut self) -> bool {
        let (now, mut gone) = (Instant::now(), false);
        let dirty = &mut self.dirty;
        self.notifier.read(|noticed| match noticed {
            Noticed::At {
                directory,
                name,
                complete,
            } => {
                if let Ok(path) = SessionPath::join(&directory, &name) {
                    dirty.note(path, complete, now);
                }
            }
            Noticed::Lost => dirty.note_everything(),
            Noticed::HomeGone => gone = true,
        });
        gone
    }

    fn scan_all(&mut self) -> Result<(), WatchEnd> {
        let begun = Instant::now();
        self.scan("", false)?;
        let took = begun.elapsed();
        self.rested = Instant::now() + RESCAN.max(took.saturating_mul(REST));
        if self.notifier.is_partial() {
            let reason = "the system watches no more directories: changes in some are seen late";
            self.limit(None, reason.to_owned())?;
        }
        Ok(())
    }

    /// Reports that all changes before this flush were reported.
    fn settle(&mut self, flush: u64) -> Result<(), WatchEnd> {
        // A scan may find new directories. A file that changes during a scan also changed after the flush.
        for _ in 0..LOOKS {
            let all = self.dirty.take_all();
            self.look_at_all(all)?;
        }
        self.settled = flush;
        let at = self.table.lock().last();
        self.output.tell(&WatchLine::Settled { flush, at })?;
        self.output.send()
    }

    /// Reports a limit of the watch, once.
    pub(super) fn limit(
        &mut self,
        path: Option<SessionPath>,
        reason: String,
    ) -> Result<(), WatchEnd> {
        if self.limits.len() >= LIMITS_MAX || !self.limits.insert((path.clone(), reason.clone())) {
            return Ok(());
        }
        self.output.tell(&WatchLine::Limited { path, reason })
    }

    /// Fails if the client disconnected.
    pub(super) fn check(&self) -> Result<(), WatchEnd> {
        self.control.asked().map(drop)
    }
}

#[cfg(test)]
mod tests;
