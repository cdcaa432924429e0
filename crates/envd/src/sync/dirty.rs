//! Paths at which something happened, until it is time to look at them.
//!
//! A program writes a file in steps. A look after each would read the same file many times, and find halves. So a path waits
//! until its file is closed, or nothing has happened for a moment, but not for long. A file whose look is expensive waits
//! longer before the next one, so that looks at a file that is written without end take a bounded share of the time.

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

use shoal_protocol::sync::FILES_MAX;
use shoal_session_files::path::SessionPath;

/// How long nothing must happen at a path.
const QUIET: Duration = Duration::from_millis(15);

/// How long a path waits at most while things happen.
const PATIENCE: Duration = Duration::from_millis(50);

/// How many times as long as its last look a path rests.
const REST: u32 = 20;

/// The shortest look that has a rest, and the longest rest.
const EXPENSIVE: Duration = Duration::from_millis(3);
const LONGEST_REST: Duration = Duration::from_secs(5);

/// A path that waits.
#[derive(Debug, Clone, Copy)]
struct Waiting {
    since: Instant,
    due: Instant,
}

/// The paths that wait.
#[derive(Debug, Default)]
pub(super) struct Dirty {
    waiting: BTreeMap<SessionPath, Waiting>,
    resting: HashMap<SessionPath, Instant>,
    everything: bool,
}

impl Dirty {
    /// Something happened at a path. `complete` says that the file was closed.
    pub(super) fn note(&mut self, path: SessionPath, complete: bool, now: Instant) {
        if self.waiting.len() >= FILES_MAX {
            return self.note_everything();
        }
        let rested = self.resting.get(&path).copied().unwrap_or(now);
        let begun = Waiting {
            since: now,
            due: now,
        };
        let waiting = self.waiting.entry(path).or_insert(begun);
        let quiet = (now + QUIET).min(waiting.since + PATIENCE);
        waiting.due = if complete { now } else { quiet }.max(rested);
    }

    /// A path may wait until this time, unless something happens there.
    pub(super) fn put_off(&mut self, path: SessionPath, until: Instant, now: Instant) {
        let waiting = Waiting {
            since: now,
            due: until,
        };
        self.waiting.insert(path, waiting);
    }

    /// Something happened anywhere.
    pub(super) fn note_everything(&mut self) {
        self.everything = true;
        self.waiting.clear();
    }

    /// Whether something happened anywhere. Taken once.
    pub(super) fn take_everything(&mut self) -> bool {
        std::mem::take(&mut self.everything)
    }

    /// A look at a path took this long.
    pub(super) fn looked(&mut self, path: &SessionPath, cost: Duration, now: Instant) {
        if cost >= EXPENSIVE {
            let rest = cost.saturating_mul(REST).min(LONGEST_REST);
            self.resting.insert(path.clone(), now + rest);
        }
    }

    /// The file at a path changed during a look.
    pub(super) fn looked_in_vain(&mut self, path: &SessionPath, cost: Duration, now: Instant) {
        self.looked(path, cost.max(EXPENSIVE), now);
        self.note(path.clone(), false, now);
    }

    /// Some of the paths whose time has come, in their order.
    pub(super) fn take_due(&mut self, most: usize, now: Instant) -> Vec<SessionPath> {
        self.resting.retain(|_, until| *until > now);
        let due = self.waiting.extract_if(.., |_, waiting| waiting.due <= now);
        due.take(most).map(|(path, _)| path).collect()
    }

    /// All paths, in their order.
    pub(super) fn take_all(&mut self) -> Vec<SessionPath> {
        std::mem::take(&mut self.waiting).into_keys().collect()
    }

    /// When the next path is due.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.waiting.values().map(|waiting| waiting.due).min()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn path(text: &str) -> SessionPath {
        text.parse().unwrap()
    }

    #[test]
    fn a_closed_file_is_due_at_once_and_an_open_one_after_a_moment() {
        let (mut dirty, start) = (Dirty::default(), Instant::now());
        dirty.note(path("open"), false, start);
        dirty.note(path("closed"), false, start);
        dirty.note(path("closed"), true, start);
        assert_eq!(dirty.take_due(9, start), [path("closed")]);
        assert_eq!(dirty.next_due(), Some(start + QUIET));
        assert_eq!(dirty.take_due(9, start + QUIET), [path("open")]);
        assert_eq!(dirty.next_due(), None);
    }

    #[test]
    fn a_path_that_is_put_off_waits_until_something_happens_there() {
        let (mut dirty, start) = (Dirty::default(), Instant::now());
        let later = start + Duration::from_secs(2);
        dirty.put_off(path("a"), later, start);
        dirty.put_off(path("b"), later, start);
        dirty.note(path("a"), true, start + QUIET);
        assert_eq!(dirty.take_due(9, start + QUIET), [path("a")]);
        assert_eq!(dirty.next_due(), Some(later));
        assert_eq!(dirty.take_all(), [path("b")], "a flush does not wait");
    }

    #[test]
    fn an_expensive_file_rests_and_a_flush_does_not_wait() {
        let (mut dirty, start) = (Dirty::default(), Instant::now());
        let cost = Duration::from_millis(30);
        dirty.looked(&path("a"), cost, start);
        dirty.note(path("a"), true, start);
        assert_eq!(dirty.next_due(), Some(start + cost * REST));
        assert_eq!(dirty.take_all(), [path("a")]);
        dirty.looked_in_vain(&path("b"), Duration::ZERO, start);
        assert_eq!(dirty.next_due(), Some(start + EXPENSIVE * REST));
    }

    proptest! {
        #[test]
        fn nothing_waits_longer_than_its_patience(gaps in prop::collection::vec(0u64..40, 1..60)) {
            let (mut dirty, mut now) = (Dirty::default(), Instant::now());
            let mut since = None;
            for gap in gaps {
                now += Duration::from_millis(gap);
                if !dirty.take_due(9, now).is_empty() {
                    since = None;
                }
                dirty.note(path("a"), false, now);
                let since = *since.get_or_insert(now);
                let due = dirty.next_due().unwrap();
                prop_assert!(due <= since + PATIENCE && due <= now + QUIET);
            }
        }
    }
}
