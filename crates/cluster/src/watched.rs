//! The state that the watches have seen.

use std::collections::{HashMap, HashSet};
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::{Metadata, NamespaceResourceScope, Resource};
use parking_lot::{Mutex, RwLock};
use tokio::sync::{Notify, watch};

use crate::identity::{Key, key};

/// So many ended objects are remembered without a look at their age.
const MANY_ENDED: usize = 1000;

/// No answer of the API server arrives later than this after the end of its object.
const LATEST_ANSWER: Duration = Duration::from_secs(120);

/// A kind of namespaced objects.
pub(crate) trait Kind:
    Resource<Scope = NamespaceResourceScope>
    + Metadata<Ty = ObjectMeta>
    + Clone
    + std::fmt::Debug
    + serde::de::DeserializeOwned
    + Send
    + Sync
    + 'static
{
}

impl<K> Kind for K where
    K: Resource<Scope = NamespaceResourceScope>
        + Metadata<Ty = ObjectMeta>
        + Clone
        + std::fmt::Debug
        + serde::de::DeserializeOwned
        + Send
        + Sync
        + 'static
{
}

/// The objects of one kind, and an index of them.
pub(crate) struct Watched<K> {
    state: RwLock<State<K>>,
    index: Index<K>,
    share: fn(&mut K),
    /// Waiters for changes of an object.
    waiting: Mutex<HashMap<Key, Arc<Notify>>>,
    synced: watch::Sender<bool>,
    changed: watch::Sender<()>,
}

/// The other names of an object.
pub(crate) type Index<K> = fn(&K) -> Vec<String>;

struct State<K> {
    objects: HashMap<Key, Arc<K>>,
    /// During a list: the objects that were put since it began. They may be newer than the list.
    put: Option<HashSet<Key>>,
    indexed: HashMap<String, HashSet<Key>>,
    /// The UIDs of objects that have ended, and when. An answer that arrives later does not bring them back.
    ended: HashMap<String, Instant>,
}

impl<K: Kind> Watched<K> {
    /// Nothing yet. `index` are other names of an object.
    pub(crate) fn new(index: Index<K>) -> Self {
        Self::sharing(index, |_| {})
    }

    /// The same; `share` makes equal parts of objects the same memory.
    pub(crate) fn sharing(index: Index<K>, share: fn(&mut K)) -> Self {
        Self {
            share,
            state: RwLock::new(State {
                objects: HashMap::new(),
                put: None,
                indexed: HashMap::new(),
                ended: HashMap::new(),
            }),
            index,
            waiting: Mutex::default(),
            synced: watch::Sender::new(false),
            changed: watch::Sender::new(()),
        }
    }

    /// Records an object, unless a newer state of it is known, or that it has ended. A replica records its own writes before
    /// the watch shows them.
    pub(crate) fn put(&self, mut object: K) -> Arc<K> {
        (self.share)(&mut object);
        let key = key(object.metadata());
        let mut state = self.state.write();
        let uid = object.metadata().uid.as_deref();
        if uid.is_some_and(|uid| state.ended.contains_key(uid)) {
            return Arc::new(object);
        }
        if let Some(put) = &mut state.put {
            put.insert(key.clone());
        }
        if let Some(known) = state.objects.get(&key)
            && is_newer(known.metadata(), object.metadata())
        {
            return known.clone();
        }
        state.remove(&key, self.index);
        for name in (self.index)(&object) {
            state.indexed.entry(name).or_default().insert(key.clone());
        }
        let object = Arc::new(object);
        state.objects.insert(key.clone(), object.clone());
        drop(state);
        self.notify(&key);
        object
    }

    /// Forgets an object that has ended. Another one may have its name.
    pub(crate) fn end(&self, key: &Key, uid: Option<&str>) {
        let mut state = self.state.write();
        if let Some(uid) = uid {
            let now = Instant::now();
            if state.ended.len() >= MANY_ENDED {
                let ended = &mut state.ended;
                ended.retain(|_, at| now.duration_since(*at) < LATEST_ANSWER);
            }
            state.ended.insert(uid.to_owned(), now);
        }
        let known = state.objects.get(key);
        if known.is_some_and(|known| known.metadata().uid.as_deref() == uid) {
            state.remove(key, self.index);
        }
        drop(state);
        self.notify(key);
    }

