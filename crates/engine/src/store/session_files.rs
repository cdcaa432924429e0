//! The files of sessions.

use rusqlite::{Connection, params};
use shoal_core::BoxFuture;
use shoal_core::ports::sessions::files::Digest;
use shoal_core::session::SessionId;
use shoal_core::session::files::FileRow;
use shoal_core::session::path::SessionPath;
use shoal_core::store::{RowChange, SessionFileStore, StoreError};

use super::{SqliteStore, decode, encode, store_error};

impl SessionFileStore for SqliteStore {
    fn file_rows<'a>(
        &'a self,
        session: &'a SessionId,
    ) -> BoxFuture<'a, Result<Vec<(SessionPath, FileRow)>, StoreError>> {
        let session = session.clone();
        self.call(move |connection| rows(connection, &session))
    }

    fn change_file_rows<'a>(
        &'a self,
        session: &'a SessionId,
        changes: Vec<RowChange>,
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        let session = session.clone();
        self.call(move |connection| change(connection, &session, &changes))
    }

    fn unnamed(&self, contents: Vec<Digest>) -> BoxFuture<'_, Result<Vec<Digest>, StoreError>> {
        self.call(move |connection| unnamed(connection, contents))
    }
}

fn rows(
    connection: &Connection,
    session: &SessionId,
) -> Result<Vec<(SessionPath, FileRow)>, StoreError> {
    let rows: Vec<(String, String)> = connection
        .prepare_cached("SELECT path, document FROM session_files WHERE session = ?1")
        .and_then(|mut s| {
            let rows = s.query_map([session.as_str()], |row| Ok((row.get(0)?, row.get(1)?)))?;
            rows.collect()
        })
        .map_err(store_error)?;
    let row = |(path, document): (String, String)| {
        let key = format!("file {path} of session {session}");
        let row = decode(&key, &document)?;
        let detail = |e: shoal_core::session::path::InvalidPath| e.to_string();
        let path = path.parse().map_err(detail);
        let path = path.map_err(|detail| StoreError::Corrupt { key, detail })?;
        Ok((path, row))
    };
    rows.into_iter().map(row).collect()
}

fn change(
    connection: &mut Connection,
    session: &SessionId,
    changes: &[RowChange],
) -> Result<(), StoreError> {
    let transaction = connection.transaction().map_err(store_error)?;
    for (path, row) in changes {
        let path = path.as_str();
        // With it go the names of its contents.
        transaction
            .prepare_cached("DELETE FROM session_files WHERE session = ?1 AND path = ?2")
            .and_then(|mut s| s.execute(params![session.as_str(), path]))
            .map_err(store_error)?;
        if let Some(row) = row {
            put(&transaction, session, path, row)?;
        }
    }
    transaction.commit().map_err(store_error)
}

fn put(
    connection: &Connection,
    session: &SessionId,
    path: &str,
    row: &FileRow,
) -> Result<(), StoreError> {
    let document = encode(row)?;
    connection
        .prepare_cached("INSERT INTO session_files (session, path, document) VALUES (?1, ?2, ?3)")
        .and_then(|mut s| s.execute(params![session.as_str(), path, document]))
        .map_err(store_error)?;
    for digest in row.contents() {
        connection
            .prepare_cached(
                "INSERT OR IGNORE INTO session_contents (digest, session, path) VALUES (?1, ?2, ?3)",
            )
            .and_then(|mut s| s.execute(params![digest.0, session.as_str(), path]))
            .map_err(store_error)?;
    }
    Ok(())
}

fn unnamed(connection: &Connection, contents: Vec<Digest>) -> Result<Vec<Digest>, StoreError> {
    let mut named = connection
        .prepare_cached("SELECT 1 FROM session_contents WHERE digest = ?1")
        .map_err(store_error)?;
    let mut unnamed = Vec::new();
    for digest in contents {
        if !named.exists([digest.0]).map_err(store_error)? {
            unnamed.push(digest);
        }
    }
    Ok(unnamed)
}
