//! Sandboxes: a document with a version, written by compare and swap.

use std::fs::File;
use std::io;

use rusqlite::{Connection, OptionalExtension, Row, params};
use serde::Deserialize;
use shoal_core::BoxFuture;
use shoal_core::clock::Timestamp;
use shoal_core::detail::Chain;
use shoal_core::id::SandboxId;
use shoal_core::sandbox::{IdempotencyKey, SandboxRecord};
use shoal_core::state::StateKind;
use shoal_core::store::{SandboxStore, StoreError, Version, Versioned};

use super::{SqliteStore, decode, encode, store_error};

impl SandboxStore for SqliteStore {
    fn commit(
        &self,
        next: SandboxRecord,
        expected: Option<Version>,
    ) -> BoxFuture<'_, Result<Version, StoreError>> {
        self.call(move |connection| commit(connection, &next, expected))
    }

    fn sync(&self) -> BoxFuture<'_, Result<(), StoreError>> {
        let log = self.log.clone();
        Box::pin(async move {
            // Every commit is a frame at the end of the log, found again by its checksum. A
            // checkpoint syncs the frames that it moves out of the log.
            let synced = tokio::task::spawn_blocking(move || File::open(log)?.sync_data());
            let synced = synced.await.map_err(io::Error::other).flatten();
            synced.map_err(|e| StoreError::failed(format_args!("cannot sync the store's log: {e}")))
        })
    }

    fn live_sandboxes(&self) -> BoxFuture<'_, Result<Vec<Versioned<SandboxRecord>>, StoreError>> {
        self.call(|connection| live(connection))
    }

    fn sandbox(
        &self,
        id: &SandboxId,
    ) -> BoxFuture<'_, Result<Option<Versioned<SandboxRecord>>, StoreError>> {
        let id = id.clone();
        self.call(move |connection| one(connection, &id))
    }

    fn forget_terminated(
        &self,
        moment: Timestamp,
    ) -> BoxFuture<'_, Result<Vec<SandboxId>, StoreError>> {
        self.call(move |connection| forget(connection, moment))
    }
}

fn commit(
    connection: &Connection,
    next: &SandboxRecord,
    expected: Option<Version>,
) -> Result<Version, StoreError> {
    let id = next.id.as_str();
    let terminated = next.state.kind() == StateKind::Terminated;
    let since = next.since.unix_millis();
    let document = encode(next)?;
    let written = match expected {
        None => connection.prepare_cached(
            "INSERT INTO sandboxes (id, version, terminated, since, document)
             VALUES (?1, 1, ?2, ?3, ?4) ON CONFLICT DO NOTHING",
        ),
        Some(_) => connection.prepare_cached(
            "UPDATE sandboxes SET version = version + 1, terminated = ?2, since = ?3, document = ?4
             WHERE id = ?1 AND version = ?5",
        ),
    }
    .and_then(|mut statement| match expected {
        None => statement.execute(params![id, terminated, since, document]),
        Some(Version(seen)) => {
            statement.execute(params![id, terminated, since, document, seen.cast_signed()])
        }
    })
    .map_err(store_error)?;
    if written == 0 {
        return Err(StoreError::Conflict { expected });
    }
    Ok(Version(expected.map_or(1, |Version(seen)| seen + 1)))
}

fn read(row: &Row<'_>) -> rusqlite::Result<(String, i64, String)> {
    Ok((row.get(0)?, row.get(1)?, row.get(2)?))
}

fn versioned(
    (id, version, document): (String, i64, String),
) -> Result<Versioned<SandboxRecord>, StoreError> {
    let key = format!("sandbox {id}");
    let mut record: SandboxRecord = decode(&key, &document)?;
    if record.idempotency.is_none() {
        record.idempotency = decode::<EarlierRecord>(&key, &document)?.spec.claim;
    }
    Ok(Versioned {
        version: Version(version.cast_unsigned()),
        value: record,
    })
}

/// A record of an earlier version, which kept the idempotency key in the specification.
#[derive(Deserialize)]
struct EarlierRecord {
    spec: EarlierSpec,
}

#[derive(Deserialize)]
struct EarlierSpec {
    claim: Option<IdempotencyKey>,
}

fn live(connection: &Connection) -> Result<Vec<Versioned<SandboxRecord>>, StoreError> {
    let rows = connection
        .prepare_cached("SELECT id, version, document FROM sandboxes WHERE terminated = 0")
        .and_then(|mut s| s.query_map([], read)?.collect::<rusqlite::Result<Vec<_>>>())
        .map_err(store_error)?;
    // One unreadable record must not hide the others: it is logged, and recovery removes the resources
    // of its sandbox as strays.
    let read = rows.into_iter().filter_map(|row| match versioned(row) {
        Ok(versioned) => Some(versioned),
        Err(error) => {
            tracing::error!(error = %Chain(&error), "a stored sandbox is passed over");
            None
        }
    });
    Ok(read.collect())
}

fn one(
    connection: &Connection,
    id: &SandboxId,
) -> Result<Option<Versioned<SandboxRecord>>, StoreError> {
    connection
        .prepare_cached("SELECT id, version, document FROM sandboxes WHERE id = ?1")
        .and_then(|mut s| s.query_row([id.as_str()], read).optional())
        .map_err(store_error)?
        .map(versioned)
        .transpose()
}

fn forget(connection: &Connection, moment: Timestamp) -> Result<Vec<SandboxId>, StoreError> {
    let gone = connection
        .prepare_cached("DELETE FROM sandboxes WHERE terminated = 1 AND since < ?1 RETURNING id")
        .and_then(|mut s| {
            let ids = s.query_map([moment.unix_millis()], |row| row.get::<_, String>(0))?;
            ids.collect::<rusqlite::Result<Vec<_>>>()
        })
        .map_err(store_error)?;
    Ok(gone.iter().filter_map(|id| id.parse().ok()).collect())
}