    fn notify(&self, key: &Key) {
        // Under the lock: a waiter that leaves counts the references to the entry.
        if let Some(waiting) = self.waiting.lock().get(key) {
            waiting.notify_waiters();
        }
        self.changed.send_replace(());
    }

    /// Tells of each change of any object.
    pub(crate) fn changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    /// Begins a list of all objects.
    pub(crate) fn begin(&self) {
        self.state.write().put = Some(HashSet::new());
    }

    /// Ends a list: forgets all objects but those that were put since it began.
    pub(crate) fn retain_put(&self) {
        let mut state = self.state.write();
        let put = state.put.take().unwrap_or_default();
        let gone = state.objects.keys().filter(|key| !put.contains(*key));
        let gone: Vec<Key> = gone.cloned().collect();
        for key in &gone {
            state.remove(key, self.index);
        }
        drop(state);
        for key in &gone {
            self.notify(key);
        }
        self.synced.send_replace(true);
    }

    /// An object.
    pub(crate) fn get(&self, key: &Key) -> Option<Arc<K>> {
        self.state.read().objects.get(key).cloned()
    }

    /// The object with this other name; none if several have it.
    pub(crate) fn find(&self, index: &str) -> Option<Arc<K>> {
        let state = self.state.read();
        let keys = state.indexed.get(index)?;
        let mut keys = keys.iter();
        match (keys.next(), keys.next()) {
            (Some(key), None) => state.objects.get(key).cloned(),
            _ => None,
        }
    }

    /// All objects with this other name.
    pub(crate) fn find_all(&self, index: &str) -> Vec<Arc<K>> {
        let state = self.state.read();
        let keys = state.indexed.get(index).into_iter().flatten();
        keys.filter_map(|key| state.objects.get(key).cloned())
            .collect()
    }

    /// The objects that `wanted` selects.
    pub(crate) fn filter(&self, wanted: impl Fn(&K) -> bool) -> Vec<Arc<K>> {
        let state = self.state.read();
        let objects = state.objects.values().filter(|object| wanted(object));
        objects.cloned().collect()
    }

    /// The first result of `found`, now or after a change of the object with this key, within a timeout.
    pub(crate) async fn wait_for<T>(
        &self,
        key: &Key,
        time: Duration,
        found: impl FnMut() -> Option<T>,
    ) -> Option<T> {
        tokio::time::timeout(time, self.wait(key, found)).await.ok()
    }

    /// The same, however long it takes.
    pub(crate) async fn wait<T>(&self, key: &Key, mut found: impl FnMut() -> Option<T>) -> T {
        let waiting = Waiting {
            all: &self.waiting,
            key,
            changed: self.waiting.lock().entry(key.clone()).or_default().clone(),
        };
        loop {
            let mut changed = pin!(waiting.changed.notified());
            // Registers before the look, so that no change is missed.
            changed.as_mut().enable();
            if let Some(found) = found() {
                return found;
            }
            changed.await;
        }
    }

    /// Waits until all objects have been listed.
    pub(crate) async fn synced(&self) {
        // The sender is in this object.
        let _ = self.synced.subscribe().wait_for(|synced| *synced).await;
    }
}

/// A place among those who wait for an object.
struct Waiting<'a> {
    all: &'a Mutex<HashMap<Key, Arc<Notify>>>,
    key: &'a Key,
    changed: Arc<Notify>,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut all = self.all.lock();
        // Only the map and this place hold it, so this is the last waiter.
        if Arc::strong_count(&self.changed) <= 2 {
            all.remove(self.key);
        }
    }
}

impl<K> State<K> {
    fn remove(&mut self, key: &Key, index: Index<K>) {
        let Some(removed) = self.objects.remove(key) else {
            return;
        };
        for name in index(&removed) {
            if let Some(keys) = self.indexed.get_mut(&name) {
                keys.remove(key);
                if keys.is_empty() {
                    self.indexed.remove(&name);
                }
            }
        }
    }
}

