//! The checkpoints by which sandboxes are paused and suspended: the objects of the API server.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Value, json};
use shoal_crds::kruise::names::{GROUP, VERSION, annotation, label, label_value};
use shoal_crds::kruise::{Checkpoint, CheckpointPhase, generate_name};

use crate::cache::Cache;
use crate::cluster::Cluster;
use crate::failure::Failure;
use crate::write;

/// The checkpoint of a pod that is being saved, or could not be.
pub(crate) fn of_pod(own: &[Arc<Checkpoint>], pod_uid: &str) -> Option<Arc<Checkpoint>> {
    // A checkpoint that is deleted before an agent accepted it is given up. Until that is certain, it counts.
    let counts = |saved: &Arc<Checkpoint>| {
        saved.metadata.deletion_timestamp.is_none() || !phase(saved).is_finished()
    };
    let of_pod = |saved: &&Arc<Checkpoint>| paused_pod(saved) == Some(pod_uid);
    own.iter()
        .filter(of_pod)
        .find(|saved| counts(saved))
        .cloned()
}

/// The newest complete checkpoint of a pause.
pub(crate) fn complete(own: &[Arc<Checkpoint>]) -> Option<Arc<Checkpoint>> {
    let good = own.iter().filter(|saved| {
        let deleted = saved.metadata.deletion_timestamp.is_some();
        paused_pod(saved).is_some() && phase(saved) == CheckpointPhase::Succeeded && !deleted
    });
    let created = |saved: &&Arc<Checkpoint>| {
        let created = saved.metadata.creation_timestamp.as_ref();
        created.map(|at| at.0)
    };
    good.max_by_key(created).cloned()
}

/// The name of a checkpoint, for people.
pub(crate) fn name(saved: Option<&Checkpoint>) -> String {
    let name = saved.and_then(|saved| saved.metadata.name.clone());
    name.unwrap_or_else(|| "of its pause".to_owned())
}

/// The phase of a checkpoint, which an executor sets.
pub(crate) fn phase(saved: &Checkpoint) -> CheckpointPhase {
    let status = saved.status.as_ref();
    status.and_then(|status| status.phase).unwrap_or_default()
}

/// Progress or failure of a checkpoint, for people.
pub(crate) fn progress(saved: &Checkpoint) -> String {
    let name = name(Some(saved));
    let message = saved.status.as_ref().map(|status| status.message.as_str());
    match message.filter(|message| !message.is_empty()) {
        Some(message) => format!("checkpoint {name}: {message}"),
        None => format!("checkpoint {name} is being made"),
    }
}

/// How long the processes of a saved pod have to end. They stand still.
pub(crate) const GRACE_SECONDS: u32 = 5;

/// When a failed save is tried again.
const AGAIN: SignedDuration = SignedDuration::from_mins(1);

/// The time until a failed save is tried again; none if that is now.
pub(crate) fn left_to_retry(failed: &Checkpoint, now: Timestamp) -> Option<Duration> {
    let status = failed.status.as_ref();
    let completed = status.and_then(|status| status.completion_time.as_ref());
    let failed = completed.map_or(now, |at| at.0);
    let left = Duration::try_from(AGAIN - now.duration_since(failed)).ok()?;
    (!left.is_zero()).then_some(left)
}

/// The UID of the pod that a checkpoint saves, if a pause has made it.
pub(crate) fn paused_pod(saved: &Checkpoint) -> Option<&str> {
    saved.annotation(annotation::PAUSED_POD)
}

/// The sandbox and the pod that a pause saves.
pub(crate) struct Source<'a> {
    pub(crate) namespace: &'a str,
    pub(crate) name: &'a str,
    /// The reference to the sandbox as the controller of its checkpoint.
    pub(crate) controller: Value,
    pub(crate) pod: &'a ObjectMeta,
}

/// The checkpoint of a pause.
fn manifest(source: &Source<'_>, contents: &[&str]) -> Value {
    let mut sorted = contents.to_vec();
    sorted.sort_unstable();
    json!({
        "apiVersion": format!("{GROUP}/{VERSION}"),
        "kind": "Checkpoint",
        "metadata": {
            "generateName": generate_name(source.name),
            "namespace": source.namespace,
            "labels": {
                label::SANDBOX_NAME: label_value(source.name),
                label::CHECKPOINT_TYPE: sorted.join("-"),
            },
            "annotations": {annotation::PAUSED_POD: source.pod.uid},
            "ownerReferences": [source.controller],
        },
        "spec": {"podName": source.pod.name, "keepRunning": false, "persistentContents": contents},
    })
}

/// The checkpoints at the API server.
#[derive(Clone)]
pub(crate) struct Saves {
    pub(crate) cluster: Cluster,
    pub(crate) checkpoints: Arc<Cache<Checkpoint>>,
}

