//! The checkpoints by which a sandbox is paused: the objects of the API server.

use std::sync::Arc;

use serde_json::{Value, json};
use shoal_crds::kruise::names::{
    GROUP, VERSION, annotation, condition, label, label_value, reason,
};
use shoal_crds::kruise::{Checkpoint, CheckpointPhase, Sandbox, generate_name};

use super::SandboxController;
use super::pod::controller_ref;
use crate::cache::key;
use crate::failure::Failure;
use crate::kruise::{Pod, write};

/// The checkpoint of the pause that is under way, or has failed: that of the sandbox's present pod.
pub(super) fn current(sandbox: &Sandbox, own: Vec<Arc<Checkpoint>>) -> Option<Arc<Checkpoint>> {
    let status = sandbox.status.as_ref()?;
    let of_pod =
        |saved: &Arc<Checkpoint>| paused_pod(saved) == Some(status.pod_info.pod_uid.as_str());
    // A checkpoint that is deleted before an agent accepted it is given up. Until that is certain, it counts.
    let counts = |saved: &Arc<Checkpoint>| {
        saved.metadata.deletion_timestamp.is_none() || !phase(saved).is_finished()
    };
    own.into_iter().find(|saved| of_pod(saved) && counts(saved))
}

/// The newest complete checkpoint of a pause.
pub(super) fn complete(own: &[Arc<Checkpoint>]) -> Option<Arc<Checkpoint>> {
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
pub(super) fn name(saved: Option<&Checkpoint>) -> String {
    let name = saved.and_then(|saved| saved.metadata.name.clone());
    name.unwrap_or_else(|| "of its pause".to_owned())
}

/// Whether a checkpoint keeps the paused sandbox.
pub(super) fn is_paused_with(sandbox: &Sandbox) -> bool {
    let paused = sandbox.condition(condition::SANDBOX_PAUSED);
    paused.is_some_and(|paused| paused.reason == reason::SNAPSHOT_PAUSE_SUCCEED)
}

pub(super) fn phase(saved: &Checkpoint) -> CheckpointPhase {
    let status = saved.status.as_ref();
    status.and_then(|status| status.phase).unwrap_or_default()
}

fn paused_pod(saved: &Checkpoint) -> Option<&str> {
    saved.annotation(annotation::PAUSED_POD)
}

/// The checkpoint of a pause.
fn manifest(sandbox: &Sandbox, pod: &Pod, contents: &[&str]) -> Value {
    let (namespace, name) = key(sandbox);
    let mut sorted = contents.to_vec();
    sorted.sort_unstable();
    json!({
        "apiVersion": format!("{GROUP}/{VERSION}"),
        "kind": "Checkpoint",
        "metadata": {
            "generateName": generate_name(&name),
            "namespace": namespace,
            "labels": {
                label::SANDBOX_NAME: label_value(&name),
                label::CHECKPOINT_TYPE: sorted.join("-"),
            },
            "annotations": {annotation::PAUSED_POD: pod.metadata.uid},
            "ownerReferences": [controller_ref(sandbox)],
        },
        "spec": {"podName": pod.metadata.name, "keepRunning": false, "persistentContents": contents},
    })
}

impl SandboxController {
    /// Begins to save the pod of a sandbox that is paused. What former pauses have saved goes first: there must be room.
    pub(super) async fn begin_save(
        &self,
        sandbox: &Sandbox,
        pod: &Pod,
        contents: &[&str],
    ) -> Result<(), Failure> {
        self.forget_saves(sandbox).await?;
        let (namespace, _) = key(sandbox);
        let made = manifest(sandbox, pod, contents);
        let made = self.cluster.create::<Checkpoint>(&namespace, &made).await?;
        self.checkpoints.learn(made);
        Ok(())
    }

    /// Deletes what pauses have saved of a sandbox.
    pub(super) async fn forget_saves(&self, sandbox: &Sandbox) -> Result<(), Failure> {
        let uid = sandbox.metadata.uid.as_deref().unwrap_or_default();
        for saved in self.checkpoints.owned_by(uid) {
            if saved.metadata.deletion_timestamp.is_none() && paused_pod(&saved).is_some() {
                // A checkpoint that an agent has accepted in the meantime must not be lost.
                write::delete(&self.cluster, &self.checkpoints, &*saved, None, true).await?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn saved(name: &str, pod: &str, phase: &str, deleted: bool) -> Arc<Checkpoint> {
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

    fn sandbox() -> Sandbox {
        serde_json::from_value(json!({
            "metadata": {"name": "s", "namespace": "ns", "uid": "u"}, "spec": {},
            "status": {"podInfo": {"podUID": "now"}},
        }))
        .unwrap()
    }

    #[test]
    fn the_checkpoint_of_a_pause_is_that_of_the_present_pod() {
        let of = |saved: Vec<Arc<Checkpoint>>| {
            let found = current(&sandbox(), saved);
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
        let pod: Pod =
            serde_json::from_value(json!({"metadata": {"name": "s", "uid": "p"}})).unwrap();
        let made = manifest(&sandbox(), &pod, &["memory", "filesystem"]);
        let meta = &made["metadata"];
        assert_eq!(meta["generateName"], "s-");
        assert_eq!(
            meta["labels"]["agents.kruise.io/checkpoint-type"],
            "filesystem-memory"
        );
        assert_eq!(meta["annotations"]["shoal.dev/paused-pod"], "p");
        assert_eq!(meta["ownerReferences"][0]["uid"], "u");
        assert_eq!(made["spec"]["keepRunning"], false);
    }
}
