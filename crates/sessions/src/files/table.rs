//! The known state of each path of a session.

use std::collections::{BTreeMap, BTreeSet};

use shoal_core::id::SandboxId;
use shoal_core::ports::sessions::files::{Digest, FileError, FileState};
use shoal_core::session::files::{BYTES_MAX, FILES_MAX, FileRow, StoredFile, SyncState};
use shoal_core::session::path::SessionPath;
use shoal_core::store::{RowChange, StoreError};
use shoal_session_files::gitignore::{self, Ignoring};

use super::contents::Contents;

/// The most notes that are shown.
const NOTES_MAX: usize = 100;

/// The rows of a session.
#[derive(Default)]
pub(super) struct Table {
    rows: BTreeMap<SessionPath, FileRow>,
    files: usize,
    bytes: u64,
    /// The machine that is kept equal.
    machine: Option<SandboxId>,
    /// Paths whose file has to get to the machine.
    behind: BTreeSet<SessionPath>,
    /// Paths whose file cannot get to the machine, and why.
    blocked: BTreeMap<SessionPath, String>,
    /// Paths that both sides have changed, the machine to something that does not return.
    withheld: BTreeSet<SessionPath>,
    /// Files of the machine for which the session has no room.
    refused: BTreeMap<SessionPath, FileState>,
    /// The files that the machine does not report, and why.
    limited: BTreeMap<Option<SessionPath>, String>,
    /// Why the sync is interrupted.
    interrupted: Option<String>,
    /// The session's `.gitignore` files.
    ignoring: Ignoring,
    ignores_changed: bool,
    /// Other rows may be stored than these.
    stale: bool,
}

impl Table {
    pub(super) fn new(rows: Vec<(SessionPath, FileRow)>) -> Self {
        let mut table = Self::default();
        table.apply(
            rows.into_iter()
                .map(|(path, row)| (path, Some(row)))
                .collect(),
        );
        table
    }

    pub(super) fn is_stale(&self) -> bool {
        self.stale
    }

    pub(super) fn set_stale(&mut self, stale: bool) {
        self.stale = stale;
    }

    pub(super) fn rows(&self) -> impl Iterator<Item = (&SessionPath, &FileRow)> {
        self.rows.iter()
    }

    pub(super) fn row(&self, path: &SessionPath) -> Option<&FileRow> {
        self.rows.get(path)
    }

    /// The session's file at a path.
    pub(super) fn file(&self, path: &SessionPath) -> Option<&StoredFile> {
        self.rows.get(path)?.file.as_ref()
    }

