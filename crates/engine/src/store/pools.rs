//! What members of pools begin with: documents by what they are saved as.

use rusqlite::{Connection, params};
use shoal_core::BoxFuture;
use shoal_core::id::SnapshotId;
use shoal_core::pool::Seed;
use shoal_core::store::{PoolStore, StoreError};

use super::{SqliteStore, decode, encode, store_error};

impl PoolStore for SqliteStore {
    fn seeds(&self) -> BoxFuture<'_, Result<Vec<Seed>, StoreError>> {
        self.call(|connection| all(connection))
    }

    fn put_seed(&self, seed: Seed) -> BoxFuture<'_, Result<(), StoreError>> {
        self.call(move |connection| put(connection, &seed))
    }

    fn delete_seed(&self, id: SnapshotId) -> BoxFuture<'_, Result<(), StoreError>> {
        self.call(move |connection| delete(connection, id))
    }
}

fn all(connection: &Connection) -> Result<Vec<Seed>, StoreError> {
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
        .filter_map(|(id, document)| decode(&format!("seed {id}"), document).ok());
    Ok(read.collect())
}

fn put(connection: &Connection, seed: &Seed) -> Result<(), StoreError> {
    let document = encode(seed)?;
    connection
        .prepare_cached("INSERT INTO seeds (id, document) VALUES (?1, ?2)")
        .and_then(|mut s| s.execute(params![seed.id.to_string(), document]))
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
