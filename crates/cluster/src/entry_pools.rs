//! The pools of the catalogue's entries: SandboxSets, which the operator fills.
//!
//! Every replica writes them, each with the optimistic lock, and never over sets of a newer catalogue.
//! The size of a set is written when the size in its entry changes, so that an autoscaler may change it in between.
//!
//! An entry over a snapshot has a pool where a namespace has that snapshot. The pool follows the snapshot's tag, and goes
//! with the snapshot.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use kube::api::{DeleteParams, PostParams, Preconditions};
use kube::{Api, Client};
use serde_json::json;
use shoal_core::template::TemplateRef;
use shoal_crds::kruise::SandboxSet;
use shoal_crds::kruise::names::annotation;

use crate::catalogue::{Catalogue, State};
use crate::entries::{self, EntrySet, NoSet};
use crate::failure;
use crate::identity::{Key, key};
use crate::saves::Saves;
use crate::watched::Watched;

/// How often the sets are compared with an unchanged catalogue: a set may have been deleted.
const LOOK: Duration = Duration::from_secs(20);

/// The shortest time between two looks: many snapshots may be taken at once.
const REST: Duration = Duration::from_secs(1);

/// Keeps the sets of the pools.
pub(crate) struct EntryPools {
    pub(crate) client: Client,
    pub(crate) catalogue: Arc<Catalogue>,
    pub(crate) sets: Arc<Watched<SandboxSet>>,
    pub(crate) saves: Arc<Saves>,
}

/// The sets of a catalogue.
#[derive(Default)]
struct Wanted {
    sets: HashMap<Key, EntrySet>,
    /// Those whose snapshot does not exist, with its name.
    without_snapshot: HashMap<Key, TemplateRef>,
    /// Whether an entry starts from a snapshot.
    has_snapshots: bool,
}

/// The desired state of a set.
#[derive(Debug, PartialEq)]
enum Need {
    Nothing,
    /// To be made.
    Create(Box<SandboxSet>),
    /// To become this.
    Replace(Box<SandboxSet>),
    /// Another object has its name.
    Foreign,
}

impl EntryPools {
    /// Writes the sets, now and after each change of the catalogue and of its snapshots. Never ends.
    pub(crate) async fn keep(self) {
        self.sets.synced().await;
        self.saves.synced().await;
        let mut changes = self.catalogue.changes();
        let mut snapshots = self.saves.checkpoints.changes();
        let mut templates = self.saves.templates.changes();
        let mut before = Wanted::default();
        loop {
            changes.borrow_and_update();
            snapshots.borrow_and_update();
            templates.borrow_and_update();
            let state = self.catalogue.state();
            // Before the first catalogue nothing is known of any pool.
            if state.in_force.updated_at.is_some() {
                let wanted = self.wanted(&state);
                tell_missing(&wanted, &before);
                self.write_all(&wanted, state.in_force.version).await;
                before = wanted;
            }
            // The senders are in the catalogue and the snapshots, which this has.
            let saved = async {
                tokio::select! {
                    _ = snapshots.changed() => {}
                    _ = templates.changed() => {}
                }
                tokio::time::sleep(REST).await;
            };
            tokio::select! {
                () = tokio::time::sleep(LOOK) => {}
                _ = changes.changed() => {}
                () = saved, if before.has_snapshots => {}
            }
        }
    }

    async fn write_all(&self, wanted: &Wanted, version: u64) {
        for (key, set) in &wanted.sets {
            let known = self.sets.get(key);
            let written = match need(set, known.as_deref(), version) {
                Need::Nothing => Ok(()),
                Need::Create(set) => self.create(key, &set).await,
                Need::Replace(set) => self.replace(key, &set).await,
                Need::Foreign => {
                    tracing::warn!(
                        namespace = key.0,
                        name = key.1,
                        "a SandboxSet has the name of an entry's pool"
                    );
                    Ok(())
                }
            };
            tell(key, written);
        }
        let here = |set: &SandboxSet| {
            let namespace = set.metadata.namespace.as_ref();
            set.is_of_entry()
                && namespace
                    .is_some_and(|namespace| self.catalogue.pool_namespaces.contains(namespace))
        };
        for set in self.sets.filter(here) {
            let key = key(&set.metadata);
            // A snapshot of the same name may be about to replace the one that it has.
            let waits =
                wanted.without_snapshot.contains_key(&key) && has_snapshot(&self.saves, &set);
            if !wanted.sets.contains_key(&key) && !waits && written_from(&set) <= version {
                tell(&key, self.delete(&key, &set).await);
            }
        }
    }

