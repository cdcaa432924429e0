//! The known state of a home directory.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use shoal_core::ports::inside::InsideError;
use shoal_core::ports::inside::home::{FileState, HomeEvent};
use shoal_core::session::path::SessionPath;
use tokio::time::Instant;

use crate::link;
use crate::sftp::Stamp;

/// How old the last change of a file must be when it is read, so that a later change gets another time.
const TICKS: i64 = 2;
const TICK: Duration = Duration::from_secs(2);

/// An event, with the number of its moment.
pub(super) struct Event(pub(super) u64, pub(super) Result<HomeEvent, InsideError>);

/// The known state of a file.
#[derive(Debug, Clone, Copy)]
pub(super) struct Known {
    pub(super) stamp: Stamp,
    pub(super) state: FileState,
    pub(super) returns: bool,
    /// When this stamp was first seen.
    pub(super) since: Instant,
    /// Whether a later change is sure to change the stamp.
    pub(super) settled: bool,
}

/// Whether a change after this moment is sure to change the stamp. `ahead` is how much later the machine's clock is.
pub(super) fn is_settled(stamp: &Stamp, since: Instant, ahead: i64) -> bool {
    let old = i64::from(stamp.modified) + TICKS <= link::now() + ahead;
    // Somebody set a time in the future.
    old || since.elapsed() >= TICK
}

/// The known and the reported state of a home directory.
#[derive(Default)]
pub(super) struct Table {
    pub(super) known: BTreeMap<SessionPath, Known>,
    pub(super) told: BTreeMap<SessionPath, FileState>,
    /// The unseen paths, as they were reported.
    pub(super) limits: BTreeMap<String, String>,
    moment: u64,
    /// The moments of the latest changes from outside.
    applied: BTreeMap<SessionPath, u64>,
    /// The paths that are being changed from outside.
    applying: BTreeSet<SessionPath>,
}

impl Table {
    /// A new moment.
    pub(super) fn now(&mut self) -> u64 {
        self.moment += 1;
        self.moment
    }

    /// Whether the caller knows something newer than this event.
    pub(super) fn is_outdated(&self, number: u64, event: &HomeEvent) -> bool {
        match event {
            HomeEvent::Present { path, .. }
            | HomeEvent::Absent { path }
            | HomeEvent::Withheld { path } => self.applied.get(path).is_some_and(|at| *at > number),
            HomeEvent::Limited { .. } | HomeEvent::Settled(_) => false,
        }
    }

    /// Whether a path has changed from outside since a moment.
    pub(super) fn has_changed_since(&self, path: &SessionPath, moment: u64) -> bool {
        self.applying.contains(path) || self.applied.get(path).is_some_and(|at| *at > moment)
    }

    pub(super) fn begins(&mut self, path: &SessionPath) {
        self.applying.insert(path.clone());
    }

    pub(super) fn ends(&mut self, path: &SessionPath) {
        self.applying.remove(path);
        let now = self.now();
        self.applied.insert(path.clone(), now);
    }

    /// The result of a change from outside.
    pub(super) fn written(&mut self, path: &SessionPath, made: Option<(Stamp, FileState)>) {
        self.known.remove(path);
        match made {
            Some((stamp, state)) => {
                let known = Known {
                    stamp,
                    state,
                    returns: true,
                    since: Instant::now(),
                    // Whether it returns is found out by the next look.
                    settled: false,
                };
                self.known.insert(path.clone(), known);
                self.told.insert(path.clone(), state);
            }
            None => {
                self.told.remove(path);
            }
        }
    }
}
