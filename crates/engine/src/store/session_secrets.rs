//! Secrets of sessions, sealed by who puts them in.

use rusqlite::{Connection, Row, params};
use shoal_core::BoxFuture;
use shoal_core::clock::Timestamp;
use shoal_core::id::SandboxId;
use shoal_core::session::SessionId;
use shoal_core::session::secret::{Activation, SecretName};
use shoal_core::store::{SealedSecret, SessionSecretStore, StoreError};

use super::{SqliteStore, store_error};

/// The machine of a secret that is active in the one that starts next.
const NEXT: &str = "";

impl SessionSecretStore for SqliteStore {
    fn session_secrets(
        &self,
        session: &SessionId,
    ) -> BoxFuture<'_, Result<Vec<SealedSecret>, StoreError>> {
        let session = session.clone();
        self.call(move |connection| all(connection, &session))
    }

    fn put_session_secret(
        &self,
        session: &SessionId,
        secret: SealedSecret,
    ) -> BoxFuture<'_, Result<(), StoreError>> {
        let session = session.clone();
        self.call(move |connection| put(connection, &session, &secret))
    }

    fn delete_session_secret(
        &self,
        session: &SessionId,
        name: &SecretName,
    ) -> BoxFuture<'_, Result<bool, StoreError>> {
        let (session, name) = (session.clone(), name.clone());
        self.call(move |connection| delete(connection, &session, &name))
    }

    fn bind_session_secrets(
        &self,
        session: &SessionId,
        machine: &SandboxId,
    ) -> BoxFuture<'_, Result<(), StoreError>> {
        let (session, machine) = (session.clone(), machine.clone());
        self.call(move |connection| bind(connection, &session, &machine))
    }
}

fn all(connection: &Connection, session: &SessionId) -> Result<Vec<SealedSecret>, StoreError> {
    type Stored = (String, Vec<u8>, Option<String>, i64);
    let read = |row: &Row<'_>| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?));
    let rows: Vec<Stored> = connection
        .prepare_cached(
            "SELECT name, sealed, machine, since FROM session_secrets WHERE session = ?1 ORDER BY name",
        )
        .and_then(|mut s| s.query_map([session.as_str()], read)?.collect())
        .map_err(store_error)?;
    let secret = |(name, sealed, machine, since): Stored| {
        let corrupt = |error: &dyn std::error::Error| StoreError::Corrupt {
            key: format!("a secret of session {session}"),
            detail: error.to_string(),
        };
        Ok(SealedSecret {
            name: name.parse().map_err(|e| corrupt(&e))?,
            sealed,
            activation: match machine.as_deref() {
                None => None,
                Some(NEXT) => Some(Activation::Next),
                Some(id) => Some(Activation::Machine(id.parse().map_err(|e| corrupt(&e))?)),
            },
            set_at: Timestamp::from_unix_millis(since),
        })
    };
    rows.into_iter().map(secret).collect()
}

fn put(
    connection: &Connection,
    session: &SessionId,
    secret: &SealedSecret,
) -> Result<(), StoreError> {
    let machine = secret.activation.as_ref().map(|active| match active {
        Activation::Next => NEXT.to_owned(),
        Activation::Machine(id) => id.to_string(),
    });
    let (session, name) = (session.as_str(), secret.name.as_str());
    let since = secret.set_at.unix_millis();
    connection
        .prepare_cached(
            "INSERT INTO session_secrets (session, name, sealed, machine, since)
             VALUES (?1, ?2, ?3, ?4, ?5) ON CONFLICT (session, name) DO UPDATE SET
             sealed = excluded.sealed, machine = excluded.machine, since = excluded.since",
        )
        .and_then(|mut s| s.execute(params![session, name, secret.sealed, machine, since]))
        .map_err(store_error)?;
    Ok(())
}

fn delete(
    connection: &Connection,
    session: &SessionId,
    name: &SecretName,
) -> Result<bool, StoreError> {
    let deleted = connection
        .prepare_cached("DELETE FROM session_secrets WHERE session = ?1 AND name = ?2")
        .and_then(|mut s| s.execute([session.as_str(), name.as_str()]))
        .map_err(store_error)?;
    Ok(deleted > 0)
}

fn bind(
    connection: &Connection,
    session: &SessionId,
    machine: &SandboxId,
) -> Result<(), StoreError> {
    connection
        .prepare_cached(
            "UPDATE session_secrets SET machine = ?2 WHERE session = ?1 AND machine = ?3",
        )
        .and_then(|mut s| s.execute(params![session.as_str(), machine.as_str(), NEXT]))
        .map_err(store_error)?;
    Ok(())
}
