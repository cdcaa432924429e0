mod session_parts;
mod upgrade;

use shoal_core::auth::{ApiKey, KeyRecord, TeamSlug};
use shoal_core::clock::Timestamp;
use shoal_core::id::{KeyId, SandboxId, TeamId};
use shoal_core::sandbox::IdempotencyKey;
use shoal_core::state::{KillReason, State};
use shoal_core::store::{
    IdempotencyClaim, IdempotencyStore, KeyStore, SandboxStore, TeamStore, Version, Versioned,
};
use std::path::PathBuf;

use super::*;
use crate::test_util;

fn open() -> (tempfile::TempDir, PathBuf, SqliteStore) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("shoal.db");
    let store = SqliteStore::open(&path).unwrap();
    (directory, path, store)
}

#[test]
fn nobody_else_on_the_machine_reads_the_store() {
    use std::os::unix::fs::PermissionsExt;

    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("shoal.db");
    // As an earlier program made it.
    std::fs::write(&path, b"").unwrap();
    let _store = SqliteStore::open(&path).unwrap();
    for file in ["shoal.db", "shoal.db-wal", "shoal.db-shm"] {
        let mode = std::fs::metadata(directory.path().join(file)).unwrap();
        assert_eq!(mode.permissions().mode() & 0o777, 0o600, "{file}");
    }
}

#[tokio::test]
async fn a_commit_that_saw_an_older_version_is_refused() {
    let (_directory, path, store) = open();
    let record = test_util::record("ia");
    let first = store.commit(record.clone(), None).await.unwrap();
    let again = store.commit(record.clone(), None).await;
    assert!(matches!(
        again,
        Err(StoreError::Conflict { expected: None })
    ));
    let second = store.commit(record.clone(), Some(first)).await.unwrap();
    assert_eq!((first, second), (Version(1), Version(2)));
    let stale = store.commit(record.clone(), Some(first)).await;
    assert!(matches!(stale, Err(StoreError::Conflict { .. })));

    drop(store);
    let store = SqliteStore::open(&path).unwrap();
    let live = store.live_sandboxes().await.unwrap();
    assert_eq!(
        live,
        [Versioned {
            version: second,
            value: record
        }]
    );
}

#[tokio::test]
async fn a_terminated_sandbox_is_kept_for_a_while_and_then_forgotten() {
    let (_directory, _path, store) = open();
    let at = Timestamp::from_unix_millis(5_000);
    let ended = test_util::record("ia").with_state(State::Terminated(KillReason::Requested), at);
    store.commit(ended.clone(), None).await.unwrap();
    assert!(store.live_sandboxes().await.unwrap().is_empty());
    assert!(store.sandbox(&ended.id).await.unwrap().is_some());
    assert!(store.forget_terminated(at).await.unwrap().is_empty());
    let later = Timestamp::from_unix_millis(5_001);
    assert_eq!(
        store.forget_terminated(later).await.unwrap(),
        std::slice::from_ref(&ended.id)
    );
    assert!(store.sandbox(&ended.id).await.unwrap().is_none());
}

#[tokio::test]
async fn an_idempotency_key_means_one_request() {
    let (_directory, path, store) = open();
    let team = TeamId::from_entropy([1; 16]);
    let now = Timestamp::from_unix_millis(1_000_000);
    let claim = async |store: &SqliteStore, request: u8| {
        store
            .claim_idempotency(team, "k", &[request; 32], now)
            .await
            .unwrap()
    };
    assert_eq!(claim(&store, 1).await, IdempotencyClaim::First);
    assert_eq!(claim(&store, 1).await, IdempotencyClaim::InProgress);
    assert_eq!(claim(&store, 2).await, IdempotencyClaim::Mismatch);
    let id: SandboxId = "ia".parse().unwrap();
    let settle = async |store: &SqliteStore, at: Timestamp, id: Option<&SandboxId>| {
        let claim = IdempotencyKey {
            key: "k".to_owned(),
            at,
        };
        store.settle_idempotency(team, &claim, id).await.unwrap();
    };
    // An earlier claim of the key is another one.
    settle(&store, Timestamp::from_unix_millis(1), Some(&id)).await;
    assert_eq!(claim(&store, 1).await, IdempotencyClaim::InProgress);
    settle(&store, now, Some(&id)).await;
    assert_eq!(claim(&store, 1).await, IdempotencyClaim::Done(id));
    settle(&store, now, None).await;
    assert_eq!(claim(&store, 2).await, IdempotencyClaim::First);

    drop(store);
    let store = SqliteStore::open(&path).unwrap();
    store.release_idempotency().await.unwrap();
    assert_eq!(
        claim(&store, 2).await,
        IdempotencyClaim::First,
        "nobody will settle it"
    );
}

