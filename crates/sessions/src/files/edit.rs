//! Changes from the session's side.

use bytes::Bytes;
use shoal_core::ports::sessions::files::{
    FILE_MAX, FileError, FileState, OnlyIf, SessionFile, WriteFile,
};
use shoal_core::session::files::{FileRow, StoredFile};
use shoal_core::session::path::SessionPath;
use shoal_core::store::RowChange;

use super::Files;
use super::contents::digest;
use super::table::Table;

impl Files {
    /// The files at or below a path, or all.
    pub(crate) async fn list(
        &self,
        below: Option<&SessionPath>,
    ) -> Result<Vec<SessionFile>, FileError> {
        let table = self.table().await?;
        let file = |(path, row): (&SessionPath, &FileRow)| {
            let file = row.file.clone()?;
            let path = path.clone();
            Some(SessionFile { path, file })
        };
        Ok(match below {
            Some(below) => table.within(below).filter_map(file).collect(),
            None => table.rows().filter_map(file).collect(),
        })
    }

    /// Reads a file.
    pub(crate) async fn read(&self, path: &SessionPath) -> Result<(SessionFile, Bytes), FileError> {
        // While they are read, they are not deleted.
        let _using = self.parts.contents.using().await;
        let found = self.table().await?.file(path).cloned();
        let file = found.ok_or_else(|| FileError::NotFound(path.clone()))?;
        let contents = self.parts.contents.get(file.state.digest).await?;
        let contents = contents.ok_or_else(|| FileError::Lost(path.clone()))?;
        let path = path.clone();
        Ok((SessionFile { path, file }, contents))
    }

    /// Writes a file.
    pub(crate) async fn write(&self, new: WriteFile) -> Result<SessionFile, FileError> {
        let size = new.contents.len() as u64;
        if size > FILE_MAX {
            return Err(FileError::TooLarge);
        }
        let digest = digest(&new.contents);
        let using = self.parts.contents.using().await;
        self.parts
            .contents
            .put(&using, digest, new.contents)
            .await?;
        let mut table = self.table().await?;
        let path = new.path;
        let old = table.file(&path);
        let matches = match new.only_if {
            OnlyIf::Always => true,
            OnlyIf::Absent => old.is_none(),
            OnlyIf::Has(digest) => old.is_some_and(|old| old.state.digest == digest),
        };
        if !matches {
            return Err(FileError::Changed(path));
        }
        check_free(&table, &path)?;
        table.check_room(old, size)?;
        let state = FileState {
            digest,
            size,
            executable: new
                .executable
                .unwrap_or_else(|| old.is_some_and(|old| old.state.executable)),
        };
        let file = StoredFile {
            state,
            modified_at: self.parts.clock.now(),
            conflict_of: old.and_then(|old| old.conflict_of.clone()),
        };
        let mut row = table.row(&path).cloned().unwrap_or_default();
        row.file = Some(file.clone());
        self.commit(&mut table, vec![(path.clone(), Some(row))])
            .await?;
        using.named();
        Ok(SessionFile { path, file })
    }

    /// Removes the file at a path, or the files below it.
    pub(crate) async fn remove(&self, path: &SessionPath) -> Result<usize, FileError> {
        let mut table = self.table().await?;
        let removed = table.within(path).filter(|(_, row)| row.file.is_some());
        let changes: Vec<RowChange> = removed.map(|(path, row)| without_file(path, row)).collect();
        if changes.is_empty() {
            return Err(FileError::NotFound(path.clone()));
        }
        let count = changes.len();
        self.commit(&mut table, changes).await?;
        Ok(count)
    }

    /// Moves the file at a path, or the files below it.
    pub(crate) async fn rename(
        &self,
        from: &SessionPath,
        to: &SessionPath,
    ) -> Result<usize, FileError> {
        let mut table = self.table().await?;
        let in_the_way = |with: SessionPath| FileError::InTheWay {
            path: to.clone(),
            with,
        };
        if to.is_within(from) || from.is_within(to) {
            return Err(in_the_way(from.clone()));
        }
        check_free(&table, to)?;
        if table.file(to).is_some() {
            return Err(in_the_way(to.clone()));
        }
        let now = self.parts.clock.now();
        let mut changes = Vec::new();
        for (path, row) in table.within(from) {
            let Some(file) = &row.file else {
                continue;
            };
            let rest = &path.as_str()[from.as_str().len()..];
            let moved: SessionPath = format!("{to}{rest}").parse()?;
            let mut target = table.row(&moved).cloned().unwrap_or_default();
            target.file = Some(StoredFile {
                state: file.state,
                modified_at: now,
                conflict_of: None,
            });
            changes.push(without_file(path, row));
            changes.push((moved, Some(target)));
        }
        if changes.is_empty() {
            return Err(FileError::NotFound(from.clone()));
        }
        let count = changes.len() / 2;
        self.commit(&mut table, changes).await?;
        Ok(count)
    }
}

/// Refuses a path at which a file cannot be.
fn check_free(table: &Table, path: &SessionPath) -> Result<(), FileError> {
    match table.in_the_way(path) {
        Some(with) => Err(FileError::InTheWay {
            path: path.clone(),
            with,
        }),
        None => Ok(()),
    }
}

fn without_file(path: &SessionPath, row: &FileRow) -> RowChange {
    let row = FileRow {
        file: None,
        machine: row.machine.clone(),
    };
    (path.clone(), Some(row))
}