    fn wanted(&self, state: &State) -> Wanted {
        let entries = state.in_force.catalogue.entries().iter();
        let pooled = entries.filter(|entry| entries::has_pool(entry));
        let mut wanted = Wanted::default();
        for entry in pooled {
            let Some(found) = state.in_force.catalogue.exact(entry.name.as_str()) else {
                continue;
            };
            wanted.has_snapshots |= entry.template.is_some();
            for namespace in &self.catalogue.pool_namespaces {
                let at = (namespace.clone(), entries::set_name(&entry.name));
                match EntrySet::of_match(&found, &state.blueprint, &self.saves, namespace) {
                    Ok(set) => drop(wanted.sets.insert(at, set)),
                    Err(NoSet::NoSnapshot(snapshot)) => {
                        wanted.without_snapshot.insert(at, snapshot);
                    }
                    // It was rendered before the catalogue came into force.
                    Err(NoSet::Unfit(_)) => {}
                }
            }
        }
        wanted
    }

    fn api(&self, (namespace, _): &Key) -> Api<SandboxSet> {
        Api::namespaced(self.client.clone(), namespace)
    }

    async fn create(&self, key: &Key, set: &SandboxSet) -> kube::Result<()> {
        let made = self.api(key).create(&PostParams::default(), set).await?;
        self.sets.put(made);
        Ok(())
    }

    async fn replace(&self, key: &Key, set: &SandboxSet) -> kube::Result<()> {
        let written = self
            .api(key)
            .replace(&key.1, &PostParams::default(), set)
            .await?;
        self.sets.put(written);
        Ok(())
    }

    async fn delete(&self, key: &Key, set: &SandboxSet) -> kube::Result<()> {
        let params = DeleteParams {
            preconditions: Some(Preconditions {
                uid: set.metadata.uid.clone(),
                resource_version: set.metadata.resource_version.clone(),
            }),
            ..DeleteParams::background()
        };
        match self.api(key).delete(&key.1, &params).await?.left() {
            // A finalizer holds it.
            Some(deleting) => drop(self.sets.put(deleting)),
            None => self.sets.end(key, set.metadata.uid.as_deref()),
        }
        Ok(())
    }
}

/// Whether the snapshot that the members of a set start from exists.
fn has_snapshot(saves: &Saves, set: &SandboxSet) -> bool {
    let (namespace, _) = key(&set.metadata);
    let template = set.spec.template.as_ref();
    let annotations = template.map(|template| &template.metadata.annotations);
    let id = annotations.and_then(|annotations| annotations.get(annotation::RESTORE_FROM));
    id.is_some_and(|id| saves.find(&namespace, id).is_some())
}

/// Logs once which pools lack their snapshot.
fn tell_missing(wanted: &Wanted, before: &Wanted) {
    for (at, snapshot) in &wanted.without_snapshot {
        if before.without_snapshot.get(at) != Some(snapshot) {
            let (namespace, name) = at;
            tracing::warn!(
                namespace,
                name,
                %snapshot,
                "the pool of a template waits: the namespace has no such snapshot"
            );
        }
    }
}

/// Another replica may have been faster: the watch shows its write.
fn tell(key: &Key, written: kube::Result<()>) {
    if let Err(error) = written
        && !failure::is_conflict(&error)
        && !failure::is_gone(&error)
    {
        tracing::warn!(namespace = key.0, name = key.1, %error, "cannot write the pool of a template");
    }
}

fn written_from(set: &SandboxSet) -> u64 {
    number(set, annotation::CATALOGUE_VERSION).unwrap_or_default()
}

fn number(set: &SandboxSet, key: &str) -> Option<u64> {
    set.metadata.annotations.as_ref()?.get(key)?.parse().ok()
}

