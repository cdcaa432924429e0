//! Whether the node of a checkpoint still works on it.

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use shoal_crds::kruise::names::annotation;
use shoal_crds::kruise::{Checkpoint, CheckpointPhase};

use crate::slim::PodCondition;

/// How long a checkpoint waits for an executor.
const TAKEN_WITHIN: SignedDuration = SignedDuration::from_mins(10);
/// How long an executor may work on one. It gives up earlier itself.
const DONE_WITHIN: SignedDuration = SignedDuration::from_hours(1);
/// How long an executor may take to end the pod of a complete checkpoint. Until then the checkpoint has the only copy.
const ENDED_WITHIN: SignedDuration = SignedDuration::from_hours(24);
/// How long a node may be silent: Kubernetes moves pods away from it then.
const SILENT: SignedDuration = SignedDuration::from_mins(5);

/// A node, with the fields that show whether it is alive.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub(super) struct Node {
    #[serde(default)]
    status: NodeStatus,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize)]
struct NodeStatus {
    #[serde(default)]
    conditions: Vec<NodeCondition>,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct NodeCondition {
    #[serde(flatten)]
    of: PodCondition,
    last_transition_time: Option<Timestamp>,
}

/// Why no agent works on a checkpoint any more. `node` is its node, if that still exists.
pub(super) fn lost(
    checkpoint: &Checkpoint,
    name: &str,
    node: Option<&Node>,
    now: Timestamp,
) -> Option<String> {
    let Some(node) = node else {
        return Some(format!(
            "node {name} is gone, and the checkpoint with it: save the pod again"
        ));
    };
    let ready = node
        .status
        .conditions
        .iter()
        .find(|one| one.of.kind == "Ready");
    let silent = ready.filter(|ready| ready.of.status != "True");
    let since = silent.and_then(|silent| silent.last_transition_time);
    let phase = checkpoint.status.as_ref().and_then(|status| status.phase);
    let marked = |annotation| checkpoint.annotation(annotation)?.parse().ok();
    let working = phase == Some(CheckpointPhase::Creating);
    if let Some(ending) = marked(annotation::CHECKPOINT_ENDING).filter(|_| working) {
        return given_up(name, ending, ENDED_WITHIN, now);
    }
    if since.is_some_and(|since| now.duration_since(since) > SILENT) {
        return Some(format!(
            "node {name} does not answer: save the pod again when it does"
        ));
    }
    let created = checkpoint.metadata.creation_timestamp.as_ref();
    let created = created.map(|created| created.0);
    let (since, limit): (Option<Timestamp>, _) = match phase {
        Some(CheckpointPhase::Creating) => (
            marked(annotation::CHECKPOINT_BEGUN).or(created),
            DONE_WITHIN,
        ),
        Some(CheckpointPhase::Pending) => (created, TAKEN_WITHIN),
        _ => {
            let deleted = checkpoint.metadata.deletion_timestamp.as_ref();
            (deleted.map(|deleted| deleted.0), TAKEN_WITHIN)
        }
    };
    given_up(name, since?, limit, now)
}

fn given_up(name: &str, since: Timestamp, limit: SignedDuration, now: Timestamp) -> Option<String> {
    (now.duration_since(since) > limit).then(|| {
        format!(
            "no executor of node {name} has completed it within {limit:#}: is `shoal node` running there? The chart's value \
             node.enabled turns it on"
        )
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const CREATED: &str = "2026-01-02T03:00:00Z";

    const DELETED: &str = "2026-01-03T03:00:00Z";

    fn lost_at(phase: &str, node: Value, now: &str) -> Option<String> {
        lost_with(json!({}), phase, node, now)
    }

    fn lost_with(more: Value, phase: &str, node: Value, now: &str) -> Option<String> {
        let mut annotations = json!({"shoal.dev/begun": "2026-01-02T03:09:00Z"});
        let known = annotations.as_object_mut().unwrap();
        known.extend(more.as_object().unwrap().clone());
        let checkpoint: Checkpoint = serde_json::from_value(json!({
            "metadata": {
                "name": "c", "creationTimestamp": CREATED, "deletionTimestamp": DELETED, "annotations": annotations,
            },
            "spec": {}, "status": {"phase": phase},
        }))
        .unwrap();
        let node: Option<Node> = serde_json::from_value(node).unwrap();
        lost(&checkpoint, "n", node.as_ref(), now.parse().unwrap())
    }

    fn node(ready: &str) -> Value {
        json!({"status": {"conditions": [
            {"type": "DiskPressure", "status": "False", "lastTransitionTime": "2020-01-01T00:00:00Z"},
            {"type": "Ready", "status": ready, "lastTransitionTime": CREATED},
        ]}})
    }

    #[test]
    fn a_checkpoint_is_lost_with_its_node() {
        let soon = "2026-01-02T03:01:00Z";
        for phase in ["Pending", "Creating", "Succeeded"] {
            assert!(
                lost_at(phase, Value::Null, soon)
                    .unwrap()
                    .contains("is gone")
            );
            assert_eq!(lost_at(phase, node("True"), soon), None);
            assert_eq!(lost_at(phase, node("Unknown"), soon), None);
            let later = lost_at(phase, node("Unknown"), "2026-01-02T03:06:00Z");
            assert!(later.unwrap().contains("does not answer"));
        }
    }

    #[test]
    fn a_checkpoint_whose_pod_is_being_ended_is_not_given_up_with_a_silent_node() {
        let ending = || json!({"shoal.dev/ending": "2026-01-02T03:10:00Z"});
        let at = |node, now| lost_with(ending(), "Creating", node, now);
        for state in ["True", "Unknown"] {
            assert_eq!(at(node(state), "2026-01-02T05:00:00Z"), None);
            assert!(at(node(state), "2026-01-03T03:11:00Z").is_some());
        }
        let gone = at(Value::Null, "2026-01-02T03:11:00Z").unwrap();
        assert!(gone.contains("is gone"), "{gone}");
    }

    #[test]
    fn a_checkpoint_that_nobody_completes_is_given_up() {
        let at = |phase, now| lost_at(phase, node("True"), now);
        assert_eq!(at("Pending", "2026-01-02T03:09:00Z"), None);
        assert!(
            at("Pending", "2026-01-02T03:11:00Z")
                .unwrap()
                .contains("shoal node")
        );
        assert_eq!(at("Creating", "2026-01-02T04:08:00Z"), None);
        assert!(at("Creating", "2026-01-02T04:10:00Z").is_some());
        // Its files are deleted within that time, or later by themselves.
        assert_eq!(at("Succeeded", "2026-01-03T03:09:00Z"), None);
        assert!(at("Succeeded", "2026-01-03T03:11:00Z").is_some());
    }
}
