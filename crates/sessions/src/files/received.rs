//! Changes from the machine to its session.

use std::collections::BTreeMap;

use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt, stream};
use shoal_core::ports::inside::home::FileState;
use shoal_core::ports::sessions::files::RETURN_MAX;
use shoal_core::session::files::{FileRow, StoredFile};
use shoal_core::session::merge::Step;
use shoal_core::session::path::SessionPath;
use shoal_core::store::{RowChange, StoreError};

use super::contents::{PARALLEL, digest};
use super::sync::{Side, SyncError, Told};
use super::table::Table;
use super::{free_copy, known};

/// The most bytes that are taken from the machine at once.
const TAKEN: u64 = 16 << 20;

/// The most files that are taken from the machine at once.
const TAKEN_FILES: usize = 256;

/// A change that is decided on.
struct Decision<'a> {
    table: &'a Table,
    changes: Vec<RowChange>,
}

impl Side {
    /// Takes the machine's files at these paths.
    pub(super) async fn received(
        &self,
        mut told: Vec<(SessionPath, Told)>,
    ) -> Result<(), SyncError> {
        // A file may have taken the place of a directory, or the reverse: deletions come first.
        told.sort_by_key(|(_, told)| *told != Told::Absent);
        let mut rest = told.as_slice();
        while !rest.is_empty() {
            let mut bytes = 0_u64;
            let some = rest.iter().take(TAKEN_FILES).position(|(_, told)| {
                if let Told::Present(state) = told {
                    bytes = bytes.saturating_add(state.size);
                }
                bytes > TAKEN
            });
            let some = some.or((rest.len() > TAKEN_FILES).then_some(TAKEN_FILES));
            // One file at least.
            let (some, later) = rest.split_at(some.unwrap_or(rest.len()).max(1));
            self.take(some).await?;
            rest = later;
        }
        Ok(self.files.tell_sync().await?)
    }

    async fn take(&self, told: &[(SessionPath, Told)]) -> Result<(), SyncError> {
        let wanted = self.wanted(told).await?;
        let reads = wanted
            .into_iter()
            .map(|(path, state)| self.clone().read_state(path, state));
        let read: Vec<_> = stream::iter(reads)
            .buffer_unordered(PARALLEL)
            .try_collect()
            .await?;
        let read: BTreeMap<_, _> = read.into_iter().flatten().collect();
        self.decide(told, &read).await?;
        Ok(())
    }

    /// Reads a file; `None` if it has changed again, which is another event.
    async fn read_state(
        self,
        path: SessionPath,
        state: FileState,
    ) -> Result<Option<(SessionPath, Bytes)>, SyncError> {
        let contents = self.read(&path, RETURN_MAX).await?;
        let is_told = |contents: &Bytes| {
            contents.len() as u64 == state.size && digest(contents) == state.digest
        };
        let contents = contents.filter(is_told);
        Ok(contents.map(|contents| (path, contents)))
    }

    /// The files whose contents are needed.
    async fn wanted(
        &self,
        told: &[(SessionPath, Told)],
    ) -> Result<Vec<(SessionPath, FileState)>, StoreError> {
        let table = self.files.table().await?;
        let wanted = told.iter().filter_map(|(path, told)| {
            let Told::Present(state) = *told else {
                return None;
            };
            let row = self.with_written(table.row(path), Some(state));
            let step = row.step(&self.sandbox, Some(state));
            matches!(step, Step::ToSession | Step::KeepBoth).then(|| (path.clone(), state))
        });
        Ok(wanted.collect())
    }

    /// The row of a path, where a change whose outcome is not known counts as made if the machine has its contents.
    fn with_written(&self, row: Option<&FileRow>, found: Option<FileState>) -> FileRow {
        let mut row = known(row, &self.sandbox);
        if let (Some(machine), Some(found)) = (&mut row.machine, found)
            && machine.writing == Some(found.digest)
        {
            machine.agreed = Some(found);
        }
        row
    }

