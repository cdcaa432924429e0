//! A watched kind: the library's store, the results of our own writes, and an index by controller.
//!
//! A watch lags behind our own writes. A reconcile that reads its own write from here neither creates an
//! object twice nor writes a status twice.

mod groups;

use std::collections::HashMap;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use k8s_openapi::NamespaceResourceScope;
use kube::runtime::reflector::{self, ObjectRef, Store};
use kube::runtime::watcher::{self, Event};
use kube::runtime::{WatchStreamExt, watcher as watch};
use kube::{Api, Resource};
use parking_lot::Mutex;
use serde::de::DeserializeOwned;

use self::groups::Groups;
use crate::owner;

/// So many deletions are remembered without a look at their age.
const MANY_DELETED: usize = 1000;
/// No answer of the API server arrives later than this after the deletion of its object.
const LATEST_ANSWER: Duration = Duration::from_secs(120);

/// The namespace and the name of an object.
pub(crate) type Key = (String, String);

/// The key of an object.
pub(crate) fn key<K: Resource>(object: &K) -> Key {
    let meta = object.meta();
    (
        meta.namespace.clone().unwrap_or_default(),
        meta.name.clone().unwrap_or_default(),
    )
}

/// The requirements on a controller's kinds.
pub(crate) trait Kind:
    Resource<DynamicType = (), Scope = NamespaceResourceScope>
    + Clone
    + Debug
    + DeserializeOwned
    + Send
    + Sync
    + 'static
{
}

impl<K> Kind for K where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + Debug
        + DeserializeOwned
        + Send
        + Sync
        + 'static
{
}

/// The objects of a kind.
pub(crate) struct Cache<K: Kind> {
    store: Store<K>,
    trim: fn(&mut K),
    group: fn(&K) -> Option<String>,
    state: Mutex<State<K>>,
}

struct State<K> {
    /// Objects that a write returned and the watch has not shown yet, and when.
    written: HashMap<Key, (Arc<K>, Instant)>,
    /// When the current list began. It contains everything that was written before.
    listing: Instant,
    /// Versions at which objects were deleted: an answer that arrives after the deletion is outdated.
    deleted: HashMap<Key, (u64, Instant)>,
    /// Of each object: the UID of its controller, and a group of the kind's own.
    groups: Groups,
}

/// The version of an object. The API server's versions grow with every write.
fn version<K: Resource>(object: &K) -> u64 {
    object
        .meta()
        .resource_version
        .as_deref()
        .and_then(|version| version.parse().ok())
        .unwrap_or_default()
}

impl<K: Kind> Cache<K> {
    fn new(store: Store<K>, trim: fn(&mut K), group: fn(&K) -> Option<String>) -> Self {
        Self {
            store,
            trim,
            group,
            state: Mutex::new(State {
                written: HashMap::new(),
                listing: Instant::now(),
                deleted: HashMap::new(),
                groups: Groups::default(),
            }),
        }
    }

    /// The newest known object.
    pub(crate) fn get(&self, key: &Key) -> Option<Arc<K>> {
        let stored = self.store.get(&ObjectRef::new(&key.1).within(&key.0));
        let written = self.state.lock().written.get(key).cloned();
        let written = written.map(|(object, _)| object);
        match (stored, written) {
            (Some(stored), Some(written)) if version(&*stored) >= version(&*written) => {
                Some(stored)
            }
            (stored, None) => stored,
            (_, written) => written,
        }
    }

    /// The objects that the object with this UID controls.
    pub(crate) fn owned_by(&self, uid: &str) -> Vec<Arc<K>> {
        self.group(uid)
    }

    /// The objects of a group.
    pub(crate) fn group(&self, group: &str) -> Vec<Arc<K>> {
        let keys = self.state.lock().groups.members(group);
        keys.iter().filter_map(|key| self.get(key)).collect()
    }

    /// The groups of an object.
    fn groups_of(&self, object: &K) -> Vec<String> {
        let controller = owner::controller(object.meta()).map(|owner| owner.uid.clone());
        controller.into_iter().chain((self.group)(object)).collect()
    }

    /// The library's store.
    pub(crate) fn store(&self) -> Store<K> {
        self.store.clone()
    }

    /// All objects that the watch has shown.
    pub(crate) fn all(&self) -> Vec<Arc<K>> {
        self.store.state()
    }

    /// Takes over an object that a write returned.
    pub(crate) fn learn(&self, mut object: K) -> Arc<K> {
        let key = key(&object);
        object.meta_mut().managed_fields = None;
        (self.trim)(&mut object);
        let object = Arc::new(object);
        let stored = self.store.get(&ObjectRef::new(&key.1).within(&key.0));
        if stored.is_some_and(|stored| version(&*stored) >= version(&*object)) {
            return object;
        }
        let groups = self.groups_of(&object);
        let mut state = self.state.lock();
        if state
            .deleted
            .get(&key)
            .is_some_and(|(deleted, _)| *deleted >= version(&*object))
        {
            return object;
        }
        state.groups.set(&key, &groups);
        state.written.insert(key, (object.clone(), Instant::now()));
        object
    }

