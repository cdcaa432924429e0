//! The known files of a home directory, and which of them were reported.
//!
//! The watch and the changes from the server share the table, and hold its lock while they read or change a file. So a
//! change from the server is not reported as a local one, and events have the order of the changes.

use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Included, Unbounded};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use shoal_protocol::sync::{CONTENTS_MAX, FILES_MAX, WatchLine};
use shoal_session_files::path::SessionPath;
use shoal_session_files::returning;

use super::contents::{Known, Stamp};

/// The maximum number of bytes of all paths together.
const PATHS_MAX: usize = 32 << 20;

/// Numbers events and changes.
#[derive(Debug, Clone, Default)]
pub(super) struct Counter(Arc<AtomicU64>);

impl Counter {
    /// The next number, from 1.
    pub(super) fn next(&self) -> u64 {
        self.0.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// The last number.
    pub(super) fn last(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The home has more files than a watch supports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("more than 200,000 files, or 32 MiB of their names, could return")]
pub(super) struct TooMany;

/// Whether the client of the watch knows a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Told {
    /// The client does not know it.
    No,
    /// The client wrote the file. The watch has not yet checked whether it is synchronized back.
    Written,
    /// The watch reported it.
    Yes,
}

/// A known file.
#[derive(Debug)]
struct Entry {
    known: Known,
    told: Told,
    /// The last scan that found it.
    seen: u64,
}

/// The known files, by path.
#[derive(Debug)]
pub(super) struct Table {
    entries: BTreeMap<String, Entry>,
    bytes: usize,
    counter: Counter,
    busy_until: Option<Instant>,
    /// The number of the current scan.
    pub(super) scan: u64,
}

impl Table {
    /// A table without files.
    pub(super) fn new(counter: Counter) -> Self {
        Self {
            entries: BTreeMap::new(),
            bytes: 0,
            counter,
            busy_until: None,
            scan: 0,
        }
    }

    /// The number of the last event or change.
    pub(super) fn last(&self) -> u64 {
        self.counter.last()
    }

    /// Whether a file is unchanged. If so, marks it as found by the current scan.
    pub(super) fn is_unchanged(
        &mut self,
        path: &SessionPath,
        stamp: &Stamp,
        executable: bool,
    ) -> bool {
        let scan = self.scan;
        let entry = self.entries.get_mut(path.as_str());
        entry.is_some_and(|entry| {
            let known = &entry.known;
            let same = known.settled && known.stamp == *stamp;
            let same = same && known.state.executable == executable;
            if same {
                entry.seen = scan;
            }
            same
        })
    }

    /// The entry of an unchanged file.
    pub(super) fn known(&self, path: &SessionPath, stamp: &Stamp) -> Option<Known> {
        let known = self.entries.get(path.as_str())?.known;
        (known.settled && known.stamp == *stamp).then_some(known)
    }

    /// Marks a file as found that cannot be read at the moment.
    pub(super) fn keep(&mut self, path: &SessionPath) {
        let scan = self.scan;
        if let Some(entry) = self.entries.get_mut(path.as_str()) {
            entry.seen = scan;
        }
    }

    /// Records a file that a scan found. Returns the event to report.
    ///
    /// # Errors
    /// If there are too many files.
    pub(super) fn found(
        &mut self,
        path: &SessionPath,
        known: Known,
    ) -> Result<Option<WatchLine>, TooMany> {
        let (same, told) = match self.entries.get(path.as_str()) {
            Some(entry) => (entry.known.state == known.state, entry.told),
            None => (false, Told::No),
        };
        let tells = match (known.returns, told) {
            (true, Told::No) => true,
            (true, _) => !same,
            (false, told) => told != Told::No,
        };
        let told = if known.returns { Told::Yes } else { Told::No };
        self.put(path, known, told)?;
        if !tells {
            return Ok(None);
        }
        let (path, at) = (path.clone(), self.counter.next());
        Ok(Some(if known.returns {
            let state = known.state;
            WatchLine::Present { path, state, at }
        } else {
            WatchLine::Withheld { path, at }
        }))
    }

    /// The server writes many files, probably until this time.
    pub(super) fn expect_more(&mut self, until: Instant) {
        self.busy_until = Some(until);
    }

    /// Until when the server probably writes files.
    pub(super) fn busy_until(&self, now: Instant) -> Option<Instant> {
        self.busy_until.filter(|until| *until > now)
    }

    /// Whether the server wrote a file, which was not looked at since.
    pub(super) fn is_written(&self, path: &SessionPath) -> bool {
        let entry = self.entries.get(path.as_str());
        entry.is_some_and(|entry| entry.told == Told::Written)
    }

    /// Records a change from the server, which is not reported. Returns its number.
    pub(super) fn written(&mut self, path: &SessionPath, known: Option<Known>) -> u64 {
        let returns = |known: &Known| {
            known.returns && returning::may_return(path, known.state.size, CONTENTS_MAX)
        };
        match known.filter(returns) {
            // The next scan reports that there are too many files.
            Some(known) => drop(self.put(path, known, Told::Written)),
            None => drop(self.take(path.as_str())),
        }
        self.counter.next()
    }

