//! Keys that were good a moment ago, and who has to hear when one is deleted.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use parking_lot::RwLock;
use shoal_core::auth::{ApiKeyHash, Principal};
use shoal_core::id::KeyId;
use tokio::sync::{Mutex as AsyncMutex, watch};

use super::Access;

/// How many keys are remembered between requests; more are looked up each time.
const REMEMBERED: usize = 4096;

/// From how many watched keys on those that nobody watches any more are looked for.
const WATCHED: usize = 64;

/// Keys that were good a moment ago, so that a request does not wait for the store.
#[derive(Debug, Default)]
pub(crate) struct KeyCache {
    remembered: RwLock<Remembered>,
    /// Who changes a key that is there: a change must not bring back what another has removed.
    pub(super) changing: AsyncMutex<()>,
}

#[derive(Debug, Default)]
struct Remembered {
    by_hash: HashMap<ApiKeyHash, Principal>,
    /// The same keys by their ids.
    ids: HashSet<KeyId>,
    /// How many keys were removed: what was looked up before the last of that may be it.
    removals: u64,
    /// Told when their key is deleted.
    watched: HashMap<KeyId, watch::Sender<bool>>,
}

impl KeyCache {
    pub(super) fn get(&self, hash: &ApiKeyHash) -> Option<Principal> {
        self.remembered.read().by_hash.get(hash).cloned()
    }

    /// To be asked before a key is looked up, for [`KeyCache::remember`].
    pub(super) fn removals(&self) -> u64 {
        self.remembered.read().removals
    }

    /// Remembers what was looked up, unless a key was removed since `removals`.
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

    /// Forgets a key that the store has no more, and tells those who watch it.
    pub(super) fn forget(&self, hash: &ApiKeyHash, id: KeyId) {
        let mut remembered = self.remembered.write();
        remembered.removals += 1;
        remembered.by_hash.remove(hash);
        remembered.ids.remove(&id);
        if let Some(watched) = remembered.watched.remove(&id) {
            watched.send_replace(true);
        }
    }

    /// What hears of the end of a key, and whether the key is known to be good at this moment.
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

/// How long a key is good: what goes on for longer than one call watches it, so that a deleted key
/// acts no more.
#[derive(Clone)]
pub struct KeyLifetime {
    deleted: watch::Receiver<bool>,
    /// Whether the key was there when the watch began.
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

    /// Ends when the key is deleted; at once when it already is.
    pub async fn ended(&mut self) {
        if !self.known {
            let keys = self.access.keys.keys(None).await;
            // When the store cannot be read, only the news of a deletion counts.
            if keys.is_ok_and(|keys| keys.iter().all(|key| key.id != self.key)) {
                return;
            }
            self.known = true;
        }
        if self.deleted.wait_for(|deleted| *deleted).await.is_err() {
            // The cache, and with it the server, is gone.
            std::future::pending::<()>().await;
        }
    }
}