    /// Forgets an object that the API server says is gone.
    pub(crate) fn forget(&self, key: &Key) {
        self.state.lock().written.remove(key);
    }

    /// All objects that the watch or a write has shown.
    fn known(&self) -> Vec<Arc<K>> {
        let mut known = self.store.state();
        let state = self.state.lock();
        known.extend(state.written.values().map(|(object, _)| object.clone()));
        known
    }

    /// Whether an object that was known before a list is gone. Another object may have its name.
    fn is_gone(&self, object: &K) -> bool {
        let now = self.get(&key(object));
        now.is_none_or(|now| now.meta().uid != object.meta().uid)
    }

    /// Waits until the watch has listed all objects.
    pub(crate) async fn synced(&self) {
        // It fails only when the watch has ended, with the process.
        let _ = self.store.wait_until_ready().await;
    }

    fn apply(&self, event: &Event<K>) {
        match event {
            Event::InitApply(object) | Event::Apply(object) => {
                let key = key(object);
                let groups = self.groups_of(object);
                let mut state = self.state.lock();
                let newer = state
                    .written
                    .get(&key)
                    .map(|(written, _)| version(&**written) > version(object));
                // An event from before our own write must not undo that write.
                if newer == Some(true) {
                    return;
                }
                // A listed object reaches the store at the end of the list.
                if matches!(event, Event::Apply(_)) {
                    state.written.remove(&key);
                }
                state.groups.set(&key, &groups);
            }
            Event::Delete(object) => {
                let key = key(object);
                let mut state = self.state.lock();
                state.written.remove(&key);
                state.groups.set(&key, &[]);
                if state.deleted.len() >= MANY_DELETED {
                    state
                        .deleted
                        .retain(|_, (_, at)| at.elapsed() < LATEST_ANSWER);
                }
                state.deleted.insert(key, (version(object), Instant::now()));
            }
            Event::Init => self.state.lock().listing = Instant::now(),
            Event::InitDone => self.relist(),
        }
    }

    /// Forgets, after a new list, objects that were deleted or overtaken while no watch was open.
    fn relist(&self) {
        let mut state = self.state.lock();
        let listing = state.listing;
        state.written.retain(|key, (written, at)| {
            match self.store.get(&ObjectRef::new(&key.1).within(&key.0)) {
                Some(stored) => version(&*stored) < version(&**written),
                None => *at >= listing,
            }
        });
        let gone: Vec<Key> = state
            .groups
            .keys()
            .filter(|key| !state.written.contains_key(*key))
            .filter(|key| {
                self.store
                    .get(&ObjectRef::new(&key.1).within(&key.0))
                    .is_none()
            })
            .cloned()
            .collect();
        for key in gone {
            state.groups.set(&key, &[]);
        }
    }
}

/// A change of an object, for the controllers.
pub(crate) enum Change<'a, K> {
    /// It is new or different.
    Applied(&'a K),
    /// It is gone.
    Deleted(&'a K),
}

/// Watches a kind until the process ends. `trim` drops fields that no controller reads; `notify` learns of each
/// change after the cache has it; `group` is a group to find objects by.
pub(crate) fn watch_kind<K: Kind>(
    api: Api<K>,
    config: watcher::Config,
    trim: fn(&mut K),
    group: fn(&K) -> Option<String>,
    mut notify: impl FnMut(Change<'_, K>) + Send + 'static,
) -> (Arc<Cache<K>>, impl Future<Output = ()> + Send) {
    let (store, writer) = reflector::store();
    let cache = Arc::new(Cache::new(store, trim, group));
    let known = cache.clone();
    let task = async move {
        let events = watch::watcher(api, config)
            .default_backoff()
            .modify(move |object| {
                object.meta_mut().managed_fields = None;
                trim(object);
            })
            .reflect(writer)
            .inspect({
                let known = known.clone();
                move |event| {
                    if let Ok(event) = event {
                        known.apply(event);
                    }
                }
            });
        let mut events = std::pin::pin!(events);
        // Objects of a list reach the store together, at its end.
        let mut listed: Vec<K> = Vec::new();
        // Deletions while no watch was open have no event.
        let mut before: Vec<Arc<K>> = Vec::new();
        while let Some(event) = events.next().await {
            match event {
                Ok(Event::Apply(object)) => notify(Change::Applied(&object)),
                Ok(Event::Delete(object)) => notify(Change::Deleted(&object)),
                Ok(Event::Init) => {
                    listed.clear();
                    before = known.known();
                }
                Ok(Event::InitApply(object)) => listed.push(object),
                Ok(Event::InitDone) => {
                    for object in std::mem::take(&mut listed) {
                        notify(Change::Applied(&object));
                    }
                    for object in std::mem::take(&mut before) {
                        if known.is_gone(&object) {
                            notify(Change::Deleted(&object));
                        }
                    }
                }
                Err(error) => {
                    tracing::warn!(kind = %K::kind(&()), %error, "watch failed, trying again")
                }
            }
        }
    };
    (cache, task)
}

#[cfg(test)]
mod tests;
