//! The plan for a checkpoint.

use shoal_crds::kruise::names::{annotation, finalizer};
use shoal_crds::kruise::{Checkpoint, CheckpointPhase};

/// The agent's next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Nothing, until it changes.
    Nothing,
    /// It takes the checkpoint on, and saves the pod.
    Begin,
    /// It completes an unfinished save, also of a previous process.
    Complete,
    /// It tells the operator whether other nodes can fetch a complete checkpoint from this one.
    Tell,
    /// It copies a complete checkpoint to the object store.
    Share,
    /// It deletes the files, and removes the checkpoint's finalizer.
    Remove,
}

/// How pods on other nodes get a checkpoint of this one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Elsewhere {
    /// From an object store.
    pub(crate) stored: bool,
    /// From this agent.
    pub(crate) served: bool,
}

/// The next step. Only the operator accepts a checkpoint: by its finalizer, and the phase `Pending`.
pub(crate) fn next(checkpoint: &Checkpoint, elsewhere: Elsewhere) -> Next {
    let phase = checkpoint.status.as_ref().and_then(|status| status.phase);
    let deleted = checkpoint.metadata.deletion_timestamp.is_some();
    let taken = has(checkpoint, finalizer::CHECKPOINT_FILES);
    match phase {
        // It is not interrupted by its deletion.
        Some(CheckpointPhase::Creating) if taken => Next::Complete,
        Some(CheckpointPhase::Failed) if taken => Next::Remove,
        _ if deleted && taken => Next::Remove,
        Some(CheckpointPhase::Pending) if !deleted && has(checkpoint, finalizer::CHECKPOINT) => {
            Next::Begin
        }
        // The copy of a fork is deleted when its clones are there, which start on its node.
        Some(CheckpointPhase::Succeeded)
            if taken && checkpoint.annotation(annotation::COPY_OF_FORK).is_none() =>
        {
            let is = |name: &str| checkpoint.annotation(name).is_some();
            if is(annotation::CHECKPOINT_SERVED) != elsewhere.served {
                Next::Tell
            } else if elsewhere.stored && !is(annotation::CHECKPOINT_STORED) {
                Next::Share
            } else {
                Next::Nothing
            }
        }
        _ => Next::Nothing,
    }
}

fn has(checkpoint: &Checkpoint, wanted: &str) -> bool {
    let mut finalizers = checkpoint.metadata.finalizers.iter().flatten();
    finalizers.any(|known| known == wanted)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of(phase: &str, finalizers: &[&str], deleted: bool) -> Next {
        let mut made = json!({
            "metadata": {"name": "c", "finalizers": finalizers}, "spec": {}, "status": {"phase": phase},
        });
        if deleted {
            made["metadata"]["deletionTimestamp"] = "2026-01-02T03:04:05Z".into();
        }
        next(&serde_json::from_value(made).unwrap(), Elsewhere::default())
    }

    #[test]
    fn what_the_operator_accepted_is_begun() {
        let accepted = [finalizer::CHECKPOINT];
        assert_eq!(of("Pending", &accepted, false), Next::Begin);
        assert_eq!(of("Pending", &[], false), Next::Nothing);
        assert_eq!(of("Pending", &accepted, true), Next::Nothing);
        assert_eq!(of("Succeeded", &accepted, false), Next::Nothing);
    }

    #[test]
    fn what_was_begun_is_completed_even_when_it_is_deleted() {
        let both = [finalizer::CHECKPOINT, finalizer::CHECKPOINT_FILES];
        for deleted in [false, true] {
            assert_eq!(of("Creating", &both, deleted), Next::Complete);
        }
        assert_eq!(of("Creating", &both[..1], false), Next::Nothing);
    }

    #[test]
    fn files_go_with_their_checkpoint_or_its_failure() {
        let files = [finalizer::CHECKPOINT_FILES];
        assert_eq!(of("Succeeded", &files, true), Next::Remove);
        assert_eq!(of("Pending", &files, true), Next::Remove);
        assert_eq!(of("Failed", &files, false), Next::Remove);
        assert_eq!(of("Succeeded", &files, false), Next::Nothing);
    }

    #[test]
    fn a_complete_checkpoint_is_copied_once_if_there_is_an_object_store() {
        let of = |stored, annotations| {
            complete(
                Elsewhere {
                    stored,
                    served: false,
                },
                annotations,
            )
        };
        assert_eq!(of(true, json!({})), Next::Share);
        assert_eq!(of(false, json!({})), Next::Nothing);
        let stored = json!({annotation::CHECKPOINT_STORED: "2026-01-02T03:04:05Z"});
        assert_eq!(of(true, stored), Next::Nothing);
        let fork = json!({annotation::COPY_OF_FORK: "true"});
        assert_eq!(of(true, fork), Next::Nothing);
    }

    #[test]
    fn the_operator_learns_whether_a_complete_checkpoint_is_given_to_other_nodes() {
        let of = |served, annotations| {
            complete(
                Elsewhere {
                    stored: false,
                    served,
                },
                annotations,
            )
        };
        let served = json!({annotation::CHECKPOINT_SERVED: "true"});
        assert_eq!(of(true, json!({})), Next::Tell);
        assert_eq!(of(true, served.clone()), Next::Nothing);
        assert_eq!(of(false, served), Next::Tell);
        assert_eq!(of(false, json!({})), Next::Nothing);
        let fork = json!({annotation::COPY_OF_FORK: "true"});
        assert_eq!(of(true, fork), Next::Nothing);
    }

    fn complete(elsewhere: Elsewhere, annotations: serde_json::Value) -> Next {
        let made = json!({
            "metadata": {"name": "c", "finalizers": [finalizer::CHECKPOINT_FILES], "annotations": annotations},
            "spec": {}, "status": {"phase": "Succeeded"},
        });
        next(&serde_json::from_value(made).unwrap(), elsewhere)
    }
}