fn need(wanted: &EntrySet, known: Option<&SandboxSet>, version: u64) -> Need {
    let mut set = SandboxSet::clone(&wanted.set);
    let size = set.spec.replicas;
    let annotations = set.metadata.annotations.get_or_insert_default();
    annotations.insert(
        annotation::CATALOGUE_VERSION.to_owned(),
        version.to_string(),
    );
    annotations.insert(annotation::POOL_SIZE.to_owned(), size.to_string());
    let Some(known) = known else {
        return Need::Create(Box::new(set));
    };
    if !known.is_of_entry() {
        return Need::Foreign;
    }
    if written_from(known) > version || known.metadata.deletion_timestamp.is_some() {
        return Need::Nothing;
    }
    if number(known, annotation::POOL_SIZE) == u64::try_from(size).ok() {
        set.spec.replicas = known.spec.replicas;
    }
    let marks = |set: &SandboxSet| {
        let mut marks = set.metadata.annotations.clone().unwrap_or_default();
        marks.remove(annotation::CATALOGUE_VERSION);
        marks.retain(|key, _| crate::blueprint::is_steering(key));
        marks
    };
    if json!(known.spec) == json!(set.spec) && marks(known) == marks(&set) {
        return Need::Nothing;
    }
    set.metadata.resource_version = known.metadata.resource_version.clone();
    set.metadata.uid = known.metadata.uid.clone();
    Need::Replace(Box::new(set))
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::blueprint::{self, Blueprint};
    use crate::saves;

    fn entry_set(size: u32, image: &str) -> EntrySet {
        let fields =
            json!({"name": "code", "image": image, "description": "d", "pool": {"size": size}});
        let entry = Arc::new(serde_json::from_value(fields).unwrap());
        let blueprint = Blueprint::parse(blueprint::DEFAULT).unwrap();
        EntrySet::of(&entry, &image.parse().unwrap(), &blueprint, "team").unwrap()
    }

    /// The set as the API server has it.
    fn made(wanted: &EntrySet, version: u64, change: &Value) -> SandboxSet {
        let Need::Create(set) = need(wanted, None, version) else {
            panic!("it is made")
        };
        let mut set = json!(set);
        set["metadata"]["uid"] = "u".into();
        set["metadata"]["resourceVersion"] = "7".into();
        for (pointer, value) in change.as_object().unwrap() {
            *set.pointer_mut(pointer).unwrap() = value.clone();
        }
        serde_json::from_value(set).unwrap()
    }

    #[test]
    fn a_size_has_one_writer() {
        let three = entry_set(3, "a");
        let known = made(&three, 5, &json!({}));
        assert_eq!(known.spec.replicas, 3);
        assert_eq!(need(&three, Some(&known), 6), Need::Nothing);
        let scaled = made(&three, 5, &json!({"/spec/replicas": 9}));
        assert_eq!(
            need(&three, Some(&scaled), 6),
            Need::Nothing,
            "an autoscaler's size stays"
        );
        let Need::Replace(changed) = need(&entry_set(3, "b"), Some(&scaled), 6) else {
            panic!("its image is another")
        };
        assert_eq!(changed.spec.replicas, 9);
        let Need::Replace(changed) = need(&entry_set(4, "a"), Some(&scaled), 6) else {
            panic!("its entry has another size")
        };
        assert_eq!(changed.spec.replicas, 4);
        assert_eq!(changed.metadata.resource_version.as_deref(), Some("7"));
    }

    #[test]
    fn a_replica_that_is_behind_changes_nothing() {
        let known = made(&entry_set(3, "new"), 9, &json!({}));
        assert_eq!(need(&entry_set(3, "old"), Some(&known), 8), Need::Nothing);
        assert!(matches!(
            need(&entry_set(3, "newer"), Some(&known), 10),
            Need::Replace(_)
        ));
    }

    #[test]
    fn a_pool_has_the_snapshot_that_its_members_start_from_while_that_exists() {
        let saves = saves::tests::known();
        let mut pool = made(&entry_set(1, "a"), 1, &json!({}));
        assert!(!has_snapshot(&saves, &pool), "it starts from an image");
        let template = pool.spec.template.as_mut().unwrap();
        let annotations = &mut template.metadata.annotations;
        annotations.insert(
            annotation::RESTORE_FROM.to_owned(),
            saves::tests::KEY.to_owned(),
        );
        assert!(has_snapshot(&saves, &pool));
        saves
            .checkpoints
            .end(&("team".to_owned(), "s-x".to_owned()), Some("u"));
        assert!(!has_snapshot(&saves, &pool));
    }

    #[test]
    fn the_set_of_somebody_else_stays() {
        let mut foreign = made(&entry_set(1, "a"), 1, &json!({}));
        foreign.metadata.annotations = None;
        assert_eq!(need(&entry_set(1, "a"), Some(&foreign), 2), Need::Foreign);
    }
}