    /// Decides on each path by the present state, and stores the result.
    pub(super) async fn decide(
        &self,
        told: &[(SessionPath, Told)],
        read: &BTreeMap<SessionPath, Bytes>,
    ) -> Result<(), StoreError> {
        let contents = &self.files.parts.contents;
        let using = contents.using().await;
        contents.put_all(&using, read.values().cloned()).await?;
        let mut table = self.files.table().await?;
        for (path, told) in told {
            table.unblock(path);
            let found = match told {
                Told::Absent => None,
                Told::Present(state) => Some(*state),
            };
            let decided = self.decide_one(&table, path, found, read.contains_key(path));
            match decided {
                Ok(changes) => self.files.commit(&mut table, changes).await?,
                Err(reason) => {
                    if let Some(found) = found {
                        table.refuse(path.clone(), found, reason);
                    }
                }
            }
        }
        using.named();
        Ok(())
    }

    fn decide_one(
        &self,
        table: &Table,
        path: &SessionPath,
        found: Option<FileState>,
        is_read: bool,
    ) -> Result<Vec<RowChange>, String> {
        let mut row = self.with_written(table.row(path), found);
        let step = row.step(&self.sandbox, found);
        let needs = matches!(step, Step::ToSession | Step::KeepBoth) && found.is_some();
        if needs && !is_read {
            return Ok(Vec::new());
        }
        let mut decision = Decision {
            table,
            changes: Vec::new(),
        };
        match (step, found) {
            (Step::ToSession, Some(found)) => {
                if let Some(below) = decision.make_way(path, self)? {
                    decision.keep_copy(path, found, &below, self)?;
                } else {
                    let old = row.file.as_ref();
                    table
                        .check_room(old, found.size)
                        .map_err(|e| e.to_string())?;
                    row.file = Some(self.stored(found, old));
                }
            }
            (Step::ToSession, None) => row.file = None,
            (Step::KeepBoth, Some(found)) => decision.keep_copy(path, found, path, self)?,
            (Step::Agree | Step::ToMachine | Step::KeepBoth, _) => {}
        }
        if let Some(machine) = &mut row.machine {
            // Files of the template stay files of the template.
            let is_template = found.map(|found| found.digest) == machine.template
                && machine.agreed.is_none()
                && found.is_some();
            if !is_template {
                machine.agreed = found;
                machine.template = None;
                machine.writing = None;
            }
        }
        decision.changes.push((path.clone(), Some(row)));
        Ok(decision.changes)
    }

    fn stored(&self, state: FileState, old: Option<&StoredFile>) -> StoredFile {
        StoredFile {
            state,
            modified_at: self.files.parts.clock.now(),
            conflict_of: old.and_then(|old| old.conflict_of.clone()),
        }
    }
}

impl Decision<'_> {
    /// Moves a file of the session out of the way of one that the machine has below it. Returns the path, when the session has
    /// files below instead.
    fn make_way(&mut self, path: &SessionPath, side: &Side) -> Result<Option<SessionPath>, String> {
        let Some(other) = self.table.in_the_way(path) else {
            return Ok(None);
        };
        if other.is_within(path) {
            return Ok(Some(path.clone()));
        }
        let Some(row) = self.table.row(&other) else {
            return Ok(None);
        };
        if let Some(file) = &row.file {
            let copy = self.free(&other)?;
            let mut kept = known(self.table.row(&copy), &side.sandbox);
            kept.file = Some(StoredFile {
                conflict_of: Some(other.clone()),
                ..file.clone()
            });
            self.changes.push((copy, Some(kept)));
        }
        let row = FileRow {
            file: None,
            machine: row.machine.clone(),
        };
        self.changes.push((other, Some(row)));
        Ok(None)
    }

    /// Keeps the machine's file under another name, unless it has been kept already.
    fn keep_copy(
        &mut self,
        path: &SessionPath,
        found: FileState,
        of: &SessionPath,
        side: &Side,
    ) -> Result<(), String> {
        let copies = (1..).map(|number| path.copy(number));
        let mut copies = copies.map_while(|copy| self.table.file(&copy));
        if copies.any(|copy| copy.state.digest == found.digest) {
            return Ok(());
        }
        self.table
            .check_room(None, found.size)
            .map_err(|e| e.to_string())?;
        let copy = self.free(path)?;
        let mut row = known(self.table.row(&copy), &side.sandbox);
        row.file = Some(StoredFile {
            conflict_of: Some(of.clone()),
            ..side.stored(found, None)
        });
        self.changes.push((copy, Some(row)));
        Ok(())
    }

    fn free(&self, path: &SessionPath) -> Result<SessionPath, String> {
        let full = || "both sides have changed it, and no name for a copy is free".to_owned();
        free_copy(self.table, path, &self.changes).ok_or_else(full)
    }
}
