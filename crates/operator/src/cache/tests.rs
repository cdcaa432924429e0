use kube::runtime::reflector::store::Writer;
use serde_json::json;

use super::*;
use crate::slim::Pod;

fn pod(name: &str, version: u64) -> Pod {
    serde_json::from_value(json!({
        "metadata": {"name": name, "namespace": "ns", "resourceVersion": version.to_string()},
    }))
    .unwrap()
}

fn key_of(name: &str) -> Key {
    ("ns".to_owned(), name.to_owned())
}

struct Watched {
    cache: Cache<Pod>,
    writer: Writer<Pod>,
}

impl Watched {
    fn new() -> Self {
        let (store, writer) = reflector::store();
        let cache = Cache::new(store, |_| {}, |_| Some("all".to_owned()));
        Self { cache, writer }
    }

    /// The events of a watch, in the order in which store and cache get them.
    fn report(&mut self, event: Event<Pod>) {
        self.writer.apply_watcher_event(&event);
        self.cache.apply(&event);
    }
}

#[test]
fn a_write_is_seen_before_the_watch_shows_it() {
    let mut watched = Watched::new();
    watched.report(Event::Apply(pod("a", 5)));
    watched.cache.learn(pod("a", 7));
    let seen = |watched: &Watched| version(&*watched.cache.get(&key_of("a")).unwrap());
    assert_eq!(seen(&watched), 7);
    watched.report(Event::Apply(pod("a", 6)));
    assert_eq!(seen(&watched), 7);
    watched.report(Event::Apply(pod("a", 8)));
    assert_eq!(seen(&watched), 8);
    assert_eq!(watched.cache.group("all").len(), 1);
}

#[test]
fn what_was_deleted_while_no_watch_was_open_is_forgotten() {
    let mut watched = Watched::new();
    watched.cache.learn(pod("before", 5));
    watched.report(Event::Init);
    watched.cache.learn(pod("during", 6));
    watched.report(Event::InitApply(pod("listed", 4)));
    watched.report(Event::InitDone);
    let known = |name: &str| watched.cache.get(&key_of(name)).is_some();
    assert_eq!(
        ["before", "during", "listed"].map(known),
        [false, true, true]
    );
    assert_eq!(watched.cache.group("all").len(), 2);
}

#[test]
fn a_list_shows_what_is_gone() {
    let named = |name: &str, uid: &str| {
        let mut pod = pod(name, 5);
        pod.metadata.uid = Some(uid.to_owned());
        pod
    };
    let mut watched = Watched::new();
    watched.report(Event::Apply(named("stays", "1")));
    watched.report(Event::Apply(named("replaced", "2")));
    watched.report(Event::Apply(named("deleted", "3")));
    watched.cache.learn(named("written", "4"));
    let before = watched.cache.known();
    watched.report(Event::Init);
    watched.report(Event::InitApply(named("stays", "1")));
    watched.report(Event::InitApply(named("replaced", "5")));
    watched.report(Event::InitDone);
    let mut gone: Vec<String> = before
        .iter()
        .filter(|pod| watched.cache.is_gone(pod))
        .map(|pod| key(&**pod).1)
        .collect();
    gone.sort_unstable();
    assert_eq!(gone, ["deleted", "replaced", "written"]);
}
