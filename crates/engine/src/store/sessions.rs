//! Sessions.

use rusqlite::{Connection, params};
use shoal_core::BoxFuture;
use shoal_core::session::{SessionId, SessionRecord};
use shoal_core::store::{SessionStore, StoreError};

use super::{SqliteStore, decode, encode, store_error};

impl SessionStore for SqliteStore {
    fn sessions(&self) -> BoxFuture<'_, Result<Vec<SessionRecord>, StoreError>> {
        self.call(|connection| sessions(connection))
    }

    fn put_session(&self, session: &SessionRecord) -> BoxFuture<'_, Result<(), StoreError>> {
        let session = session.clone();
        self.call(move |connection| put(connection, &session))
    }

    fn delete_session(&self, id: &SessionId) -> BoxFuture<'_, Result<(), StoreError>> {
        let id = id.clone();
        self.call(move |connection| delete(connection, &id))
    }
}

fn sessions(connection: &Connection) -> Result<Vec<SessionRecord>, StoreError> {
    let rows: Vec<(String, String)> = connection
        .prepare_cached("SELECT id, document FROM sessions")
        .and_then(|mut s| {
            let rows = s.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
            rows.collect()
        })
        .map_err(store_error)?;
    rows.into_iter()
        .map(|(id, document)| decode(&format!("session {id}"), &document))
        .collect()
}

fn put(connection: &Connection, session: &SessionRecord) -> Result<(), StoreError> {
    let document = encode(session)?;
    // Never REPLACE: that would delete the row first, and with it the session's files.
    connection
        .prepare_cached(
            "INSERT INTO sessions (id, document) VALUES (?1, ?2) \
             ON CONFLICT (id) DO UPDATE SET document = excluded.document",
        )
        .and_then(|mut s| s.execute(params![session.id.as_str(), document]))
        .map_err(store_error)?;
    Ok(())
}

fn delete(connection: &Connection, id: &SessionId) -> Result<(), StoreError> {
    connection
        .prepare_cached("DELETE FROM sessions WHERE id = ?1")
        .and_then(|mut s| s.execute([id.as_str()]))
        .map_err(store_error)?;
    Ok(())
}
