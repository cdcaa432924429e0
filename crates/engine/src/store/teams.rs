//! Limits of tenants.

use rusqlite::{Connection, params};
use shoal_core::id::TeamId;
use shoal_core::limits::TeamLimits;
use shoal_core::store::StoreError;

use super::{decode, encode, store_error};

pub(super) fn limits(connection: &Connection) -> Result<Vec<(TeamId, TeamLimits)>, StoreError> {
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

pub(super) fn put_limits(
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
