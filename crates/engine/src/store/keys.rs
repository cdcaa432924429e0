//! Tenants, their keys, and the secret of the installation.

use rusqlite::{Connection, OptionalExtension, params};
use shoal_core::auth::{ApiKeyHash, KeyRecord, TeamSlug, TokenSeed};
use shoal_core::id::{KeyId, TeamId};
use shoal_core::store::StoreError;

use super::{decode, encode, store_error};

pub(super) fn team(
    connection: &Connection,
    slug: &TeamSlug,
    fresh: TeamId,
) -> Result<TeamId, StoreError> {
    connection
        .prepare_cached("INSERT INTO teams (slug, id) VALUES (?1, ?2) ON CONFLICT DO NOTHING")
        .and_then(|mut s| s.execute(params![slug.as_str(), fresh.to_string()]))
        .map_err(store_error)?;
    let id: String = connection
        .prepare_cached("SELECT id FROM teams WHERE slug = ?1")
        .and_then(|mut s| s.query_row([slug.as_str()], |row| row.get(0)))
        .map_err(store_error)?;
    team_id(slug.as_str(), &id)
}

fn team_id(slug: &str, id: &str) -> Result<TeamId, StoreError> {
    id.parse().map_err(|e| corrupt_team(slug, &e))
}

fn corrupt_team(slug: &str, error: &dyn std::error::Error) -> StoreError {
    StoreError::Corrupt {
        key: format!("team {slug}"),
        detail: error.to_string(),
    }
}

pub(super) fn teams(connection: &Connection) -> Result<Vec<(TeamSlug, TeamId)>, StoreError> {
    let rows = connection
        .prepare_cached("SELECT slug, id FROM teams")
        .and_then(|mut s| {
            let rows = s.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
            rows.collect::<rusqlite::Result<Vec<(String, String)>>>()
        })
        .map_err(store_error)?;
    let team = |(slug, id): (String, String)| {
        let named = slug.parse().map_err(|e| corrupt_team(&slug, &e))?;
        Ok((named, team_id(&slug, &id)?))
    };
    rows.into_iter().map(team).collect()
}

pub(super) fn by_hash(
    connection: &Connection,
    hash: &ApiKeyHash,
) -> Result<Option<KeyRecord>, StoreError> {
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

pub(super) fn all(
    connection: &Connection,
    team: Option<TeamId>,
) -> Result<Vec<KeyRecord>, StoreError> {
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

pub(super) fn put(connection: &Connection, key: &KeyRecord) -> Result<(), StoreError> {
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

pub(super) fn delete(connection: &Connection, id: KeyId) -> Result<bool, StoreError> {
    let deleted = connection
        .prepare_cached("DELETE FROM keys WHERE id = ?1")
        .and_then(|mut s| s.execute([id.to_string()]))
        .map_err(store_error)?;
    Ok(deleted > 0)
}

pub(super) fn token_seed(
    connection: &Connection,
    fresh: [u8; 32],
) -> Result<TokenSeed, StoreError> {
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
