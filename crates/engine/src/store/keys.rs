//! Tenants, their keys, and the secret of the installation.

use rusqlite::{Connection, OptionalExtension, params};
use shoal_core::BoxFuture;
use shoal_core::auth::{ApiKeyHash, KeyRecord, TokenSeed};
use shoal_core::id::{KeyId, TeamId};
use shoal_core::store::{KeyStore, StoreError};

use super::{SqliteStore, decode, encode, store_error};

impl KeyStore for SqliteStore {
    fn key_by_hash(
        &self,
        hash: &ApiKeyHash,
    ) -> BoxFuture<'_, Result<Option<KeyRecord>, StoreError>> {
        let hash = hash.clone();
        self.call(move |connection| by_hash(connection, &hash))
    }

    fn keys(&self, team: Option<TeamId>) -> BoxFuture<'_, Result<Vec<KeyRecord>, StoreError>> {
        self.call(move |connection| all(connection, team))
    }

    fn put_key(&self, key: KeyRecord) -> BoxFuture<'_, Result<(), StoreError>> {
        self.call(move |connection| put(connection, &key))
    }

    fn delete_key(&self, id: &KeyId) -> BoxFuture<'_, Result<bool, StoreError>> {
        let id = *id;
        self.call(move |connection| delete(connection, id))
    }

    fn token_seed(&self, fresh: [u8; 32]) -> BoxFuture<'_, Result<TokenSeed, StoreError>> {
        self.call(move |connection| token_seed(connection, fresh))
    }
}

pub(super) fn team_id(slug: &str, id: &str) -> Result<TeamId, StoreError> {
    id.parse().map_err(|e| corrupt_team(slug, &e))
}

pub(super) fn corrupt_team(slug: &str, error: &dyn std::error::Error) -> StoreError {
    StoreError::Corrupt {
        key: format!("team {slug}"),
        detail: error.to_string(),
    }
}

fn by_hash(connection: &Connection, hash: &ApiKeyHash) -> Result<Option<KeyRecord>, StoreError> {
    connection
        .prepare_cached("SELECT document FROM keys WHERE hash = ?1")
        .and_then(|mut s| {
            s.query_row([hash.as_str()], |row| row.get::<_, String>(0))
                .optional()
        })
        .map_err(store_error)?
        .map(|document| decode("key", &document))
        .transpose()
}

fn all(connection: &Connection, team: Option<TeamId>) -> Result<Vec<KeyRecord>, StoreError> {
    let team = team.map(|team| team.to_string());
    let rows = connection
        .prepare_cached("SELECT document FROM keys WHERE ?1 IS NULL OR team = ?1 ORDER BY rowid")
        .and_then(|mut s| {
            let rows = s.query_map([team], |row| row.get::<_, String>(0))?;
            rows.collect::<rusqlite::Result<Vec<_>>>()
        })
        .map_err(store_error)?;
    rows.iter()
        .map(|document| decode("key", document))
        .collect()
}

fn put(connection: &Connection, key: &KeyRecord) -> Result<(), StoreError> {
    let document = encode(key)?;
    connection
        .prepare_cached(
            "INSERT INTO keys (id, hash, team, document) VALUES (?1, ?2, ?3, ?4)
             ON CONFLICT (id) DO UPDATE SET document = excluded.document",
        )
        .and_then(|mut s| {
            let (id, team) = (key.id.to_string(), key.team.to_string());
            s.execute(params![id, key.hash.as_str(), team, document])
        })
        .map_err(store_error)?;
    Ok(())
}

fn delete(connection: &Connection, id: KeyId) -> Result<bool, StoreError> {
    let deleted = connection
        .prepare_cached("DELETE FROM keys WHERE id = ?1")
        .and_then(|mut s| s.execute([id.to_string()]))
        .map_err(store_error)?;
    Ok(deleted > 0)
}

fn token_seed(connection: &Connection, fresh: [u8; 32]) -> Result<TokenSeed, StoreError> {
    connection
        .prepare_cached(
            "INSERT INTO secrets (name, value) VALUES ('token_seed', ?1) ON CONFLICT DO NOTHING",
        )
        .and_then(|mut s| s.execute([fresh.as_slice()]))
        .map_err(store_error)?;
    let stored: Vec<u8> = connection
        .prepare_cached("SELECT value FROM secrets WHERE name = 'token_seed'")
        .and_then(|mut s| s.query_row([], |row| row.get(0)))
        .map_err(store_error)?;
    let seed: [u8; 32] = stored.try_into().map_err(|_| StoreError::Corrupt {
        key: "token seed".to_owned(),
        detail: "it has another length than 32".to_owned(),
    })?;
    Ok(TokenSeed::new(seed))
}
