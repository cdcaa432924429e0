//! The files of a session, on the server's side.
//!
//! A table has the state of each path; contents are stored under their digests. Each change is stored before it is
//! answered. [`sync`] synchronises them with a machine.

mod contents;
mod edit;
pub(crate) mod follow;
mod push;
mod received;
pub(crate) mod sync;
mod table;
mod tell;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use shoal_core::clock::Clock;
use shoal_core::id::SandboxId;
use shoal_core::ports::sessions::files::{FileError, SyncView};
use shoal_core::session::SessionId;
use shoal_core::session::files::FileRow;
use shoal_core::session::path::SessionPath;
use shoal_core::store::{RowChange, SessionFileStore, StoreError};
use tokio::sync::{Mutex, Notify};

pub use self::contents::Contents;
use self::table::Table;
use self::tell::Told;
use crate::events::Events;

/// The dependencies of all sessions' files.
#[derive(Clone)]
pub(crate) struct FileParts {
    pub(crate) rows: Arc<dyn SessionFileStore>,
    pub(crate) contents: Contents,
    pub(crate) clock: Arc<dyn Clock>,
}

/// The files of one session.
pub(crate) struct Files {
    session: SessionId,
    parts: FileParts,
    /// Read at first use. Locked while rows change.
    table: Mutex<Option<Table>>,
    /// Notified when a change waits for the machine.
    waiting: Notify,
    told: Told,
}

impl Files {
    pub(crate) fn new(session: SessionId, parts: FileParts, events: Events) -> Self {
        Self {
            session,
            parts,
            table: Mutex::default(),
            waiting: Notify::new(),
            told: Told::new(events),
        }
    }

    /// The table, which is read at first use.
    async fn table(&self) -> Result<tokio::sync::MappedMutexGuard<'_, Table>, StoreError> {
        let mut table = self.table.lock().await;
        if table.as_ref().is_none_or(Table::is_stale) {
            let rows = self.parts.rows.file_rows(&self.session).await?;
            let mut read = Table::new(rows);
            read.set_machine(table.as_ref().and_then(Table::machine).cloned());
            let interrupted = table.as_ref().and_then(Table::interrupted).cloned();
            read.set_interrupted(interrupted);
            read.read_ignores(&self.parts.contents).await?;
            // The caller of a change may have disconnected before it could announce the change.
            if read.is_behind() {
                self.waiting.notify_one();
            }
            *table = Some(read);
        }
        Ok(tokio::sync::MutexGuard::map(table, |table| {
            table.get_or_insert_with(Table::default)
        }))
    }

    /// Stores changed rows, and then shows them.
    async fn commit(&self, table: &mut Table, changes: Vec<RowChange>) -> Result<(), StoreError> {
        let changes: Vec<RowChange> = changes
            .into_iter()
            .map(|(path, row)| (path, row.filter(|row| !row.is_empty())))
            .filter(|(path, row)| table.row(path) != row.as_ref())
            .collect();
        if changes.is_empty() {
            return Ok(());
        }
        let stored = changes.clone();
        let facts = self.told.facts(table, &changes);
        // If this future is dropped, or the store fails, the stored state is unknown.
        table.set_stale(true);
        self.parts
            .rows
            .change_file_rows(&self.session, stored)
            .await?;
        let dropped = table.apply(changes);
        self.parts.contents.may_be_unnamed(dropped);
        if table.ignores_changed() {
            table.read_ignores(&self.parts.contents).await?;
        }
        table.set_stale(false);
        if table.is_behind() {
            self.waiting.notify_one();
        }
        self.told.tell(facts);
        self.told.sync(table);
        Ok(())
    }

    /// The state of the sync.
    pub(crate) async fn sync_view(&self) -> Result<SyncView, FileError> {
        let table = self.table().await?;
        Ok(SyncView {
            state: table.sync_state(),
            behind: table.behind_count(),
            connected: table.machine().is_some(),
            conflicts: table.conflicts(),
            notes: table.notes(),
        })
    }

    /// Stops the sync with the machine.
    pub(crate) async fn no_machine(&self) {
        if let Some(table) = &mut *self.table.lock().await {
            table.set_machine(None);
            self.told.sync(table);
        }
    }

    /// Stores the reason why the sync is interrupted; none when it works.
    async fn interrupted(&self, reason: Option<String>) {
        // If the store fails, the next request for the state reports that.
        if let Ok(mut table) = self.table().await {
            table.set_interrupted(reason);
            self.told.sync(&table);
        }
    }

    /// Reports the state of the sync if it has changed.
    async fn tell_sync(&self) -> Result<(), StoreError> {
        let table = self.table().await?;
        self.told.sync(&table);
        Ok(())
    }

    /// The next change reports the state of the sync: a new listener does not know it.
    pub(crate) fn tell_sync_anew(&self) {
        self.told.forget();
    }

    /// Removes everything of a deleted session.
    pub(crate) async fn forget(&self) -> Result<(), StoreError> {
        let mut table = self.table().await?;
        let changes = table.rows().map(|(path, _)| (path.clone(), None)).collect();
        self.commit(&mut table, changes).await
    }
}

/// A row with the known state of the path in a machine.
fn known(row: Option<&FileRow>, sandbox: &SandboxId) -> FileRow {
    let mut row = row.cloned().unwrap_or_default();
    row.machine = Some(row.in_machine(sandbox));
    row
}

/// A free path for a copy.
fn free_copy(table: &Table, path: &SessionPath, taken: &[RowChange]) -> Option<SessionPath> {
    let is_taken = |copy: &SessionPath| taken.iter().any(|(path, _)| path == copy);
    (1..10_000)
        .map(|number| path.copy(number))
        .filter(|copy| copy.as_str().parse::<SessionPath>().is_ok())
        .find(|copy| table.file(copy).is_none() && !is_taken(copy))
}
