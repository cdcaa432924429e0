//! Builds with their logs, their cached layers, and the owners of their images.

use rusqlite::{Connection, OptionalExtension, params};
use shoal_core::BoxFuture;
use shoal_core::build::{BuildLayer, BuildLogEntry, BuildRecord};
use shoal_core::id::{BuildId, TeamId};
use shoal_core::store::{BuildStore, StoreError};

use super::{SqliteStore, decode, encode, store_error};

impl BuildStore for SqliteStore {
    fn builds(&self) -> BoxFuture<'_, Result<Vec<BuildRecord>, StoreError>> {
        self.call(|connection| all(connection))
    }

    fn put_build(
        &self,
        build: BuildRecord,
        log: Option<Vec<BuildLogEntry>>,
    ) -> BoxFuture<'_, Result<(), StoreError>> {
        self.call(move |connection| put(connection, &build, log.as_deref()))
    }

    fn build_log(&self, id: BuildId) -> BoxFuture<'_, Result<Vec<BuildLogEntry>, StoreError>> {
        self.call(move |connection| log(connection, id))
    }

    fn delete_build(&self, id: BuildId) -> BoxFuture<'_, Result<(), StoreError>> {
        self.call(move |connection| delete(connection, id))
    }

    fn layers(&self) -> BoxFuture<'_, Result<Vec<BuildLayer>, StoreError>> {
        self.call(|connection| layers(connection))
    }

    fn put_layer(&self, layer: BuildLayer) -> BoxFuture<'_, Result<(), StoreError>> {
        self.call(move |connection| put_layer(connection, &layer))
    }

    fn delete_layer(&self, team: TeamId, key: &str) -> BoxFuture<'_, Result<(), StoreError>> {
        let key = key.to_owned();
        self.call(move |connection| delete_layer(connection, team, &key))
    }
}

fn all(connection: &Connection) -> Result<Vec<BuildRecord>, StoreError> {
    let rows = connection
        .prepare_cached("SELECT id, document FROM builds ORDER BY id")
        .and_then(|mut s| {
            let rows = s.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
            rows.collect::<rusqlite::Result<Vec<(String, String)>>>()
        })
        .map_err(store_error)?;
    rows.iter()
        .map(|(id, document)| decode(&format!("build {id}"), document))
        .collect()
}

fn put(
    connection: &Connection,
    build: &BuildRecord,
    log: Option<&[BuildLogEntry]>,
) -> Result<(), StoreError> {
    let document = encode(build)?;
    let log = log.map(|log| encode(&log)).transpose()?;
    connection
        .prepare_cached(
            "INSERT INTO builds (id, document, log) VALUES (?1, ?2, ?3)
             ON CONFLICT (id) DO UPDATE SET document = excluded.document,
                                            log = coalesce(excluded.log, log)",
        )
        .and_then(|mut s| s.execute(params![build.id.to_string(), document, log]))
        .map_err(store_error)?;
    Ok(())
}

fn log(connection: &Connection, id: BuildId) -> Result<Vec<BuildLogEntry>, StoreError> {
    let log: Option<Option<String>> = connection
        .prepare_cached("SELECT log FROM builds WHERE id = ?1")
        .and_then(|mut s| s.query_row([id.to_string()], |row| row.get(0)).optional())
        .map_err(store_error)?;
    match log.flatten() {
        Some(log) => decode(&format!("log of build {id}"), &log),
        None => Ok(Vec::new()),
    }
}

fn delete(connection: &Connection, id: BuildId) -> Result<(), StoreError> {
    connection
        .prepare_cached("DELETE FROM builds WHERE id = ?1")
        .and_then(|mut s| s.execute([id.to_string()]))
        .map_err(store_error)?;
    Ok(())
}

fn layers(connection: &Connection) -> Result<Vec<BuildLayer>, StoreError> {
    let rows = connection
        .prepare_cached("SELECT key, document FROM layers ORDER BY team, key")
        .and_then(|mut s| {
            let rows = s.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
            rows.collect::<rusqlite::Result<Vec<(String, String)>>>()
        })
        .map_err(store_error)?;
    rows.iter()
        .map(|(key, document)| decode(&format!("layer {key}"), document))
        .collect()
}

fn put_layer(connection: &Connection, layer: &BuildLayer) -> Result<(), StoreError> {
    let document = encode(layer)?;
    connection
        .prepare_cached(
            "INSERT INTO layers (team, key, document) VALUES (?1, ?2, ?3)
             ON CONFLICT (team, key) DO UPDATE SET document = excluded.document",
        )
        .and_then(|mut s| s.execute(params![layer.team.to_string(), layer.key, document]))
        .map_err(store_error)?;
    Ok(())
}

fn delete_layer(connection: &Connection, team: TeamId, key: &str) -> Result<(), StoreError> {
    connection
        .prepare_cached("DELETE FROM layers WHERE team = ?1 AND key = ?2")
        .and_then(|mut s| s.execute(params![team.to_string(), key]))
        .map_err(store_error)?;
    Ok(())
}
