//! The next step of a checkpoint.

use std::sync::Arc;

use jiff::Timestamp;
use shoal_crds::kruise::duration;
use shoal_crds::kruise::names::{content, finalizer};
use shoal_crds::kruise::{Checkpoint, CheckpointPhase, CheckpointSpec};

use crate::kruise::Pod;

/// The message of a checkpoint that has no executor.
const WAITING: &str = "waiting for an executor of checkpoints";

/// The next step of a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Nothing, until it changes.
    Nothing,
    /// Nothing until this time.
    Until(Timestamp),
    /// The finalizer, the node and the pod, before anything works on it.
    Protect {
        /// The node of the pod.
        node: String,
        /// The pod.
        pod: String,
    },
    /// Nothing, while its node lives.
    Attend,
    /// A new phase.
    Phase(CheckpointPhase, String),
    /// The difference between the pod and its template: it keeps no more.
    Describe,
    /// Its end: nothing works on it any more.
    Release,
    /// Its deletion, some time after it has finished.
    Delete,
}

/// The next step of a checkpoint. `pod` is the one that it names, and `others` are the checkpoints of the namespace.
pub(super) fn next(
    checkpoint: &Checkpoint,
    pod: Option<&Pod>,
    others: &[Arc<Checkpoint>],
    now: Timestamp,
) -> Next {
    let phase = phase(checkpoint);
    if checkpoint.metadata.deletion_timestamp.is_some() {
        return match phase {
            // A checkpoint that is being written is not aborted.
            Some(CheckpointPhase::Creating) => Next::Attend,
            _ if is_protected(checkpoint) => Next::Release,
            _ if has_files(checkpoint) => Next::Attend,
            _ => Next::Nothing,
        };
    }
    match phase {
        Some(phase) if phase.is_finished() => expiry(checkpoint, now),
        None | Some(CheckpointPhase::Pending) => begin(checkpoint, pod, others),
        Some(CheckpointPhase::Creating) => Next::Attend,
        Some(_) => Next::Nothing,
    }
}

fn phase(checkpoint: &Checkpoint) -> Option<CheckpointPhase> {
    checkpoint.status.as_ref().and_then(|status| status.phase)
}

fn is_protected(checkpoint: &Checkpoint) -> bool {
    has(checkpoint, finalizer::CHECKPOINT)
}

/// Whether a node has files of it, which it deletes first.
fn has_files(checkpoint: &Checkpoint) -> bool {
    has(checkpoint, finalizer::CHECKPOINT_FILES)
}

fn has(checkpoint: &Checkpoint, wanted: &str) -> bool {
    let mut finalizers = checkpoint.metadata.finalizers.iter().flatten();
    finalizers.any(|known| known == wanted)
}

/// When a finished checkpoint is deleted. With an unreadable time, it stays.
fn expiry(checkpoint: &Checkpoint, now: Timestamp) -> Next {
    let status = checkpoint.status.as_ref();
    let completed = status.and_then(|status| status.completion_time.as_ref());
    let kept = checkpoint.spec.ttl_after_finished.as_deref();
    let kept = kept.and_then(duration::parse_with_days);
    match (completed, kept) {
        (Some(completed), Some(kept)) => {
            let at = completed.0.checked_add(kept).unwrap_or(Timestamp::MAX);
            if at <= now {
                Next::Delete
            } else {
                Next::Until(at)
            }
        }
        _ => Next::Nothing,
    }
}

