//! Rows of sessions beside their records.

use std::collections::BTreeMap;

use shoal_core::session::life::Life;
use shoal_core::session::machine::{MachineParameters, MachineType};
use shoal_core::session::memory::Memory;
use shoal_core::session::preview::Wakes;
use shoal_core::session::secret::Activation;
use shoal_core::session::{SessionId, SessionRecord};
use shoal_core::store::{SealedSecret, SessionMemoryStore, SessionSecretStore, SessionStore};

use super::*;

const THEN: Timestamp = Timestamp::from_unix_millis(1_700_000_000_123);

async fn session(store: &SqliteStore, number: u8) -> SessionRecord {
    let record = SessionRecord {
        external: None,
        id: SessionId::from_entropy([number; 16]),
        team: TeamId::from_entropy([1; 16]),
        slug: "team".parse().unwrap(),
        key: KeyId::from_entropy([2; 16]),
        metadata: BTreeMap::new(),
        machine: MachineType::try_from(MachineParameters::default()).unwrap(),
        life: Life {
            persist: false,
            last_execution: THEN,
        },
        sandbox: None,
        filled: None,
        system: None,
        isolation: None,
        preview: None,
        wakes: Wakes::default(),
        created_at: THEN,
    };
    store.put_session(&record).await.unwrap();
    record
}

fn secret(name: &str, activation: Option<Activation>) -> SealedSecret {
    SealedSecret {
        name: name.parse().unwrap(),
        sealed: vec![1, 2, 3],
        activation,
        set_at: THEN,
    }
}

fn memory(name: &str, text: &str) -> Memory {
    Memory {
        name: name.parse().unwrap(),
        text: text.to_owned(),
        updated_at: THEN,
    }
}

#[tokio::test]
async fn secrets_survive_a_restart_and_every_change_of_their_session() {
    let (_directory, path, store) = open();
    let mut owner = session(&store, 1).await;
    let other = session(&store, 2).await;
    let (bound, kept) = (
        SandboxId::from_entropy([1; 16]),
        SandboxId::from_entropy([2; 16]),
    );
    let secrets = [
        secret("A", None),
        secret("B", Some(Activation::Next)),
        secret("C", Some(Activation::Machine(kept.clone()))),
    ];
    for one in &secrets {
        store
            .put_session_secret(&owner.id, one.clone())
            .await
            .unwrap();
    }
    owner.sandbox = Some(bound.clone());
    store.put_session(&owner).await.unwrap();
    store.bind_session_secrets(&owner.id, &bound).await.unwrap();
    drop(store);
    let store = SqliteStore::open(&path).unwrap();
    let [a, _, c] = secrets;
    let expected = [a, secret("B", Some(Activation::Machine(bound))), c];
    assert_eq!(store.session_secrets(&owner.id).await.unwrap(), expected);
    assert!(store.session_secrets(&other.id).await.unwrap().is_empty());
}

#[tokio::test]
async fn r2_105_the_end_of_a_session_deletes_its_secrets_and_memories() {
    let (_directory, _path, store) = open();
    let (gone, other) = (session(&store, 1).await, session(&store, 2).await);
    for id in [&gone.id, &other.id] {
        store
            .put_session_secret(id, secret("A", None))
            .await
            .unwrap();
        assert!(
            store
                .put_session_memory(id, memory("plan", "x"), 9)
                .await
                .unwrap()
        );
    }
    store.delete_session(&gone.id).await.unwrap();
    // As it would be if the id came again.
    session(&store, 1).await;
    assert!(store.session_secrets(&gone.id).await.unwrap().is_empty());
    assert!(store.session_memories(&gone.id).await.unwrap().is_empty());
    assert_eq!(store.session_secrets(&other.id).await.unwrap().len(), 1);
    assert_eq!(store.session_memories(&other.id).await.unwrap().len(), 1);
    // Nothing is kept of a session that is not.
    let absent = SessionId::from_entropy([9; 16]);
    let put = store.put_session_secret(&absent, secret("A", None)).await;
    assert!(put.is_err());
    let name = "A".parse().unwrap();
    assert!(store.delete_session_secret(&other.id, &name).await.unwrap());
    assert!(!store.delete_session_secret(&other.id, &name).await.unwrap());
}

#[tokio::test]
async fn r2_018_memories_are_read_as_they_were_written() {
    let (_directory, path, store) = open();
    let owner = session(&store, 1).await.id;
    let plan = memory("plan", "1. ä\n2. b");
    assert!(
        store
            .put_session_memory(&owner, memory("plan", "old"), 2)
            .await
            .unwrap()
    );
    assert!(
        store
            .put_session_memory(&owner, plan.clone(), 2)
            .await
            .unwrap()
    );
    assert!(
        store
            .put_session_memory(&owner, memory("a", ""), 2)
            .await
            .unwrap()
    );
    // There is no room for a third; the others can still be changed.
    assert!(
        !store
            .put_session_memory(&owner, memory("b", ""), 2)
            .await
            .unwrap()
    );
    assert!(
        store
            .put_session_memory(&owner, memory("a", "more"), 2)
            .await
            .unwrap()
    );
    drop(store);
    let store = SqliteStore::open(&path).unwrap();
    let entries = store.session_memories(&owner).await.unwrap();
    let seen: Vec<_> = entries
        .iter()
        .map(|one| (one.name.as_str(), one.bytes))
        .collect();
    assert_eq!(seen, [("a", 4), ("plan", 10)]);
    let read = store.session_memory(&owner, &plan.name).await.unwrap();
    assert_eq!(read.as_ref(), Some(&plan));
    assert!(
        store
            .delete_session_memory(&owner, &plan.name)
            .await
            .unwrap()
    );
    assert!(
        !store
            .delete_session_memory(&owner, &plan.name)
            .await
            .unwrap()
    );
    assert_eq!(
        store.session_memory(&owner, &plan.name).await.unwrap(),
        None
    );
}
