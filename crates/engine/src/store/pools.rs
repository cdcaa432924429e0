//! Warm snapshots of pools: documents by snapshot id.

use rusqlite::{Connection, params};
use shoal_core::BoxFuture;
use shoal_core::id::SnapshotId;
use shoal_core::pool::WarmSnapshot;
use shoal_core::store::{PoolStore, StoreError};

use super::{SqliteStore, decode, encode, store_error};

impl PoolStore for SqliteStore {
    fn warm_snapshots(&self) -> BoxFuture<'_, Result<Vec<WarmSnapshot>, StoreError>> {
        self.call(|connection| all(connection))
    }

    fn put_warm_snapshot(&self, snapshot: WarmSnapshot) -> BoxFuture<'_, Result<(), StoreError>> {
        self.call(move |connection| put(connection, &snapshot))
    }

    fn delete_warm_snapshot(&self, id: SnapshotId) -> BoxFuture<'_, Result<(), StoreError>> {
        self.call(move |connection| delete(connection, id))
    }
}

fn all(connection: &Connection) -> Result<Vec<WarmSnapshot>, StoreError> {
    let rows = connection
        .prepare_cached("SELECT id, document FROM seeds ORDER BY id")
        .and_then(|mut s| {
            let rows = s.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
            rows.collect::<rusqlite::Result<Vec<(String, String)>>>()
        })
        .map_err(store_error)?;
    // One that cannot be read costs a warm-up, and must not keep the server from starting.
    let read = rows
        .iter()
        .filter_map(|(id, document)| decode(&format!("snapshot {id}"), document).ok());
    Ok(read.collect())
}

fn put(connection: &Connection, snapshot: &WarmSnapshot) -> Result<(), StoreError> {
    let document = encode(snapshot)?;
    connection
        .prepare_cached("INSERT INTO seeds (id, document) VALUES (?1, ?2)")
        .and_then(|mut s| s.execute(params![snapshot.id.to_string(), document]))
        .map_err(store_error)?;
    Ok(())
}

fn delete(connection: &Connection, id: SnapshotId) -> Result<(), StoreError> {
    connection
        .prepare_cached("DELETE FROM seeds WHERE id = ?1")
        .and_then(|mut s| s.execute([id.to_string()]))
        .map_err(store_error)?;
    Ok(())
}