fn begin(checkpoint: &Checkpoint, pod: Option<&Pod>, others: &[Arc<Checkpoint>]) -> Next {
    let failed = |why: String| Next::Phase(CheckpointPhase::Failed, why);
    if let Err(why) = check(&checkpoint.spec) {
        return failed(why);
    }
    if phase(checkpoint).is_some() {
        // It was accepted; it waits for an executor.
        return Next::Attend;
    }
    let name = checkpoint.spec.pod().unwrap_or_default();
    let Some(pod) = pod.filter(|pod| pod.status.phase == "Running" && pod.is_ready()) else {
        return failed(format!("pod {name} is not running and ready"));
    };
    if checkpoint.spec.is_pod_info() {
        return Next::Describe;
    }
    let name = pod.metadata.name.as_deref().unwrap_or(name);
    let before = |other: &&Arc<Checkpoint>| is_before(other, checkpoint, name);
    if let Some(other) = others.iter().find(before) {
        let other = other.metadata.name.as_deref().unwrap_or_default();
        return failed(format!(
            "pod {name} has another checkpoint under way: {other}"
        ));
    }
    if !is_protected(checkpoint) {
        return Next::Protect {
            node: pod.spec.node_name.clone(),
            pod: name.to_owned(),
        };
    }
    Next::Phase(CheckpointPhase::Pending, WAITING.to_owned())
}

/// Checks the contents and the pod of a checkpoint.
fn check(spec: &CheckpointSpec) -> Result<(), String> {
    if spec.pod().is_none() {
        return Err("podName or sandboxName is required".to_owned());
    }
    let mut contents: Vec<&str> = spec
        .persistent_contents
        .iter()
        .map(String::as_str)
        .collect();
    contents.sort_unstable();
    match contents.as_slice() {
        []
        | [content::FILESYSTEM]
        | [content::FILESYSTEM, content::MEMORY]
        | [content::POD_INFO] => Ok(()),
        _ => Err(format!(
            "persistentContents: {} cannot be kept: write filesystem, memory and filesystem, or podInfo",
            spec.persistent_contents.join(", ")
        )),
    }
}

