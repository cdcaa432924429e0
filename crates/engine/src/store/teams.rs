//! Limits of tenants.

use rusqlite::{Connection, params};
use shoal_core::BoxFuture;
use shoal_core::auth::TeamSlug;
use shoal_core::id::TeamId;
use shoal_core::limits::TeamLimits;
use shoal_core::store::{StoreError, TeamStore};

use super::keys::{corrupt_team, team_id};
use super::{SqliteStore, decode, encode, store_error};

impl TeamStore for SqliteStore {
    fn team(&self, slug: &TeamSlug, fresh: TeamId) -> BoxFuture<'_, Result<TeamId, StoreError>> {
        let slug = slug.clone();
        self.call(move |connection| team(connection, &slug, fresh))
    }

    fn teams(&self) -> BoxFuture<'_, Result<Vec<(TeamSlug, TeamId)>, StoreError>> {
        self.call(|connection| teams(connection))
    }

    fn team_limits(&self) -> BoxFuture<'_, Result<Vec<(TeamId, TeamLimits)>, StoreError>> {
        self.call(|connection| limits(connection))
    }

    fn put_team_limits(
        &self,
        team: TeamId,
        limits: TeamLimits,
    ) -> BoxFuture<'_, Result<(), StoreError>> {
        self.call(move |connection| put_limits(connection, team, &limits))
    }
}

fn limits(connection: &Connection) -> Result<Vec<(TeamId, TeamLimits)>, StoreError> {
    let rows: Vec<(String, String)> = connection
        .prepare_cached("SELECT id, limits FROM teams WHERE limits IS NOT NULL")
        .and_then(|mut s| {
            let rows = s.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
            rows.collect()
        })
        .map_err(store_error)?;
    rows.into_iter()
        .map(|(id, document)| Ok((id_of(&id)?, decode("limits of a team", &document)?)))
        .collect()
}

fn put_limits(
    connection: &Connection,
    team: TeamId,
    limits: &TeamLimits,
) -> Result<(), StoreError> {
    let document = encode(limits)?;
    connection
        .prepare_cached("UPDATE teams SET limits = ?2 WHERE id = ?1")
        .and_then(|mut s| s.execute(params![team.to_string(), document]))
        .map_err(store_error)?;
    Ok(())
}

fn id_of(text: &str) -> Result<TeamId, StoreError> {
    text.parse().map_err(|e| corrupt(text, &e))
}

fn corrupt(id: &str, error: &dyn std::fmt::Display) -> StoreError {
    StoreError::Corrupt {
        key: format!("team {id}"),
        detail: error.to_string(),
    }
}

fn team(connection: &Connection, slug: &TeamSlug, fresh: TeamId) -> Result<TeamId, StoreError> {
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

fn teams(connection: &Connection) -> Result<Vec<(TeamSlug, TeamId)>, StoreError> {
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