    /// Forgets a file that was removed. Returns the event to report.
    pub(super) fn gone(&mut self, path: &SessionPath) -> Option<WatchLine> {
        let told = self.take(path.as_str())?.told;
        (told != Told::No).then(|| WatchLine::Absent {
            path: path.clone(),
            at: self.counter.next(),
        })
    }

    /// Forgets a file that is not synchronized back. Returns the event to report.
    pub(super) fn withheld(&mut self, path: &SessionPath) -> Option<WatchLine> {
        let told = self.take(path.as_str())?.told;
        (told == Told::Yes).then(|| WatchLine::Withheld {
            path: path.clone(),
            at: self.counter.next(),
        })
    }

    /// The files below a directory; the empty path is the home.
    pub(super) fn below(&self, directory: &str) -> Vec<SessionPath> {
        self.range(directory).map(|(path, _)| path).collect()
    }

    /// The files below a directory that the current scan did not find.
    pub(super) fn unseen(&self, directory: &str) -> Vec<SessionPath> {
        let all = self.range(directory);
        let unseen = all.filter(|(_, entry)| entry.seen != self.scan);
        unseen.map(|(path, _)| path).collect()
    }

    fn range(&self, directory: &str) -> impl Iterator<Item = (SessionPath, &Entry)> {
        // `0` follows `/`.
        let (from, to) = (format!("{directory}/"), format!("{directory}0"));
        let bounds = match directory {
            "" => (Unbounded, Unbounded),
            _ => (Included(from.as_str()), Excluded(to.as_str())),
        };
        let entries = self.entries.range::<str, _>(bounds);
        let entries: Vec<_> = entries.collect();
        // Every key was made from a path.
        let paths = entries.into_iter();
        paths.filter_map(|(path, entry)| Some((path.parse().ok()?, entry)))
    }

    fn put(&mut self, path: &SessionPath, known: Known, told: Told) -> Result<(), TooMany> {
        let seen = self.scan;
        let entry = Entry { known, told, seen };
        if self
            .entries
            .insert(path.as_str().to_owned(), entry)
            .is_none()
        {
            self.bytes += path.as_str().len();
        }
        if self.entries.len() > FILES_MAX || self.bytes > PATHS_MAX {
            return Err(TooMany);
        }
        Ok(())
    }

    fn take(&mut self, path: &str) -> Option<Entry> {
        let entry = self.entries.remove(path)?;
        self.bytes -= path.len();
        Some(entry)
    }
}

#[cfg(test)]
mod tests {
    use shoal_session_files::state::FileState;

    use super::super::contents::digest_of;
    use super::*;

    fn path(text: &str) -> SessionPath {
        text.parse().unwrap()
    }

    fn known(text: &str, returns: bool) -> Known {
        let stat = rustix::fs::fstat(tempfile::tempfile().unwrap()).unwrap();
        Known {
            state: FileState {
                digest: digest_of(text.as_bytes()),
                size: text.len() as u64,
                executable: false,
            },
            returns,
            stamp: Stamp::of(&stat),
            settled: false,
        }
    }

    #[test]
    fn what_was_written_from_outside_is_told_once_it_changes() {
        let mut table = Table::new(Counter::default());
        let at = path("a");
        assert_eq!(table.written(&at, Some(known("1", true))), 1);
        assert!(table.is_written(&at));
        assert_eq!(table.found(&at, known("1", true)), Ok(None));
        assert!(!table.is_written(&at));
        let told = table.found(&at, known("2", true)).unwrap();
        assert!(
            matches!(told, Some(WatchLine::Present { at: 2, .. })),
            "{told:?}"
        );
        let told = table.found(&at, known("\0", false)).unwrap();
        assert!(
            matches!(told, Some(WatchLine::Withheld { at: 3, .. })),
            "{told:?}"
        );
        assert_eq!(table.gone(&at), None);
        // A path that is not synchronized back is neither reported nor kept.
        table.written(&path("node_modules/a"), Some(known("1", true)));
        table.written(&path("b"), Some(known("\0", false)));
        assert_eq!(table.below(""), []);
    }

    #[test]
    fn a_directory_has_what_is_below_it() {
        let mut table = Table::new(Counter::default());
        for name in ["d", "d-e", "d/a", "d/b/c", "d0", "e/d/a"] {
            table.found(&path(name), known("", true)).unwrap();
        }
        assert_eq!(table.below("d"), [path("d/a"), path("d/b/c")]);
        table.scan += 1;
        table.keep(&path("d/a"));
        assert_eq!(table.unseen("d"), [path("d/b/c")]);
        assert_eq!(table.below("").len(), 6);
    }

    #[test]
    fn a_table_is_bounded() {
        let mut table = Table::new(Counter::default());
        let entry = known("", true);
        for number in 0..FILES_MAX {
            table.found(&path(&number.to_string()), entry).unwrap();
        }
        assert_eq!(table.found(&path("more"), entry), Err(TooMany));
        let mut table = Table::new(Counter::default());
        let long = "x".repeat(250);
        let long = [long.as_str(); 4].join("/");
        let found = (0..FILES_MAX).find(|number| {
            table
                .found(&path(&format!("{long}{number}")), entry)
                .is_err()
        });
        assert!(
            found.is_some_and(|number| number < FILES_MAX / 2),
            "{found:?}"
        );
    }
}
