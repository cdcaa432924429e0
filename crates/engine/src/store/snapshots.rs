//! Snapshots: documents by what users call them.

use rusqlite::{Connection, OptionalExtension, params};
use shoal_core::BoxFuture;
use shoal_core::detail::Chain;
use shoal_core::id::SnapshotId;
use shoal_core::snapshot::SnapshotRecord;
use shoal_core::store::{SnapshotStore, StoreError};

use super::{SqliteStore, decode, encode, store_error};

impl SnapshotStore for SqliteStore {
    fn snapshots(&self) -> BoxFuture<'_, Result<Vec<SnapshotRecord>, StoreError>> {
        self.call(|connection| all(connection))
    }

    fn put_snapshot(
        &self,
        snapshot: SnapshotRecord,
        changed: Vec<SnapshotRecord>,
    ) -> BoxFuture<'_, Result<Option<SnapshotId>, StoreError>> {
        self.call(move |connection| put(connection, &snapshot, &changed))
    }

    fn update_snapshots(
        &self,
        changed: Vec<SnapshotRecord>,
    ) -> BoxFuture<'_, Result<(), StoreError>> {
        self.call(move |connection| {
            let documents = documents(&changed)?;
            let transaction = connection.transaction().map_err(store_error)?;
            update(&transaction, &documents).map_err(store_error)?;
            transaction.commit().map_err(store_error)
        })
    }

    fn delete_snapshot(&self, id: SnapshotId) -> BoxFuture<'_, Result<bool, StoreError>> {
        self.call(move |connection| delete(connection, id))
    }
}

fn all(connection: &Connection) -> Result<Vec<SnapshotRecord>, StoreError> {
    let rows = connection
        .prepare_cached("SELECT id, document FROM snapshots ORDER BY id")
        .and_then(|mut s| {
            let rows = s.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
            rows.collect::<rusqlite::Result<Vec<(String, String)>>>()
        })
        .map_err(store_error)?;
    // One that cannot be read must not hide the others.
    let read = rows.iter().filter_map(|(id, document)| {
        match decode(&format!("snapshot {id}"), document) {
            Ok(snapshot) => Some(snapshot),
            Err(error) => {
                tracing::error!(error = %Chain(&error), "a stored snapshot is passed over");
                None
            }
        }
    });
    Ok(read.collect())
}

fn put(
    connection: &mut Connection,
    snapshot: &SnapshotRecord,
    changed: &[SnapshotRecord],
) -> Result<Option<SnapshotId>, StoreError> {
    let document = encode(snapshot)?;
    let changed = documents(changed)?;
    let (id, template) = (snapshot.id.to_string(), snapshot.template.as_str());
    // A snapshot that was acknowledged outlives the machine: this write does not wait for others.
    synchronous(connection, "FULL")?;
    let written = connection.transaction().and_then(|transaction| {
        update(&transaction, &changed)?;
        let before = transaction
            .query_row(
                "DELETE FROM snapshots WHERE template = ?1 AND tag = ?2 RETURNING id",
                params![template, snapshot.tag],
                |row| row.get::<_, String>(0),
            )
            .optional()?;
        transaction.execute(
            "INSERT INTO snapshots (id, template, tag, document) VALUES (?1, ?2, ?3, ?4)",
            params![id, template, snapshot.tag, document],
        )?;
        transaction.commit().map(|()| before)
    });
    synchronous(connection, "NORMAL")?;
    let before = written.map_err(store_error)?;
    Ok(before.and_then(|id| id.parse().ok()))
}

/// Id, first tag and document of each snapshot.
fn documents(snapshots: &[SnapshotRecord]) -> Result<Vec<(String, &str, String)>, StoreError> {
    let rows = snapshots.iter().map(|snapshot| {
        let document = encode(snapshot)?;
        Ok((snapshot.id.to_string(), snapshot.tag.as_str(), document))
    });
    rows.collect()
}

/// Changes snapshots that exist. One that was removed meanwhile stays removed.
fn update(connection: &Connection, changed: &[(String, &str, String)]) -> rusqlite::Result<()> {
    for (id, tag, document) in changed {
        connection.execute(
            "UPDATE snapshots SET tag = ?2, document = ?3 WHERE id = ?1",
            params![id, tag, document],
        )?;
    }
    Ok(())
}

fn delete(connection: &Connection, id: SnapshotId) -> Result<bool, StoreError> {
    let deleted = connection
        .prepare_cached("DELETE FROM snapshots WHERE id = ?1")
        .and_then(|mut s| s.execute([id.to_string()]))
        .map_err(store_error)?;
    Ok(deleted > 0)
}

fn synchronous(connection: &Connection, how: &str) -> Result<(), StoreError> {
    connection
        .pragma_update(None, "synchronous", how)
        .map_err(store_error)
}
