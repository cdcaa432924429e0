//! The results of requests with an idempotency key.

use std::time::Duration;

use rusqlite::{Connection, OptionalExtension, params};
use shoal_core::BoxFuture;
use shoal_core::clock::Timestamp;
use shoal_core::id::{SandboxId, TeamId};
use shoal_core::sandbox::IdempotencyKey;
use shoal_core::store::{IdempotencyClaim, IdempotencyStore, StoreError};

use super::{SqliteStore, store_error};

/// How long a key is remembered: longer than any client tries again.
const KEPT: Duration = Duration::from_secs(24 * 3600);

impl IdempotencyStore for SqliteStore {
    fn claim_idempotency(
        &self,
        team: TeamId,
        key: &str,
        request: &[u8; 32],
        now: Timestamp,
    ) -> BoxFuture<'_, Result<IdempotencyClaim, StoreError>> {
        let (key, request) = (key.to_owned(), hex::encode(request));
        self.call(move |connection| claim(connection, team, &key, &request, now))
    }

    fn settle_idempotency(
        &self,
        team: TeamId,
        claim: &IdempotencyKey,
        sandbox: Option<&SandboxId>,
    ) -> BoxFuture<'_, Result<(), StoreError>> {
        let (claim, sandbox) = (claim.clone(), sandbox.cloned());
        self.call(move |connection| settle(connection, team, &claim, sandbox.as_ref()))
    }

    fn release_idempotency(&self) -> BoxFuture<'_, Result<(), StoreError>> {
        self.call(|connection| release(connection))
    }
}

/// Releases the keys of requests that the previous server did not finish. They have no sandbox, and no
/// task will settle them.
fn release(connection: &Connection) -> Result<(), StoreError> {
    connection
        .execute("DELETE FROM idempotency WHERE sandbox IS NULL", [])
        .map(|_| ())
        .map_err(store_error)
}

fn claim(
    connection: &mut Connection,
    team: TeamId,
    key: &str,
    request: &str,
    now: Timestamp,
) -> Result<IdempotencyClaim, StoreError> {
    let transaction = connection.transaction().map_err(store_error)?;
    let team = team.to_string();
    let forgotten = now
        .unix_millis()
        .saturating_sub(i64::try_from(KEPT.as_millis()).unwrap_or(i64::MAX));
    transaction
        .prepare_cached("DELETE FROM idempotency WHERE claimed < ?1")
        .and_then(|mut s| s.execute([forgotten]))
        .map_err(store_error)?;
    let known: Option<(String, Option<String>)> = transaction
        .prepare_cached("SELECT request, sandbox FROM idempotency WHERE team = ?1 AND key = ?2")
        .and_then(|mut s| {
            let read = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?));
            s.query_row([&team, key], read).optional()
        })
        .map_err(store_error)?;
    let claim =
        match known {
            None => {
                transaction
                .prepare_cached(
                    "INSERT INTO idempotency (team, key, request, claimed) VALUES (?1, ?2, ?3, ?4)",
                )
                .and_then(|mut s| s.execute(params![team, key, request, now.unix_millis()]))
                .map_err(store_error)?;
                IdempotencyClaim::First
            }
            Some((stored, _)) if stored != request => IdempotencyClaim::Mismatch,
            Some((_, None)) => IdempotencyClaim::InProgress,
            Some((_, Some(sandbox))) => IdempotencyClaim::Done(sandbox.parse().map_err(
                |e: shoal_core::id::InvalidId| StoreError::Corrupt {
                    key: format!("idempotency key {key}"),
                    detail: e.to_string(),
                },
            )?),
        };
    transaction.commit().map_err(store_error)?;
    Ok(claim)
}

fn settle(
    connection: &Connection,
    team: TeamId,
    claim: &IdempotencyKey,
    sandbox: Option<&SandboxId>,
) -> Result<(), StoreError> {
    let (team, key, at) = (team.to_string(), &claim.key, claim.at.unix_millis());
    match sandbox {
        Some(id) => connection
            .prepare_cached(
                "UPDATE idempotency SET sandbox = ?4 WHERE team = ?1 AND key = ?2 AND claimed = ?3",
            )
            .and_then(|mut s| s.execute(params![team, key, at, id.as_str()])),
        None => connection
            .prepare_cached("DELETE FROM idempotency WHERE team = ?1 AND key = ?2 AND claimed = ?3")
            .and_then(|mut s| s.execute(params![team, key, at])),
    }
    .map_err(store_error)?;
    Ok(())
}
