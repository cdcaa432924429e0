//! Data directories of earlier versions are read, whole.
//!
//! `rows.sql` has rows of a real server. Every later program must read them: when a document changes, keep these rows and add rows of
//! the new form.

use std::path::Path;

use shoal_core::sandbox::SandboxRecord;
use shoal_core::store::{
    BuildStore, CatalogueStore, PoolStore, PrivateImageStore, SessionFileStore, SessionMemoryStore,
    SessionSecretStore, SessionStore, SnapshotStore, TemplateStore,
};

use super::*;
use crate::store::migrations::{STEPS, VERSION};

const ROWS: &str = include_str!("rows.sql");

/// A store of a version, with the rows that its tables can have.
fn written_by(version: u32, path: &Path) -> Vec<(String, i64)> {
    let old = Connection::open(path).unwrap();
    for step in STEPS.iter().take(version as usize) {
        old.execute_batch(step).unwrap();
    }
    old.pragma_update(None, "user_version", version).unwrap();
    let tables = names(&old, "SELECT name FROM sqlite_master WHERE type = 'table'");
    drop(old);

    let now = Connection::open_in_memory().unwrap();
    for step in STEPS {
        now.execute_batch(step).unwrap();
    }
    now.execute_batch(ROWS).unwrap();
    now.execute("ATTACH ?1 AS old", [path.to_str().unwrap()])
        .unwrap();
    let copy = |table: &String| {
        let columns = format!("SELECT name FROM pragma_table_info('{table}', 'old')");
        let columns = names(&now, &columns).join(", ");
        let sql = format!("INSERT INTO old.{table} ({columns}) SELECT {columns} FROM main.{table}");
        now.execute(&sql, []).unwrap();
        (table.clone(), count(&now, &format!("old.{table}")))
    };
    tables.iter().map(copy).collect()
}

fn names(connection: &Connection, sql: &str) -> Vec<String> {
    let mut statement = connection.prepare(sql).unwrap();
    let rows = statement.query_map([], |row| row.get(0)).unwrap();
    rows.map(Result::unwrap).collect()
}

fn count(connection: &Connection, table: &str) -> i64 {
    let sql = format!("SELECT count(*) FROM {table}");
    connection.query_row(&sql, [], |row| row.get(0)).unwrap()
}

#[tokio::test]
async fn the_tables_of_every_earlier_version_are_brought_up_to_date() {
    for version in 1..=VERSION {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("shoal.db");
        let before = written_by(version, &path);
        let store = SqliteStore::open(&path).unwrap();
        assert_eq!(store.live_sandboxes().await.unwrap().len(), 4, "{version}");
        assert_eq!(store.templates().await.unwrap().len(), 2, "{version}");
        assert_eq!(store.keys(None).await.unwrap().len(), 2, "{version}");
        drop(store);
        let connection = Connection::open(&path).unwrap();
        for (table, rows) in before {
            assert_eq!(count(&connection, &table), rows, "{table} of {version}");
        }
        let read: u32 = connection
            .pragma_query_value(None, "user_version", |row| row.get(0))
            .unwrap();
        assert_eq!(read, VERSION);
    }
}

#[tokio::test]
async fn every_document_that_was_written_is_read() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("shoal.db");
    let tables = written_by(VERSION, &path);
    let empty: Vec<_> = tables.iter().filter(|(_, rows)| *rows == 0).collect();
    assert!(empty.is_empty(), "rows.sql has none of {empty:?}");
    let store = SqliteStore::open(&path).unwrap();

    let sandboxes = store.live_sandboxes().await.unwrap();
    let paused = |one: &&Versioned<SandboxRecord>| matches!(one.value.state, State::Paused { .. });
    assert_eq!(sandboxes.iter().filter(paused).count(), 1);
    let built = store.templates().await.unwrap();
    assert!(built.iter().any(|template| template.snapshot.is_some()));
    let builds = store.builds().await.unwrap();
    for build in &builds {
        assert!(!store.build_log(build.id).await.unwrap().is_empty());
    }
    assert_eq!((builds.len(), store.layers().await.unwrap().len()), (2, 2));
    assert_eq!(store.snapshots().await.unwrap().len(), 1);
    assert_eq!(store.team_limits().await.unwrap().len(), 1);
    assert_eq!(store.private_images().await.unwrap().len(), 1);
    assert_eq!(store.warm_snapshots().await.unwrap().len(), 1);
    assert!(store.catalogue().await.unwrap().is_some());

    let session = store.sessions().await.unwrap().remove(0).id;
    assert_eq!(store.file_rows(&session).await.unwrap().len(), 5);
    assert_eq!(store.session_secrets(&session).await.unwrap().len(), 1);
    let memories = store.session_memories(&session).await.unwrap();
    assert_eq!(memories[0].bytes, "remembered".len() as u64);
}
