//! Private images: documents by name.

use rusqlite::{Connection, params};
use shoal_core::BoxFuture;
use shoal_core::image::{ImageName, PrivateImage};
use shoal_core::store::{PrivateImageStore, StoreError};

use super::{SqliteStore, store_error};

impl PrivateImageStore for SqliteStore {
    fn private_images(&self) -> BoxFuture<'_, Result<Vec<PrivateImage>, StoreError>> {
        self.call(|connection| all(connection))
    }

    fn put_private_image(&self, image: PrivateImage) -> BoxFuture<'_, Result<(), StoreError>> {
        self.call(move |connection| put(connection, &image))
    }

    fn delete_private_image(&self, name: ImageName) -> BoxFuture<'_, Result<(), StoreError>> {
        self.call(move |connection| delete(connection, &name))
    }
}

fn all(connection: &Connection) -> Result<Vec<PrivateImage>, StoreError> {
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

fn put(connection: &Connection, image: &PrivateImage) -> Result<(), StoreError> {
    connection
        .prepare_cached(
            "INSERT INTO private_images (name, open) VALUES (?1, ?2)
             ON CONFLICT (name) DO UPDATE SET open = excluded.open",
        )
        .and_then(|mut s| s.execute(params![image.name.as_str(), image.open]))
        .map_err(store_error)?;
    Ok(())
}

fn delete(connection: &Connection, name: &ImageName) -> Result<(), StoreError> {
    connection
        .prepare_cached("DELETE FROM private_images WHERE name = ?1")
        .and_then(|mut s| s.execute([name.as_str()]))
        .map_err(store_error)?;
    Ok(())
}
