//! The objects behind a sandbox, for people who look at it.

use std::sync::Arc;

use jiff::Timestamp as Time;
use shoal_core::ports::backing::{BackingObject, BackingRole};
use shoal_crds::kruise::names::{GROUP, REPLICA_SET, VERSION, annotation, label};
use shoal_crds::kruise::{Checkpoint, Sandbox, SandboxPhase, SandboxState};

use crate::identity::key;

/// The objects behind a sandbox, as far as the watches know them. `saved` are the checkpoints of its
/// namespace.
pub(crate) fn behind(sandbox: &Sandbox, saved: &[Arc<Checkpoint>]) -> Vec<BackingObject> {
    let (namespace, name) = key(&sandbox.metadata);
    let (state, _) = SandboxState::of(sandbox, Time::now());
    let record = BackingObject {
        state: word(&state),
        ..ours(BackingRole::Record, &namespace, "Sandbox", &name)
    };
    let mut objects = vec![record];
    objects.extend(owners(sandbox, &namespace));
    objects.extend(pod(sandbox, &namespace));
    objects.extend(checkpoints(sandbox, &namespace, saved));
    objects
}

fn object(
    role: BackingRole,
    namespace: &str,
    version: &str,
    kind: &str,
    name: &str,
) -> BackingObject {
    BackingObject {
        role,
        api_version: version.to_owned(),
        kind: kind.to_owned(),
        namespace: Some(namespace.to_owned()),
        name: name.to_owned(),
        state: String::new(),
    }
}

fn ours(role: BackingRole, namespace: &str, kind: &str, name: &str) -> BackingObject {
    object(role, namespace, &format!("{GROUP}/{VERSION}"), kind, name)
}

/// Its owners, the pool and the claim that it came from, and the ReplicaSet that keeps its pod.
fn owners(sandbox: &Sandbox, namespace: &str) -> Vec<BackingObject> {
    let owners = sandbox.metadata.owner_references.iter().flatten();
    let mut objects: Vec<BackingObject> = owners
        .map(|owner| {
            let (version, kind) = (&owner.api_version, &owner.kind);
            object(BackingRole::Owner, namespace, version, kind, &owner.name)
        })
        .collect();
    let labels = [
        (label::SANDBOX_POOL, "SandboxSet"),
        (label::CLAIM_NAME, "SandboxClaim"),
    ];
    let labelled = labels.into_iter().filter_map(|(label, kind)| {
        let name = sandbox.label(label).filter(|name| !name.is_empty())?;
        Some(ours(BackingRole::Owner, namespace, kind, name))
    });
    let kept = sandbox.annotation(annotation::KEPT_BY) == Some(REPLICA_SET);
    let pod = sandbox.pod_name();
    let kept = kept.then(|| object(BackingRole::Owner, namespace, "apps/v1", REPLICA_SET, pod));
    for more in labelled.chain(kept) {
        let known = objects
            .iter()
            .any(|known| (&known.kind, &known.name) == (&more.kind, &more.name));
        if !known {
            objects.push(more);
        }
    }
    objects
}

/// Its pod, and the node of that.
fn pod(sandbox: &Sandbox, namespace: &str) -> Vec<BackingObject> {
    let Some(status) = sandbox.status.as_ref() else {
        return Vec::new();
    };
    if status.pod_info.pod_ip.is_empty() || status.phase == Some(SandboxPhase::Paused) {
        return Vec::new();
    }
    let pod = object(
        BackingRole::Runs,
        namespace,
        "v1",
        "Pod",
        sandbox.pod_name(),
    );
    let node = (!status.node_name.is_empty()).then(|| BackingObject {
        namespace: None,
        ..object(
            BackingRole::Node,
            namespace,
            "v1",
            "Node",
            &status.node_name,
        )
    });
    [pod].into_iter().chain(node).collect()
}

/// The checkpoint that it was started from, and those saved from it.
fn checkpoints(
    sandbox: &Sandbox,
    namespace: &str,
    saved: &[Arc<Checkpoint>],
) -> Vec<BackingObject> {
    let origin = sandbox.restored_from(sandbox.spec.template.as_ref());
    let role_of = |checkpoint: &Checkpoint| {
        let id = checkpoint
            .status
            .as_ref()
            .map_or("", |status| &status.checkpoint_id);
        if !id.is_empty() && origin == Some(id) {
            return Some(BackingRole::StartedFrom);
        }
        let saved_it = checkpoint.spec.pod() == Some(sandbox.pod_name());
        saved_it.then_some(BackingRole::SavedFrom)
    };
    let mut objects = Vec::new();
    for checkpoint in saved {
        let Some(role) = role_of(checkpoint) else {
            continue;
        };
        let status = checkpoint.status.as_ref();
        let phase = status.and_then(|status| status.phase).unwrap_or_default();
        let (_, name) = key(&checkpoint.metadata);
        objects.push(BackingObject {
            state: word(&phase),
            ..ours(role, namespace, "Checkpoint", &name)
        });
    }
    objects.sort_by(|a, b| (a.role.as_str(), &a.name).cmp(&(b.role.as_str(), &b.name)));
    objects
}

fn word(value: &impl std::fmt::Debug) -> String {
    format!("{value:?}")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn sandbox(value: serde_json::Value) -> Sandbox {
        serde_json::from_value(value).unwrap()
    }

    fn told(objects: &[BackingObject]) -> Vec<String> {
        let words = objects.iter().map(|object| {
            let namespace = object.namespace.as_deref().unwrap_or("-");
            let (role, kind, name) = (object.role.as_str(), &object.kind, &object.name);
            format!("{role} {kind} {namespace}/{name} {}", object.state)
        });
        words.map(|word| word.trim_end().to_owned()).collect()
    }

    #[test]
    fn a_claimed_sandbox_has_its_pool_its_pod_and_its_checkpoints() {
        let one = sandbox(json!({
            "apiVersion": "agents.kruise.io/v1alpha1", "kind": "Sandbox",
            "metadata": {
                "name": "one", "namespace": "team",
                "labels": {"agents.kruise.io/sandbox-pool": "pool"},
                "annotations": {"agents.kruise.io/restore-from": "id-1"},
            },
            "spec": {},
            "status": {"phase": "Running", "nodeName": "node-1", "podInfo": {"podIP": "10.0.0.1"}},
        }));
        let checkpoint = |name: &str, id: &str, pod: &str| {
            let checkpoint = json!({
                "metadata": {"name": name, "namespace": "team"},
                "spec": {"podName": pod},
                "status": {"phase": "Succeeded", "checkpointId": id},
            });
            Arc::new(serde_json::from_value::<Checkpoint>(checkpoint).unwrap())
        };
        let saved = [
            checkpoint("origin", "id-1", "another"),
            checkpoint("later", "id-2", "one"),
            checkpoint("stranger", "id-3", "another"),
        ];
        assert_eq!(
            told(&behind(&one, &saved))[1..],
            [
                "owner SandboxSet team/pool",
                "runs Pod team/one",
                "node Node -/node-1",
                "saved_from Checkpoint team/later Succeeded",
                "started_from Checkpoint team/origin Succeeded",
            ]
        );
    }

    #[test]
    fn a_sandbox_without_a_pod_is_its_record_alone() {
        let one = sandbox(json!({
            "apiVersion": "agents.kruise.io/v1alpha1", "kind": "Sandbox",
            "metadata": {"name": "one", "namespace": "team"}, "spec": {},
        }));
        let objects = told(&behind(&one, &[]));
        assert_eq!(objects, ["record Sandbox team/one Creating"]);
    }
}
