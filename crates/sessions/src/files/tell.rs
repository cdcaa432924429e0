//! Events about the files of a session.

use parking_lot::Mutex;
use shoal_core::ports::sessions::events::{PATHS_MAX, SessionFact};
use shoal_core::session::files::{FileRow, SyncState};
use shoal_core::store::RowChange;

use super::table::Table;
use crate::events::Events;

/// How the two sides stand: in one word, how many files wait, and whether there is a machine.
type Stand = (SyncState, usize, bool);

/// The last events.
pub(super) struct Told {
    events: Events,
    sync: Mutex<Option<Stand>>,
}

impl Told {
    pub(super) fn new(events: Events) -> Self {
        Self {
            events,
            sync: Mutex::default(),
        }
    }

    /// The effect on the session's files of changes that the table does not have yet.
    pub(super) fn facts(&self, table: &Table, changes: &[RowChange]) -> Vec<SessionFact> {
        if !self.events.is_heard() {
            return Vec::new();
        }
        let differing = changes.iter().filter_map(|(path, row)| {
            let old = table.row(path).and_then(FileRow::state);
            let new = row.as_ref().and_then(FileRow::state);
            (old != new).then_some((path, new.is_some()))
        });
        let differing: Vec<_> = differing.collect();
        let facts = differing.chunks(PATHS_MAX).map(|part| {
            let paths = |present: bool| {
                let of_kind = part.iter().filter(move |(_, is)| *is == present);
                of_kind.map(|(path, _)| (*path).clone()).collect()
            };
            SessionFact::Files {
                changed: paths(true),
                removed: paths(false),
            }
        });
        facts.collect()
    }

    pub(super) fn tell(&self, facts: Vec<SessionFact>) {
        facts.into_iter().for_each(|fact| self.events.tell(fact));
    }

    /// Reports the state of the sync if it has changed since the last event.
    pub(super) fn sync(&self, table: &Table) {
        if !self.events.is_heard() {
            return;
        }
        let connected = table.machine().is_some();
        let (state, behind) = (table.sync_state(), table.behind_count());
        let stand = Some((state, behind, connected));
        if std::mem::replace(&mut *self.sync.lock(), stand) != stand {
            self.events.tell(SessionFact::Sync {
                state,
                behind,
                connected,
            });
        }
    }

    /// Forgets how the two sides stood.
    pub(super) fn forget(&self) {
        *self.sync.lock() = None;
    }
}
