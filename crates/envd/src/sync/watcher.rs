//! The thread that watches a home directory.
//!
//! It looks at everything once, and then at what the kernel tells of. A look compares what is there with the table, so it
//! does not matter what happened, in which order, or how often. When the kernel has lost something, it looks at everything
//! again, and reads only files whose stamp has changed.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::Mutex;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;
use shoal_protocol::sync::{WatchFailure, WatchLine};
use shoal_session_files::gitignore::Ignoring;
use shoal_session_files::path::SessionPath;
use shoal_session_files::state::Digest;
use tokio::sync::mpsc;

use super::dirty::Dirty;
use super::home::Home;
use super::notifier::{Noticed, Notifier};
use super::table::{Table, TooMany};

/// Bytes of lines that are sent together.
const PIECE: usize = 32 << 10;

/// How often a watch looks at everything that the kernel does not watch.
const RESCAN: Duration = Duration::from_secs(2);

/// How many times as long as the last look at everything the next one waits.
const REST: u32 = 4;

/// How often a flush looks at what is left to look at.
const LOOKS: usize = 3;

/// How many limits are told.
const LIMITS_MAX: usize = 100;

/// Why a watch ends.
#[derive(Debug, thiserror::Error)]
pub(super) enum WatchEnd {
    /// Nobody listens.
    #[error("nobody listens")]
    Closed,
    /// The home is too large.
    #[error(transparent)]
    TooMany(#[from] TooMany),
    /// The home is gone.
    #[error("the home directory was removed or renamed")]
    Gone,
    /// The kernel refuses.
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

/// What others ask of a watch.
#[derive(Debug)]
pub(super) struct Control {
    wake: OwnedFd,
    asked: Mutex<Asked>,
}

#[derive(Debug, Default)]
struct Asked {
    flush: u64,
    ended: bool,
}

impl Control {
    /// The control of a new watch.
    ///
    /// # Errors
    /// When there is no descriptor left.
    pub(super) fn new() -> Result<Self, Errno> {
        Ok(Self {
            wake: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            asked: Mutex::default(),
        })
    }

    /// Asks for a flush and returns its number; none when the watch has ended.
    pub(super) fn flush(&self) -> Option<u64> {
        let mut asked = self.asked.lock();
        if asked.ended {
            return None;
        }
        asked.flush += 1;
        self.wake();
        Some(asked.flush)
    }

    /// Ends the watch.
    pub(super) fn end(&self) {
        self.asked.lock().ended = true;
        self.wake();
    }

    fn wake(&self) {
        // It can only fail when it is awake.
        let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
    }

    /// Goes to sleep again. What was asked before that is to be looked at afterwards.
    fn sleep(&self) {
        let mut count = [0; 8];
        let _ = rustix::io::read(&self.wake, &mut count);
    }

    /// The last flush that was asked for.
    fn asked(&self) -> Result<u64, WatchEnd> {
        let asked = self.asked.lock();
        if asked.ended {
            return Err(WatchEnd::Closed);
        }
        Ok(asked.flush)
    }
}

/// Where the lines go.
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

    /// Tells a line, soon.
    pub(super) fn tell(&mut self, line: &WatchLine) -> Result<(), WatchEnd> {
        self.buffer.extend(encode(line));
        if self.buffer.len() < PIECE {
            return Ok(());
        }
        self.send()
    }

    /// Sends what was told. Waits while the reader is slow; the kernel remembers some thousand changes meanwhile.
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

/// A watch.
pub(super) struct Watcher {
    pub(super) home: Home,
    /// The path of the home.
    pub(super) path: PathBuf,
    /// The largest file that returns.
    pub(super) file_max: u64,
    pub(super) table: Arc<Mutex<Table>>,
    pub(super) notifier: Notifier,
    pub(super) dirty: Dirty,
    pub(super) rules: Ignoring,
    /// The digests of the `.gitignore` files that the rules are from, by directory.
    pub(super) ignore_files: BTreeMap<String, Digest>,
    pub(super) output: Output,
    control: Arc<Control>,
    limits: BTreeSet<(Option<SessionPath>, String)>,
    settled: u64,
    /// When it may look at everything again.
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

    /// Watches until nobody listens, or the watch fails. Blocking.
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
        loop {
            self.wait()?;
            self.control.sleep();
            let flush = self.control.asked()?;
            let flushes = flush > self.settled;
            let gone = self.read_events();
            if self.dirty.take_everything() || (self.is_rescan_due() || flushes) && self.is_blind()
            {
                self.scan_all()?;
            }
            for path in self.dirty.take(false, Instant::now()) {
                self.look_at(&path)?;
            }
            if flushes {
                self.settle(flush)?;
            }
            self.output.send()?;
            if gone || self.home.is_gone() {
                return Err(WatchEnd::Gone);
            }
        }
    }

    /// Whether something can change without the kernel telling of it.
    fn is_blind(&self) -> bool {
        self.notifier.is_partial()
    }

    fn is_rescan_due(&self) -> bool {
        Instant::now() >= self.rested
    }

    /// Waits for something to do.
    fn wait(&self) -> Result<(), WatchEnd> {
        let rescan = self.notifier.is_partial().then_some(self.rested);
        let due = self.dirty.next_due().into_iter().chain(rescan).min();
        let left = due.map(|due| due.saturating_duration_since(Instant::now()));
        let timeout = left.and_then(|left| Timespec::try_from(left).ok());
        let mut descriptors = vec![PollFd::new(&self.control.wake, PollFlags::IN)];
        descriptors.extend(self.notifier.fd().map(|fd| PollFd::new(fd, PollFlags::IN)));
        match poll(&mut descriptors, timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(errno) => Err(WatchEnd::Kernel(errno)),
        }
    }

    /// Takes what the kernel tells. Returns whether the home is gone.
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

    /// Tells that everything up to this flush was told.
    fn settle(&mut self, flush: u64) -> Result<(), WatchEnd> {
        // A look may find new directories, and a file may change during a look: then it has changed after the flush, too.
        for _ in 0..LOOKS {
            for path in self.dirty.take(true, Instant::now()) {
                self.look_at(&path)?;
            }
        }
        self.settled = flush;
        let at = self.table.lock().last();
        self.output.tell(&WatchLine::Settled { flush, at })?;
        self.output.send()
    }

    /// Tells that something is not seen, once.
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

    /// Fails when nobody listens any more.
    pub(super) fn check(&self) -> Result<(), WatchEnd> {
        self.control.asked().map(drop)
    }
}

#[cfg(test)]
mod tests;