/// Whether `known` is a newer state of the object `offered`. Resource versions are numbers that grow, as
/// the API server documents since it compares them itself.
fn is_newer(known: &ObjectMeta, offered: &ObjectMeta) -> bool {
    let version = |metadata: &ObjectMeta| metadata.resource_version.as_ref()?.parse::<u64>().ok();
    known.uid == offered.uid
        && matches!((version(known), version(offered)), (Some(known), Some(offered)) if known > offered)
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use shoal_crds::kruise::Sandbox;

    use super::*;

    fn sandbox(name: &str, version: u32, id: &str) -> Sandbox {
        serde_json::from_value(json!({
            "metadata": {
                "namespace": "n", "name": name, "uid": name, "resourceVersion": version.to_string(),
                "labels": {"id": id},
            },
            "spec": {},
        }))
        .unwrap()
    }

    fn watched() -> Watched<Sandbox> {
        Watched::new(|sandbox| {
            let labels = sandbox.metadata.labels.iter().flatten();
            labels.map(|(_, value)| value.clone()).collect()
        })
    }

    fn at(name: &str) -> Key {
        ("n".to_owned(), name.to_owned())
    }

    #[test]
    fn an_older_state_does_not_replace_a_newer_one() {
        let watched = watched();
        watched.put(sandbox("a", 10, "x"));
        watched.put(sandbox("a", 9, "y"));
        assert!(watched.find("x").is_some() && watched.find("y").is_none());
        watched.put(sandbox("a", 11, "y"));
        assert!(watched.find("x").is_none() && watched.find("y").is_some());
    }

    #[test]
    fn another_object_of_the_same_name_replaces_an_older_one() {
        let watched = watched();
        watched.put(sandbox("a", 10, "x"));
        let mut other = sandbox("a", 9, "y");
        other.metadata.uid = Some("other".to_owned());
        watched.put(other);
        assert!(watched.find("y").is_some());
    }

    #[test]
    fn an_object_that_has_ended_does_not_come_back() {
        let watched = watched();
        watched.put(sandbox("a", 10, "x"));
        watched.end(&at("a"), Some("a"));
        // The answer of a write that came before the end.
        watched.put(sandbox("a", 9, "x"));
        assert!(watched.get(&at("a")).is_none() && watched.find("x").is_none());
        let mut next = sandbox("a", 11, "y");
        next.metadata.uid = Some("next".to_owned());
        watched.put(next);
        // The watch shows the end of the former one.
        watched.end(&at("a"), Some("a"));
        assert!(watched.find("y").is_some());
    }

    #[test]
    fn objects_that_are_put_during_a_list_stay_and_are_not_remembered_after_it() {
        let watched = watched();
        watched.put(sandbox("before", 1, "x"));
        watched.begin();
        watched.put(sandbox("listed", 2, "y"));
        watched.retain_put();
        assert!(watched.get(&at("before")).is_none() && watched.get(&at("listed")).is_some());
        watched.put(sandbox("after", 3, "z"));
        assert!(watched.state.read().put.is_none());
    }

    #[test]
    fn a_name_of_several_objects_finds_none() {
        let watched = watched();
        watched.put(sandbox("a", 1, "x"));
        watched.put(sandbox("b", 2, "x"));
        assert!(watched.find("x").is_none());
        watched.end(&at("b"), Some("b"));
        assert_eq!(
            watched.find("x").unwrap().metadata.name.as_deref(),
            Some("a")
        );
        watched.begin();
        watched.retain_put();
        assert!(watched.get(&at("a")).is_none() && watched.find("x").is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn a_waiter_sees_a_change_or_gives_up() {
        let watched = watched();
        let second = Duration::from_secs(1);
        let a = at("a");
        let (found, ()) = tokio::join!(watched.wait_for(&a, second, || watched.find("x")), async {
            drop(watched.put(sandbox("a", 1, "x")))
        });
        assert!(found.is_some());
        let missed = watched.wait_for(&a, second, || watched.find("y"));
        assert!(missed.await.is_none());
        assert!(
            watched.waiting.lock().is_empty(),
            "the entry of the last waiter is removed"
        );
    }
}
