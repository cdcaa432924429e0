//! The store of sessions beside their records, in memory.

use parking_lot::Mutex;
use shoal_core::BoxFuture;
use shoal_core::id::SandboxId;
use shoal_core::session::memory::{Memory, MemoryEntry, MemoryName};
use shoal_core::session::secret::{Activation, SecretName};
use shoal_core::store::SealedSecret;

use super::*;

#[derive(Default)]
pub(super) struct Parts {
    secrets: Mutex<BTreeMap<(SessionId, SecretName), SealedSecret>>,
    memories: Mutex<BTreeMap<(SessionId, MemoryName), Memory>>,
}

impl Parts {
    /// Everything of a session goes.
    pub(super) fn delete(&self, id: &SessionId) {
        self.secrets.lock().retain(|(session, _), _| session != id);
        self.memories.lock().retain(|(session, _), _| session != id);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.secrets.lock().is_empty() && self.memories.lock().is_empty()
    }

    /// Everything that is stored, as text.
    pub(super) fn all(&self) -> String {
        let secrets = self.secrets.lock();
        let sealed = secrets
            .values()
            .map(|secret| String::from_utf8_lossy(&secret.sealed));
        sealed.collect::<Vec<_>>().join("\n")
    }

    /// Moves the value of a secret to another, as an attacker with access to the store might.
    pub(super) fn forge(&self, from: (&SessionId, &str), to: (&SessionId, &str)) {
        let key = |(session, name): (&SessionId, &str)| (session.clone(), name.parse().unwrap());
        let mut secrets = self.secrets.lock();
        let sealed = secrets[&key(from)].sealed.clone();
        secrets.get_mut(&key(to)).unwrap().sealed = sealed;
    }
}

impl SessionSecretStore for Parts {
    fn session_secrets(
        &self,
        session: &SessionId,
    ) -> BoxFuture<'_, Result<Vec<SealedSecret>, StoreError>> {
        let session = session.clone();
        Box::pin(async move {
            let secrets = self.secrets.lock();
            let own = secrets.iter().filter(|((of, _), _)| *of == session);
            Ok(own.map(|(_, secret)| secret.clone()).collect())
        })
    }

    fn put_session_secret(
        &self,
        session: &SessionId,
        secret: SealedSecret,
    ) -> BoxFuture<'_, Result<(), StoreError>> {
        let key = (session.clone(), secret.name.clone());
        Box::pin(async move {
            self.secrets.lock().insert(key, secret);
            Ok(())
        })
    }

    fn delete_session_secret(
        &self,
        session: &SessionId,
        name: &SecretName,
    ) -> BoxFuture<'_, Result<bool, StoreError>> {
        let key = (session.clone(), name.clone());
        Box::pin(async move { Ok(self.secrets.lock().remove(&key).is_some()) })
    }

    fn bind_session_secrets(
        &self,
        session: &SessionId,
        machine: &SandboxId,
    ) -> BoxFuture<'_, Result<(), StoreError>> {
        let (session, machine) = (session.clone(), machine.clone());
        Box::pin(async move {
            for ((of, _), secret) in self.secrets.lock().iter_mut() {
                if *of == session && secret.activation == Some(Activation::Next) {
                    secret.activation = Some(Activation::Machine(machine.clone()));
                }
            }
            Ok(())
        })
    }
}

impl SessionMemoryStore for Parts {
    fn session_memories(
        &self,
        session: &SessionId,
    ) -> BoxFuture<'_, Result<Vec<MemoryEntry>, StoreError>> {
        let session = session.clone();
        Box::pin(async move {
            let memories = self.memories.lock();
            let own = memories.iter().filter(|((of, _), _)| *of == session);
            let entry = |memory: &Memory| MemoryEntry {
                name: memory.name.clone(),
                bytes: memory.text.len() as u64,
                updated_at: memory.updated_at,
            };
            Ok(own.map(|(_, memory)| entry(memory)).collect())
        })
    }

    fn session_memory(
        &self,
        session: &SessionId,
        name: &MemoryName,
    ) -> BoxFuture<'_, Result<Option<Memory>, StoreError>> {
        let key = (session.clone(), name.clone());
        Box::pin(async move { Ok(self.memories.lock().get(&key).cloned()) })
    }

    fn put_session_memory(
        &self,
        session: &SessionId,
        memory: Memory,
        most: usize,
    ) -> BoxFuture<'_, Result<bool, StoreError>> {
        let key = (session.clone(), memory.name.clone());
        Box::pin(async move {
            let mut memories = self.memories.lock();
            let others = memories.keys().filter(|one| one.0 == key.0 && **one != key);
            if others.count() >= most {
                return Ok(false);
            }
            memories.insert(key, memory);
            Ok(true)
        })
    }

    fn delete_session_memory(
        &self,
        session: &SessionId,
        name: &MemoryName,
    ) -> BoxFuture<'_, Result<bool, StoreError>> {
        let key = (session.clone(), name.clone());
        Box::pin(async move { Ok(self.memories.lock().remove(&key).is_some()) })
    }
}
