//! Memories of sessions.

use rusqlite::{Connection, OptionalExtension, Row, params};
use shoal_core::BoxFuture;
use shoal_core::clock::Timestamp;
use shoal_core::session::SessionId;
use shoal_core::session::memory::{Memory, MemoryEntry, MemoryName};
use shoal_core::store::{SessionMemoryStore, StoreError};

use super::{SqliteStore, store_error};

impl SessionMemoryStore for SqliteStore {
    fn session_memories(
        &self,
        session: &SessionId,
    ) -> BoxFuture<'_, Result<Vec<MemoryEntry>, StoreError>> {
        let session = session.clone();
        self.call(move |connection| all(connection, &session))
    }

    fn session_memory(
        &self,
        session: &SessionId,
        name: &MemoryName,
    ) -> BoxFuture<'_, Result<Option<Memory>, StoreError>> {
        let (session, name) = (session.clone(), name.clone());
        self.call(move |connection| one(connection, &session, name))
    }

    fn put_session_memory(
        &self,
        session: &SessionId,
        memory: Memory,
        most: usize,
    ) -> BoxFuture<'_, Result<bool, StoreError>> {
        let session = session.clone();
        self.call(move |connection| put(connection, &session, &memory, most))
    }

    fn delete_session_memory(
        &self,
        session: &SessionId,
        name: &MemoryName,
    ) -> BoxFuture<'_, Result<bool, StoreError>> {
        let (session, name) = (session.clone(), name.clone());
        self.call(move |connection| delete(connection, &session, &name))
    }
}

fn all(connection: &Connection, session: &SessionId) -> Result<Vec<MemoryEntry>, StoreError> {
    let read = |row: &Row<'_>| Ok((row.get(0)?, row.get(1)?, row.get(2)?));
    let rows: Vec<(String, i64, i64)> = connection
        .prepare_cached(
            "SELECT name, octet_length(text), since FROM session_memories WHERE session = ?1
             ORDER BY name",
        )
        .and_then(|mut s| s.query_map([session.as_str()], read)?.collect())
        .map_err(store_error)?;
    let entry = |(name, bytes, since): (String, i64, i64)| {
        Ok(MemoryEntry {
            name: name.parse().map_err(|error| StoreError::Corrupt {
                key: format!("a memory of session {session}"),
                detail: format!("{error}"),
            })?,
            bytes: bytes.unsigned_abs(),
            updated_at: Timestamp::from_unix_millis(since),
        })
    };
    rows.into_iter().map(entry).collect()
}

fn one(
    connection: &Connection,
    session: &SessionId,
    name: MemoryName,
) -> Result<Option<Memory>, StoreError> {
    let found: Option<(String, i64)> = connection
        .prepare_cached("SELECT text, since FROM session_memories WHERE session = ?1 AND name = ?2")
        .and_then(|mut s| {
            s.query_row([session.as_str(), name.as_str()], |row| {
                Ok((row.get(0)?, row.get(1)?))
            })
            .optional()
        })
        .map_err(store_error)?;
    Ok(found.map(|(text, since)| Memory {
        name,
        text,
        updated_at: Timestamp::from_unix_millis(since),
    }))
}

fn put(
    connection: &Connection,
    session: &SessionId,
    memory: &Memory,
    most: usize,
) -> Result<bool, StoreError> {
    let (session, name) = (session.as_str(), memory.name.as_str());
    let others: i64 = connection
        .prepare_cached("SELECT count(*) FROM session_memories WHERE session = ?1 AND name <> ?2")
        .and_then(|mut s| s.query_row([session, name], |row| row.get(0)))
        .map_err(store_error)?;
    if usize::try_from(others).unwrap_or(0) >= most {
        return Ok(false);
    }
    let since = memory.updated_at.unix_millis();
    connection
        .prepare_cached(
            "INSERT INTO session_memories (session, name, text, since) VALUES (?1, ?2, ?3, ?4)
             ON CONFLICT (session, name) DO UPDATE SET text = excluded.text, since = excluded.since",
        )
        .and_then(|mut s| s.execute(params![session, name, memory.text, since]))
        .map_err(store_error)?;
    Ok(true)
}

fn delete(
    connection: &Connection,
    session: &SessionId,
    name: &MemoryName,
) -> Result<bool, StoreError> {
    let deleted = connection
        .prepare_cached("DELETE FROM session_memories WHERE session = ?1 AND name = ?2")
        .and_then(|mut s| s.execute([session.as_str(), name.as_str()]))
        .map_err(store_error)?;
    Ok(deleted > 0)
}