/// Whether another checkpoint of the same pod was accepted, or came first, and is not finished.
fn is_before(other: &Checkpoint, checkpoint: &Checkpoint, pod: &str) -> bool {
    let order = |one: &Checkpoint| {
        let created = one.metadata.creation_timestamp.as_ref().map(|at| at.0);
        (created, one.metadata.name.clone())
    };
    let finished = phase(other).is_some_and(CheckpointPhase::is_finished);
    let accepted = is_protected(other) || phase(other).is_some();
    let first = order(other) < order(checkpoint) && check(&other.spec).is_ok();
    (other.spec.pod() == checkpoint.spec.pod() || other.pod() == Some(pod))
        && !other.spec.is_pod_info()
        && !finished
        && order(other) != order(checkpoint)
        && (accepted || (first && !is_protected(checkpoint)))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const NOW: &str = "2026-01-02T03:04:05Z";

    fn checkpoint(name: &str, spec: Value, status: Value) -> Checkpoint {
        serde_json::from_value(json!({
            "metadata": {"name": name, "namespace": "ns", "creationTimestamp": NOW},
            "spec": spec, "status": status,
        }))
        .unwrap()
    }

    fn pod(ready: &str) -> Pod {
        serde_json::from_value(json!({
            "metadata": {"name": "s", "namespace": "ns"}, "spec": {"nodeName": "n"},
            "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": ready}]},
        }))
        .unwrap()
    }

    fn next_of(checkpoint: &Checkpoint, others: &[Arc<Checkpoint>]) -> Next {
        next(checkpoint, Some(&pod("True")), others, NOW.parse().unwrap())
    }

    fn of(spec: Value) -> Next {
        next_of(&checkpoint("c", spec, json!({})), &[])
    }

    fn protect() -> Next {
        Next::Protect {
            node: "n".to_owned(),
            pod: "s".to_owned(),
        }
    }

    fn failed(next: &Next) -> &str {
        match next {
            Next::Phase(CheckpointPhase::Failed, why) => why,
            _ => "",
        }
    }

    #[test]
    fn a_checkpoint_is_protected_before_it_waits_for_an_executor() {
        let mut made = checkpoint("c", json!({"podName": "s"}), json!({}));
        assert_eq!(next_of(&made, &[]), protect());
        made.metadata.finalizers = Some(vec![finalizer::CHECKPOINT.to_owned()]);
        let waiting = Next::Phase(CheckpointPhase::Pending, WAITING.to_owned());
        assert_eq!(next_of(&made, &[]), waiting);
        made.status =
            serde_json::from_value(json!({"phase": "Pending", "message": WAITING})).unwrap();
        assert_eq!(next_of(&made, &[]), Next::Attend);
        made.metadata.deletion_timestamp = made.metadata.creation_timestamp.clone();
        assert_eq!(next_of(&made, &[]), Next::Release);
        made.status = serde_json::from_value(json!({"phase": "Creating"})).unwrap();
        assert_eq!(next_of(&made, &[]), Next::Attend);
        // Its files go first.
        made.status = serde_json::from_value(json!({"phase": "Succeeded"})).unwrap();
        made.metadata.finalizers = Some(vec![finalizer::CHECKPOINT_FILES.to_owned()]);
        assert_eq!(next_of(&made, &[]), Next::Attend);
        made.metadata.finalizers = None;
        assert_eq!(next_of(&made, &[]), Next::Nothing);
    }

    #[test]
    fn contents_and_pod_are_checked() {
        for contents in [
            json!([]),
            json!(["filesystem"]),
            json!(["memory", "filesystem"]),
        ] {
            assert_eq!(
                of(json!({"sandboxName": "s", "persistentContents": contents})),
                protect()
            );
        }
        assert_eq!(
            of(json!({"podName": "s", "persistentContents": ["podInfo"]})),
            Next::Describe
        );
        for contents in [
            json!(["memory"]),
            json!(["ip"]),
            json!(["podInfo", "filesystem"]),
            json!(["disk"]),
        ] {
            let next = of(json!({"podName": "s", "persistentContents": contents}));
            assert!(failed(&next).contains("cannot be kept"), "{contents}");
        }
        assert!(failed(&of(json!({}))).contains("required"));
        let made = checkpoint("c", json!({"podName": "s"}), json!({}));
        for pod in [None, Some(pod("False"))] {
            let next = next(&made, pod.as_ref(), &[], NOW.parse().unwrap());
            assert!(failed(&next).contains("not running and ready"));
        }
    }

    #[test]
    fn a_pod_has_one_checkpoint_at_a_time() {
        let made = checkpoint("b", json!({"podName": "s"}), json!({}));
        let other = |name: &str, pod: &str, phase: &str| {
            vec![Arc::new(checkpoint(
                name,
                json!({"podName": pod}),
                json!({"phase": phase}),
            ))]
        };
        assert!(failed(&next_of(&made, &other("a", "s", "Creating"))).contains("under way: a"));
        assert!(failed(&next_of(&made, &other("c", "s", "Pending"))).contains("under way: c"));
        let later = vec![Arc::new(checkpoint(
            "c",
            json!({"podName": "s"}),
            json!({}),
        ))];
        for others in [
            other("a", "s", "Succeeded"),
            other("a", "t", "Creating"),
            later,
        ] {
            assert_eq!(next_of(&made, &others), protect());
        }
    }

    #[test]
    fn a_finished_checkpoint_goes_after_its_time() {
        let done = |ttl: Value| {
            let status = json!({"phase": "Succeeded", "completionTime": NOW});
            next_of(
                &checkpoint(
                    "c",
                    json!({"podName": "s", "ttlAfterFinished": ttl}),
                    status,
                ),
                &[],
            )
        };
        assert_eq!(done(Value::Null), Next::Nothing);
        assert_eq!(done("0s".into()), Next::Delete);
        assert_eq!(
            done("1d".into()),
            Next::Until("2026-01-03T03:04:05Z".parse().unwrap())
        );
        assert_eq!(done("soon".into()), Next::Nothing);
    }
}
