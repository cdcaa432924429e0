//! The tables, and how a file of an older version comes to have them.

use rusqlite::{Connection, TransactionBehavior};
use shoal_core::store::StoreError;

use super::store_error;

/// The version that is written.
pub(super) const VERSION: u32 = 10;

/// One step a version, never changed once released.
pub(super) const STEPS: [&str; VERSION as usize] = [
    "
    CREATE TABLE sandboxes (
        id TEXT PRIMARY KEY,
        version INTEGER NOT NULL,
        terminated INTEGER NOT NULL,
        since INTEGER NOT NULL,
        document TEXT NOT NULL
    ) STRICT;
    CREATE INDEX sandboxes_by_end ON sandboxes (terminated, since);
    CREATE TABLE idempotency (
        team TEXT NOT NULL,
        key TEXT NOT NULL,
        request TEXT NOT NULL,
        sandbox TEXT,
        claimed INTEGER NOT NULL,
        PRIMARY KEY (team, key)
    ) STRICT;
    CREATE TABLE templates (id TEXT PRIMARY KEY, document TEXT NOT NULL) STRICT;
    CREATE TABLE teams (slug TEXT PRIMARY KEY, id TEXT NOT NULL UNIQUE) STRICT;
    CREATE TABLE keys (
        id TEXT PRIMARY KEY,
        hash TEXT NOT NULL UNIQUE,
        team TEXT NOT NULL,
        document TEXT NOT NULL
    ) STRICT;
    CREATE TABLE secrets (name TEXT PRIMARY KEY, value BLOB NOT NULL) STRICT;
    ",
    "
    CREATE TABLE snapshots (
        id TEXT PRIMARY KEY,
        template TEXT NOT NULL,
        tag TEXT NOT NULL,
        document TEXT NOT NULL,
        UNIQUE (template, tag)
    ) STRICT;
    ",
    "
    CREATE TABLE catalogue (
        one INTEGER PRIMARY KEY CHECK (one = 1),
        version INTEGER NOT NULL,
        updated INTEGER NOT NULL,
        document TEXT NOT NULL
    ) STRICT;
    CREATE TABLE builds (id TEXT PRIMARY KEY, document TEXT NOT NULL, log TEXT) STRICT;
    CREATE TABLE layers (
        team TEXT NOT NULL,
        key TEXT NOT NULL,
        document TEXT NOT NULL,
        PRIMARY KEY (team, key)
    ) STRICT;
    ",
    "
    CREATE TABLE private_images (name TEXT PRIMARY KEY) STRICT;
    ",
    "
    ALTER TABLE private_images ADD COLUMN open TEXT;
    ",
    "
    CREATE TABLE seeds (id TEXT PRIMARY KEY, document TEXT NOT NULL) STRICT;
    ",
    "
    ALTER TABLE teams ADD COLUMN limits TEXT;
    ",
    "
    CREATE TABLE sessions (id TEXT PRIMARY KEY, document TEXT NOT NULL) STRICT;
    ",
    "
    CREATE TABLE session_files (
        session TEXT NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
        path TEXT NOT NULL,
        document TEXT NOT NULL,
        PRIMARY KEY (session, path)
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE session_contents (
        digest BLOB NOT NULL,
        session TEXT NOT NULL,
        path TEXT NOT NULL,
        PRIMARY KEY (digest, session, path),
        FOREIGN KEY (session, path) REFERENCES session_files (session, path) ON DELETE CASCADE
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX session_contents_of ON session_contents (session, path);
    ",
    "
    CREATE TABLE session_secrets (
        session TEXT NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
        name TEXT NOT NULL,
        sealed BLOB NOT NULL,
        machine TEXT,
        since INTEGER NOT NULL,
        PRIMARY KEY (session, name)
    ) STRICT;
    CREATE TABLE session_memories (
        session TEXT NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
        name TEXT NOT NULL,
        text TEXT NOT NULL,
        since INTEGER NOT NULL,
        PRIMARY KEY (session, name)
    ) STRICT;
    ",
];

/// Brings the tables up to date, all of it or nothing.
///
/// # Errors
/// When the file is not a database, or a newer program has written it.
pub(super) fn migrate(connection: &mut Connection) -> Result<(), StoreError> {
    connection
        .pragma_update(None, "journal_mode", "WAL")
        .map_err(store_error)?;
    connection
        .pragma_update(None, "synchronous", "NORMAL")
        .map_err(store_error)?;
    connection
        .pragma_update(None, "foreign_keys", true)
        .map_err(store_error)?;
    // A deferred transaction that reads first fails if another connection commits before it writes; this one waits.
    let transaction = connection
        .transaction_with_behavior(TransactionBehavior::Immediate)
        .map_err(store_error)?;
    let version: u32 = transaction
        .pragma_query_value(None, "user_version", |row| row.get(0))
        .map_err(store_error)?;
    if version > VERSION {
        return Err(StoreError::failed(format_args!(
            "the store is of version {version} and this program knows up to {VERSION}: \
             use a newer one"
        )));
    }
    for (_, step) in (1..).zip(STEPS).filter(|(number, _)| *number > version) {
        transaction.execute_batch(step).map_err(store_error)?;
    }
    transaction
        .pragma_update(None, "user_version", VERSION)
        .map_err(store_error)?;
    transaction.commit().map_err(store_error)
}