impl Saves {
    /// The checkpoints that a sandbox controls.
    pub(crate) fn of(&self, sandbox_uid: &str) -> Vec<Arc<Checkpoint>> {
        self.checkpoints.owned_by(sandbox_uid)
    }

    /// Begins to save the pod of a sandbox. Checkpoints of former pauses are deleted first, to make room.
    pub(crate) async fn begin(
        &self,
        sandbox_uid: &str,
        source: &Source<'_>,
        contents: &[&str],
    ) -> Result<(), Failure> {
        self.forget(sandbox_uid).await?;
        let made = manifest(source, contents);
        let made = self
            .cluster
            .create::<Checkpoint>(source.namespace, &made)
            .await?;
        self.checkpoints.learn(made);
        Ok(())
    }

    /// Deletes what pauses have saved of a sandbox.
    pub(crate) async fn forget(&self, sandbox_uid: &str) -> Result<(), Failure> {
        for saved in self.of(sandbox_uid) {
            if saved.metadata.deletion_timestamp.is_none() && paused_pod(&saved).is_some() {
                // A checkpoint that an agent has accepted in the meantime must not be lost.
                write::delete(&self.cluster, &self.checkpoints, &*saved, None, true).await?;
            }
        }
        Ok(())
    }
}

/// The checkpoints of `agents.kruise.io`, for the controllers of the other group.
#[derive(Clone)]
pub(crate) struct SharedSaves {
    is_served: bool,
    saves: Arc<OnceLock<Saves>>,
}

impl SharedSaves {
    /// `is_served` is whether the operator serves checkpoints at all.
    pub(crate) fn new(is_served: bool) -> Self {
        Self {
            is_served,
            saves: Arc::default(),
        }
    }

    /// Offers the checkpoints, when all of them are known.
    pub(crate) fn offer(&self, saves: Saves) {
        // A process leads at most once.
        let _ = self.saves.set(saves);
    }

    /// The checkpoints, or why there are none.
    pub(crate) fn get(&self) -> Result<&Saves, &'static str> {
        self.saves.get().ok_or(if self.is_served {
            "the checkpoints of agents.kruise.io are not known yet: are its definitions installed?"
        } else {
            "memory and files are kept by checkpoints of agents.kruise.io, which this operator does not serve: start it \
             with --kruise=true"
        })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A checkpoint of a pause.
    pub(crate) fn saved(name: &str, pod: &str, phase: &str, deleted: bool) -> Arc<Checkpoint> {
        let mut made = json!({
            "metadata": {
                "name": name, "creationTimestamp": "2026-01-02T03:04:05Z",
                "annotations": {"shoal.dev/paused-pod": pod},
            },
            "spec": {}, "status": {"phase": phase},
        });
        if deleted {
            made["metadata"]["deletionTimestamp"] = "2026-01-02T03:04:05Z".into();
        }
        Arc::new(serde_json::from_value(made).unwrap())
    }

    #[test]
    fn the_checkpoint_of_a_pause_is_that_of_the_present_pod() {
        let of = |saved: Vec<Arc<Checkpoint>>| {
            let found = of_pod(&saved, "now");
            found.map(|found| name(Some(&found)))
        };
        let old = || saved("old", "before", "Succeeded", false);
        assert_eq!(of(vec![old()]), None);
        let now = saved("now", "now", "Creating", false);
        assert_eq!(of(vec![old(), now]).as_deref(), Some("now"));
        assert_eq!(of(vec![saved("now", "now", "Failed", true)]), None);
        let given_up = saved("now", "now", "Pending", true);
        assert_eq!(of(vec![given_up]).as_deref(), Some("now"));
    }

    #[test]
    fn only_what_is_complete_is_resumed_from() {
        let found = |saved| complete(&[saved]).is_some();
        assert!(found(saved("a", "p", "Succeeded", false)));
        assert!(!found(saved("a", "p", "Succeeded", true)));
        assert!(!found(saved("a", "p", "Failed", false)));
    }

    #[test]
    fn a_pause_keeps_what_it_is_told_and_names_its_pod() {
        let pod = ObjectMeta {
            name: Some("pod".to_owned()),
            uid: Some("p".to_owned()),
            ..ObjectMeta::default()
        };
        let source = Source {
            namespace: "ns",
            name: "s",
            controller: json!({"uid": "u"}),
            pod: &pod,
        };
        let made = manifest(&source, &["memory", "filesystem"]);
        let meta = &made["metadata"];
        assert_eq!(meta["generateName"], "s-");
        assert_eq!(
            meta["labels"]["agents.kruise.io/checkpoint-type"],
            "filesystem-memory"
        );
        assert_eq!(meta["annotations"]["shoal.dev/paused-pod"], "p");
        assert_eq!(meta["ownerReferences"][0]["uid"], "u");
        assert_eq!(made["spec"]["keepRunning"], false);
        assert_eq!(made["spec"]["podName"], "pod");
    }
}
