//! Templates: documents by id.

use rusqlite::{Connection, params};
use shoal_core::BoxFuture;
use shoal_core::id::TemplateId;
use shoal_core::store::{StoreError, TemplateStore};
use shoal_core::template::Template;

use super::{SqliteStore, decode, encode, store_error};

impl TemplateStore for SqliteStore {
    fn templates(&self) -> BoxFuture<'_, Result<Vec<Template>, StoreError>> {
        self.call(|connection| all(connection))
    }

    fn put_template(&self, template: Template) -> BoxFuture<'_, Result<(), StoreError>> {
        self.call(move |connection| put(connection, &template))
    }

    fn delete_template(&self, id: &TemplateId) -> BoxFuture<'_, Result<bool, StoreError>> {
        let id = id.clone();
        self.call(move |connection| delete(connection, &id))
    }
}

fn all(connection: &Connection) -> Result<Vec<Template>, StoreError> {
    let rows = connection
        .prepare_cached("SELECT id, document FROM templates ORDER BY id")
        .and_then(|mut s| {
            let rows = s.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
            rows.collect::<rusqlite::Result<Vec<(String, String)>>>()
        })
        .map_err(store_error)?;
    rows.iter()
        .map(|(id, document)| decode(&format!("template {id}"), document))
        .collect()
}

fn put(connection: &Connection, template: &Template) -> Result<(), StoreError> {
    let document = encode(template)?;
    connection
        .prepare_cached(
            "INSERT INTO templates (id, document) VALUES (?1, ?2)
             ON CONFLICT (id) DO UPDATE SET document = excluded.document",
        )
        .and_then(|mut s| s.execute(params![template.id.as_str(), document]))
        .map_err(store_error)?;
    Ok(())
}

fn delete(connection: &Connection, id: &TemplateId) -> Result<bool, StoreError> {
    let deleted = connection
        .prepare_cached("DELETE FROM templates WHERE id = ?1")
        .and_then(|mut s| s.execute([id.as_str()]))
        .map_err(store_error)?;
    Ok(deleted > 0)
}