    /// The rows at and below a path.
    pub(super) fn within<'a>(
        &'a self,
        directory: &'a SessionPath,
    ) -> impl Iterator<Item = (&'a SessionPath, &'a FileRow)> {
        // Between a directory and its contents are names that continue the directory's: `a`, `a-b`, `a/b`.
        let from = self.rows.range::<SessionPath, _>(directory..);
        let from = from.take_while(|(path, _)| path.as_str().starts_with(directory.as_str()));
        from.filter(|(path, _)| path.is_within(directory))
    }

    /// The file that keeps a path from being a file.
    pub(super) fn in_the_way(&self, path: &SessionPath) -> Option<SessionPath> {
        let above = path.parents().find(|parent| self.file(parent).is_some());
        above.or_else(|| {
            let mut below = self.within(path);
            let other = below.find(|(at, row)| *at != path && row.file.is_some());
            other.map(|(at, _)| at.clone())
        })
    }

    /// Whether a change of the session's files keeps within its limits.
    pub(super) fn check_room(&self, old: Option<&StoredFile>, new: u64) -> Result<(), FileError> {
        if old.is_none() && self.files >= FILES_MAX {
            return Err(FileError::TooMany(FILES_MAX));
        }
        if self.bytes - old.map_or(0, |old| old.state.size) + new > BYTES_MAX {
            return Err(FileError::Full(BYTES_MAX));
        }
        Ok(())
    }

    /// Changes rows. Returns the contents that they have ceased to name.
    pub(super) fn apply(&mut self, changes: Vec<RowChange>) -> Vec<Digest> {
        let mut dropped = Vec::new();
        for (path, row) in changes {
            let old = self.rows.remove(&path);
            let state = row.as_ref().and_then(FileRow::state);
            if let Some(old) = &old {
                let named: Vec<_> = row.iter().flat_map(FileRow::contents).collect();
                dropped.extend(old.contents().filter(|digest| !named.contains(digest)));
            }
            let was = old.as_ref().and_then(FileRow::state);
            self.files = self.files + usize::from(state.is_some()) - usize::from(was.is_some());
            self.bytes = self.bytes + state.map_or(0, |s| s.size) - was.map_or(0, |s| s.size);
            self.ignores_changed |= path.name() == gitignore::NAME && was != state;
            if let Some(row) = row {
                self.rows.insert(path.clone(), row);
            }
            if was != state {
                self.blocked.remove(&path);
                self.withheld.remove(&path);
            }
            self.note_behind(path);
        }
        dropped
    }

    /// Notes whether a path waits for the machine.
    fn note_behind(&mut self, path: SessionPath) {
        let row = self.rows.get(&path);
        let waits = self.machine.as_ref().is_some_and(|machine| {
            let behind = row.is_some_and(|row| row.is_behind(machine));
            let is_file = row.is_some_and(|row| row.file.is_some());
            // An ignored file is not copied to the machine. An existing one goes when the session removes it.
            behind && !(is_file && self.ignoring.ignores(&path))
        });
        if waits {
            self.behind.insert(path);
        } else {
            self.behind.remove(&path);
            self.blocked.remove(&path);
        }
    }

    /// Whether the session's `.gitignore` files ignore a path.
    pub(super) fn ignores(&self, path: &SessionPath) -> bool {
        self.ignoring.ignores(path)
    }

    pub(super) fn ignores_changed(&self) -> bool {
        self.ignores_changed
    }

    /// Reads the session's `.gitignore` files, and notes anew what waits for the machine.
    pub(super) async fn read_ignores(&mut self, contents: &Contents) -> Result<(), StoreError> {
        let mut ignoring = Ignoring::default();
        for (path, row) in &self.rows {
            let (true, Some(state)) = (path.name() == gitignore::NAME, row.state()) else {
                continue;
            };
            let text = match contents.get(state.digest).await {
                Err(error @ StoreError::Corrupt { .. }) => {
                    tracing::error!(%path, %error, "a session's .gitignore cannot be read");
                    None
                }
                text => text?,
            };
            let directory = path.parents().next().map(String::from).unwrap_or_default();
            // One that is too large hides its directory.
            let _ = ignoring.set(&directory, text.as_deref());
        }
        self.ignoring = ignoring;
        self.ignores_changed = false;
        self.note_all_behind();
        Ok(())
    }

    fn note_all_behind(&mut self) {
        let paths: Vec<_> = self.rows.keys().cloned().collect();
        paths.into_iter().for_each(|path| self.note_behind(path));
    }

    pub(super) fn machine(&self) -> Option<&SandboxId> {
        self.machine.as_ref()
    }

    /// A machine is kept equal from now on, or none.
    pub(super) fn set_machine(&mut self, machine: Option<SandboxId>) {
        self.machine = machine;
        self.behind.clear();
        self.blocked.clear();
        self.withheld.clear();
        self.refused.clear();
        self.limited.clear();
        if self.machine.is_none() {
            self.interrupted = None;
        }
        self.note_all_behind();
    }

    pub(super) fn is_behind(&self) -> bool {
        self.behind.len() > self.blocked.len()
    }

    pub(super) fn behind_count(&self) -> usize {
        self.behind.len()
    }

    /// Paths that wait, and are neither blocked nor under way.
    pub(super) fn next_behind(
        &self,
        most: usize,
        under_way: &BTreeSet<&SessionPath>,
    ) -> Vec<SessionPath> {
        let free = self
            .behind
            .iter()
            .filter(|path| !self.blocked.contains_key(*path) && !under_way.contains(path));
        free.take(most).cloned().collect()
    }

    /// The file cannot get to the machine until either side changes.
    pub(super) fn block(&mut self, path: SessionPath, reason: String) {
        if self.behind.contains(&path) {
            self.blocked.insert(path, reason);
        }
    }

    /// Both sides have changed, and the machine's file does not return.
    pub(super) fn withhold(&mut self, path: SessionPath) {
        let reason = "the machine has changed it into a file that does not return".to_owned();
        self.block(path.clone(), reason);
        self.withheld.insert(path);
    }

    /// The machine's side has changed: the obstacle may be gone.
    pub(super) fn unblock(&mut self, path: &SessionPath) {
        self.withheld.remove(path);
        if self.refused.remove(path).is_some() {
            self.limited.remove(&Some(path.clone()));
        }
        self.blocked
            .retain(|blocked, _| !blocked.is_within(path) && !path.is_within(blocked));
    }

    pub(super) fn has_withheld(&self) -> bool {
        !self.withheld.is_empty()
    }

    /// The session has no room for a file of the machine.
    pub(super) fn refuse(&mut self, path: SessionPath, state: FileState, reason: String) {
        self.limit(Some(path.clone()), reason);
        self.refused.insert(path, state);
    }

    pub(super) fn has_refused(&self) -> bool {
        !self.refused.is_empty()
    }

    /// Files to try again: those that were refused. Files that could not be written to the machine are among them.
    pub(super) fn try_again(&mut self) -> Vec<(SessionPath, FileState)> {
        self.blocked.clear();
        let refused = std::mem::take(&mut self.refused);
        for path in refused.keys() {
            self.limited.remove(&Some(path.clone()));
        }
        refused.into_iter().collect()
    }

    pub(super) fn limit(&mut self, path: Option<SessionPath>, reason: String) {
        if self.limited.len() < NOTES_MAX {
            self.limited.insert(path, reason);
        }
    }

    /// How the two sides stand, in one word.
    pub(super) fn sync_state(&self) -> SyncState {
        let is_copy = |row: &FileRow| {
            let file = row.file.as_ref();
            file.is_some_and(|file| file.conflict_of.is_some())
        };
        if self.has_withheld() || self.rows.values().any(is_copy) {
            SyncState::Conflict
        } else if self.behind_count() > 0 || self.has_refused() || self.interrupted.is_some() {
            SyncState::Behind
        } else {
            SyncState::Synced
        }
    }

    /// The copies of conflicts.
    pub(super) fn conflicts(&self) -> Vec<SessionPath> {
        let copies = self.rows.iter().filter(|(_, row)| {
            row.file
                .as_ref()
                .is_some_and(|file| file.conflict_of.is_some())
        });
        copies.map(|(path, _)| path.clone()).collect()
    }

    /// The sync is interrupted for this reason, or is not.
    pub(super) fn set_interrupted(&mut self, reason: Option<String>) {
        self.interrupted = reason;
    }

    /// Why the sync is interrupted.
    pub(super) fn interrupted(&self) -> Option<&String> {
        self.interrupted.as_ref()
    }

    /// Why the sync is interrupted, and the paths that are not synchronised, and why.
    pub(super) fn notes(&self) -> Vec<String> {
        let blocked = self
            .blocked
            .iter()
            .map(|(path, why)| format!("{path}: {why}"));
        let limited = self.limited.iter().map(|(path, why)| match path {
            Some(path) => format!("{path}: {why}"),
            None => why.clone(),
        });
        let interrupted = self.interrupted.iter().cloned();
        let notes = interrupted.chain(blocked).chain(limited);
        notes.take(NOTES_MAX).collect()
    }
}
