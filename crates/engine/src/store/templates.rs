//! Templates: documents by id.

use rusqlite::{Connection, params};
use shoal_core::id::TemplateId;
use shoal_core::store::StoreError;
use shoal_core::template::Template;

use super::{decode, encode, store_error};

pub(super) fn all(connection: &Connection) -> Result<Vec<Template>, StoreError> {
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

pub(super) fn put(connection: &Connection, template: &Template) -> Result<(), StoreError> {
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

pub(super) fn delete(connection: &Connection, id: &TemplateId) -> Result<bool, StoreError> {
    let deleted = connection
        .prepare_cached("DELETE FROM templates WHERE id = ?1")
        .and_then(|mut s| s.execute([id.as_str()]))
        .map_err(store_error)?;
    Ok(deleted > 0)
}
