//! A cache of valid API keys, and the watches that end when a key is deleted.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use parking_lot::RwLock;
use shoal_core::auth::{ApiKeyHash, Principal};
use shoal_core::id::KeyId;
use tokio::sync::{Mutex as AsyncMutex, watch};

use super::Access;

/// The most keys in the cache. Beyond it, the cache starts anew.
const REMEMBERED: usize = 4096;

/// From this many watched keys on, a new watch first removes the keys without watchers.
const WATCHED: usize = 64;

/// Valid keys, so that a request does not wait for the store.
#[derive(Debug, Default)]
pub(crate) struct KeyCache {
    remembered: RwLock<Remembered>,
    /// Held while an existing key is changed, so that a change cannot restore a deleted key.
    pub(super) changing: AsyncMutex<()>,
}

#[derive(Debug, Default)]
struct Remembered {
    by_hash: HashMap<ApiKeyHash, Principal>,
    /// The same keys by their ids.
    ids: HashSet<KeyId>,
    /// How many keys were removed. A lookup that began before the last removal may be outdated.
    removals: u64,
    /// The watched keys: each is set to true when its key is deleted.
    watched: HashMap<KeyId, watch::Sender<bool>>,
}

impl KeyCache {
    pub(super) fn get(&self, hash: &ApiKeyHash) -> Option<Principal> {
        self.remembered.read().by_hash.get(hash).cloned()
    }

    /// The number of removals so far. Read it before looking up a key, for [`KeyCache::remember`].
    pub(super) fn removals(&self) -> u64 {
        self.remembered.read().removals
    }

    /// Caches the result of a lookup, unless a key was removed since `removals`.
    pub(super) fn remember(&self, hash: ApiKeyHash, principal: Principal, removals: u64) {
        let mut remembered = self.remembered.write();
        if remembered.removals != removals {
            return;
        }
        if remembered.by_hash.len() >= REMEMBERED {
            remembered.by_hash.clear();
            remembered.ids.clear();
        }
        remembered.ids.insert(principal.key);
        remembered.by_hash.insert(hash, principal);
    }

    /// Removes a key that was deleted from the store, and notifies its watchers.
    pub(super) fn forget(&self, hash: &ApiKeyHash, id: KeyId) {
        let mut remembered = self.remembered.write();
        remembered.removals += 1;
        remembered.by_hash.remove(hash);
        remembered.ids.remove(&id);
        if let Some(watched) = remembered.watched.remove(&id) {
            watched.send_replace(true);
        }
    }

    /// A receiver that learns of the deletion of a key, and whether the key is cached as valid now.
    fn watch(&self, id: KeyId) -> (watch::Receiver<bool>, bool) {
        {
            let remembered = self.remembered.read();
            if let Some(watched) = remembered.watched.get(&id) {
                return (watched.subscribe(), remembered.ids.contains(&id));
            }
        }
        let mut remembered = self.remembered.write();
        if remembered.watched.len() >= WATCHED {
            remembered
                .watched
                .retain(|_, watched| watched.receiver_count() > 0);
        }
        let known = remembered.ids.contains(&id);
        let watched = remembered.watched.entry(id);
        (
            watched
                .or_insert_with(|| watch::Sender::new(false))
                .subscribe(),
            known,
        )
    }
}

/// The lifetime of a key. Long-lived connections watch it, so that a deleted key loses its effect.
#[derive(Clone)]
pub struct KeyLifetime {
    deleted: watch::Receiver<bool>,
    /// Whether the key is known to exist, so that only its deletion matters.
    known: bool,
    key: KeyId,
    access: Arc<Access>,
}

impl KeyLifetime {
    pub(crate) fn of(access: &Arc<Access>, key: KeyId) -> Self {
        let (deleted, known) = access.cache.watch(key);
        Self {
            deleted,
            known,
            key,
            access: access.clone(),
        }
    }

    /// Resolves when the key is deleted; at once if it already is.
    pub async fn ended(&mut self) {
        if !self.known {
            let keys = self.access.keys.keys(None).await;
            // If the store cannot be read, only a notification of the deletion counts.
            if keys.is_ok_and(|keys| keys.iter().all(|key| key.id != self.key)) {
                return;
            }
            self.known = true;
        }
        if self.deleted.wait_for(|deleted| *deleted).await.is_err() {
            // The cache is gone, because the server stops.
            std::future::pending::<()>().await;
        }
    }
}
