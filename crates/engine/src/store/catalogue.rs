//! The catalogue: one row.

use rusqlite::{Connection, OptionalExtension, TransactionBehavior, params};
use shoal_core::BoxFuture;
use shoal_core::clock::Timestamp;
use shoal_core::store::{CatalogueStore, StoreError, StoredCatalogue, Version, Versioned};

use super::{SqliteStore, store_error};

impl CatalogueStore for SqliteStore {
    fn catalogue(&self) -> BoxFuture<'_, Result<Option<Versioned<StoredCatalogue>>, StoreError>> {
        self.call(|connection| read(connection))
    }

    fn put_catalogue(
        &self,
        next: StoredCatalogue,
        expected: Option<Version>,
    ) -> BoxFuture<'_, Result<Version, StoreError>> {
        self.call(move |connection| put(connection, &next, expected))
    }
}

fn read(connection: &Connection) -> Result<Option<Versioned<StoredCatalogue>>, StoreError> {
    let row: Option<(i64, i64, String)> = connection
        .prepare_cached("SELECT version, updated, document FROM catalogue")
        .and_then(|mut s| {
            s.query_row([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
                .optional()
        })
        .map_err(store_error)?;
    row.map(|(version, updated, json)| {
        Ok(Versioned {
            version: Version(number(version)?),
            value: StoredCatalogue {
                json,
                updated_at: Timestamp::from_unix_millis(updated),
            },
        })
    })
    .transpose()
}

fn put(
    connection: &mut Connection,
    next: &StoredCatalogue,
    expected: Option<Version>,
) -> Result<Version, StoreError> {
    let transaction = connection
        .transaction_with_behavior(TransactionBehavior::Immediate)
        .map_err(store_error)?;
    let known: Option<i64> = transaction
        .query_row("SELECT version FROM catalogue", [], |row| row.get(0))
        .optional()
        .map_err(store_error)?;
    let known = known.unwrap_or(0);
    if expected.is_some_and(|expected| i64::try_from(expected.0) != Ok(known)) {
        return Err(StoreError::Conflict { expected });
    }
    let version = known + 1;
    transaction
        .execute(
            "INSERT INTO catalogue (one, version, updated, document) VALUES (1, ?1, ?2, ?3)
             ON CONFLICT (one) DO UPDATE SET version = excluded.version,
                 updated = excluded.updated, document = excluded.document",
            params![version, next.updated_at.unix_millis(), next.json],
        )
        .map_err(store_error)?;
    transaction.commit().map_err(store_error)?;
    Ok(Version(number(version)?))
}

fn number(version: i64) -> Result<u64, StoreError> {
    u64::try_from(version).map_err(|_| StoreError::Corrupt {
        key: "catalogue".to_owned(),
        detail: format!("{version} is no version"),
    })
}
