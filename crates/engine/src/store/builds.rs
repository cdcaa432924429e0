//! Builds with their logs, the layers that they leave, and whose the images are that they stand on.

use rusqlite::{Connection, OptionalExtension, params};
use shoal_core::build::{BuildRecord, Layer, LogEntry};
use shoal_core::id::{BuildId, TeamId};
use shoal_core::image::{ImageName, PrivateImage};
use shoal_core::store::StoreError;

use super::{decode, encode, store_error};

pub(super) fn all(connection: &Connection) -> Result<Vec<BuildRecord>, StoreError> {
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

pub(super) fn put(
    connection: &Connection,
    build: &BuildRecord,
    log: Option<&[LogEntry]>,
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

pub(super) fn log(connection: &Connection, id: BuildId) -> Result<Vec<LogEntry>, StoreError> {
    let log: Option<Option<String>> = connection
        .prepare_cached("SELECT log FROM builds WHERE id = ?1")
        .and_then(|mut s| s.query_row([id.to_string()], |row| row.get(0)).optional())
        .map_err(store_error)?;
    match log.flatten() {
        Some(log) => decode(&format!("log of build {id}"), &log),
        None => Ok(Vec::new()),
    }
}

pub(super) fn delete(connection: &Connection, id: BuildId) -> Result<(), StoreError> {
    connection
        .prepare_cached("DELETE FROM builds WHERE id = ?1")
        .and_then(|mut s| s.execute([id.to_string()]))
        .map_err(store_error)?;
    Ok(())
}

pub(super) fn layers(connection: &Connection) -> Result<Vec<Layer>, StoreError> {
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

pub(super) fn put_layer(connection: &Connection, layer: &Layer) -> Result<(), StoreError> {
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

pub(super) fn delete_layer(
    connection: &Connection,
    team: TeamId,
    key: &str,
) -> Result<(), StoreError> {
    connection
        .prepare_cached("DELETE FROM layers WHERE team = ?1 AND key = ?2")
        .and_then(|mut s| s.execute(params![team.to_string(), key]))
        .map_err(store_error)?;
    Ok(())
}

pub(super) fn private_images(connection: &Connection) -> Result<Vec<PrivateImage>, StoreError> {
    let rows = connection
        .prepare_cached("SELECT name, open FROM private_images ORDER BY name")
        .and_then(|mut s| {
            let rows = s.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
            rows.collect::<rusqlite::Result<Vec<(String, Option<String>)>>>()
        })
        .map_err(store_error)?;
    let read = |(name, open): (String, Option<String>)| match name.parse() {
        Ok(name) => Ok(PrivateImage { name, open }),
        Err(_) => Err(StoreError::Corrupt {
            key: format!("private image {name}"),
            detail: "it is no name of an image".to_owned(),
        }),
    };
    rows.into_iter().map(read).collect()
}

pub(super) fn put_private_image(
    connection: &Connection,
    image: &PrivateImage,
) -> Result<(), StoreError> {
    connection
        .prepare_cached(
            "INSERT INTO private_images (name, open) VALUES (?1, ?2)
             ON CONFLICT (name) DO UPDATE SET open = excluded.open",
        )
        .and_then(|mut s| s.execute(params![image.name.as_str(), image.open]))
        .map_err(store_error)?;
    Ok(())
}

pub(super) fn delete_private_image(
    connection: &Connection,
    name: &ImageName,
) -> Result<(), StoreError> {
    connection
        .prepare_cached("DELETE FROM private_images WHERE name = ?1")
        .and_then(|mut s| s.execute([name.as_str()]))
        .map_err(store_error)?;
    Ok(())
}