#[tokio::test]
async fn a_key_is_found_by_its_hash_and_its_secret_is_not_stored() {
    let (_directory, path, store) = open();
    let slug: TeamSlug = "acme".parse().unwrap();
    let team = store
        .team(&slug, TeamId::from_entropy([1; 16]))
        .await
        .unwrap();
    assert_eq!(
        store
            .team(&slug, TeamId::from_entropy([2; 16]))
            .await
            .unwrap(),
        team
    );
    let secret = ApiKey::from_entropy([9; 20]);
    let key = KeyRecord {
        id: KeyId::from_entropy([3; 16]),
        team,
        slug,
        admin: false,
        name: "mine".to_owned(),
        mask: secret.mask(),
        hash: secret.hash(),
        created_at: Timestamp::from_unix_millis(0),
        quota: None,
    };
    store.put_key(key.clone()).await.unwrap();
    assert_eq!(
        store.key_by_hash(&secret.hash()).await.unwrap(),
        Some(key.clone())
    );
    assert_eq!(
        store
            .keys(Some(TeamId::from_entropy([8; 16])))
            .await
            .unwrap(),
        []
    );
    assert_eq!(store.keys(None).await.unwrap(), std::slice::from_ref(&key));
    let digits = secret
        .reveal()
        .trim_start_matches("e2b_")
        .as_bytes()
        .to_vec();
    for suffix in ["", "-wal"] {
        let file = path.with_file_name(format!("shoal.db{suffix}"));
        let bytes = std::fs::read(file).unwrap_or_default();
        assert!(!bytes.windows(digits.len()).any(|window| window == digits));
    }
    assert!(store.delete_key(&key.id).await.unwrap());
    assert!(!store.delete_key(&key.id).await.unwrap());
}

#[tokio::test]
async fn the_seed_of_tokens_is_made_once() {
    let (_directory, path, store) = open();
    let id: SandboxId = "ia".parse().unwrap();
    let token = store
        .token_seed([1; 32])
        .await
        .unwrap()
        .envd_access_token(&id);
    drop(store);
    let again = SqliteStore::open(&path)
        .unwrap()
        .token_seed([2; 32])
        .await
        .unwrap();
    assert!(token.matches(again.envd_access_token(&id).reveal()));
}

#[test]
fn what_is_no_store_or_a_newer_one_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let garbage = directory.path().join("garbage");
    std::fs::write(&garbage, vec![7u8; 8192]).unwrap();
    assert!(SqliteStore::open(&garbage).is_err());
    let newer = directory.path().join("newer");
    Connection::open(&newer)
        .unwrap()
        .pragma_update(None, "user_version", 99)
        .unwrap();
    let error = SqliteStore::open(&newer).unwrap_err();
    let logged = shoal_core::detail::Chain(&error).to_string();
    assert!(logged.contains("use a newer one"), "{logged}");
}

/// The last commit of an earlier engine may still be under way.
#[test]
fn a_store_can_be_opened_while_another_connection_writes() {
    let (_directory, path, _store) = open();
    let writer = thread::spawn({
        let path = path.clone();
        move || {
            let connection = Connection::open(&path).unwrap();
            for number in 0..500 {
                connection
                    .execute("INSERT INTO teams (id, slug) VALUES (?1, ?1)", [number])
                    .unwrap();
            }
        }
    });
    let mut opened = 0;
    while !writer.is_finished() {
        SqliteStore::open(&path).unwrap();
        opened += 1;
    }
    writer.join().unwrap();
    assert!(opened > 0);
}
