//! Operations on sandboxes: checkpoints, commits and updates of many.

use serde_json::{Value, json};

use super::super::fields::{AGE, choice, conditions_by_type, date_time, integer, one_of, string};
use super::super::{Kind, Version};
use super::kind;
use super::parts::{
    any_object, atomic_strings, generation, label_selector, lifecycle, number_or_percentage,
};

pub(super) fn checkpoint() -> Kind {
    let fixed = [
        "podName",
        "sandboxName",
        "keepRunning",
        "persistentContents",
    ]
    .map(fixed_field);
    let version = Version {
        spec: json!({
            "type": "object",
            "properties": {
                "sandboxName": string(),
                "podName": string(),
                "keepRunning": {"type": "boolean"},
                "persistentContents": atomic_strings(),
                "ttlAfterFinished": string(),
            },
            // A checkpoint stays as it was accepted. The time to live may change.
            "x-kubernetes-validations": fixed,
        }),
        status: Some(json!({
            "type": "object",
            "properties": {
                "observedGeneration": generation(),
                "phase": one_of(&["Pending", "Creating", "Succeeded", "Failed", "Terminating"]),
                "message": string(),
                "completionTime": date_time(),
                "checkpointId": string(),
                "podTemplateDelta": any_object(),
            },
        })),
        columns: vec![("Status", "string", ".status.phase"), AGE],
        scale: false,
    };
    kind("Checkpoint", "checkpoints", "checkpoint", "cp", version)
}

/// A field that may be absent, and never changes.
fn fixed_field(field: &str) -> Value {
    json!({
        "rule": format!(
            "has(self.{field}) == has(oldSelf.{field}) && (!has(self.{field}) || self.{field} == oldSelf.{field})"
        ),
        "message": format!("{field} is immutable"),
    })
}

pub(super) fn commit() -> Kind {
    let fixed = |field: &str| {
        json!({
            "type": "string", "minLength": 1,
            "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": format!("{field} is immutable")}],
        })
    };
    let version = Version {
        spec: json!({
            "type": "object",
            "required": ["containerName", "image", "podName"],
            "properties": {
                "podName": fixed("podName"),
                "containerName": fixed("containerName"),
                "image": fixed("image"),
                "squashLayer": integer(),
                "timeoutSeconds": {"type": "integer", "format": "int64", "minimum": 0},
                "ttl": string(),
                "registryAuth": {
                    "type": "object",
                    "properties": {
                        "secrets": {"type": "array", "x-kubernetes-list-type": "atomic", "items": any_object()},
                        "credentials": any_object(),
                    },
                },
            },
        }),
        status: Some(json!({
            "type": "object",
            "properties": {
                "phase": choice(&["Pending", "Running", "Succeeded", "Failed"], "Pending"),
                "commitID": string(),
                "startTime": date_time(),
                "completionTime": date_time(),
                "conditions": conditions_by_type(),
            },
        })),
        columns: vec![
            ("Phase", "string", ".status.phase"),
            ("TTL", "string", ".spec.ttl"),
            AGE,
        ],
        scale: false,
    };
    kind("Commit", "commits", "commit", "cmt", version)
}

pub(super) fn update_ops() -> Kind {
    let version = Version {
        spec: update_ops_spec(),
        status: Some(json!({
            "type": "object",
            "properties": {
                "observedGeneration": generation(),
                "phase": one_of(&["Pending", "Updating", "Completed", "Failed"]),
                "replicas": integer(),
                "updatedReplicas": integer(),
                "failedReplicas": integer(),
                "updatingReplicas": integer(),
                "conditions": conditions_by_type(),
            },
        })),
        columns: vec![
            ("Phase", "string", ".status.phase"),
            ("Total", "integer", ".status.replicas"),
            ("Updated", "integer", ".status.updatedReplicas"),
            ("Updating", "integer", ".status.updatingReplicas"),
            ("Failed", "integer", ".status.failedReplicas"),
            AGE,
        ],
        scale: false,
    };
    kind(
        "SandboxUpdateOps",
        "sandboxupdateops",
        "sandboxupdateops",
        "suo",
        version,
    )
}

fn update_ops_spec() -> Value {
    json!({
        "type": "object",
        "required": ["selector"],
        "properties": {
            "selector": label_selector(),
            "updateStrategy": {
                "type": "object",
                "properties": {
                    "type": choice(&["Recreate", "CheckpointRestore"], "Recreate"),
                    "maxUnavailable": number_or_percentage(Some(1.into())),
                },
            },
            "patch": any_object(),
            "lifecycle": lifecycle(),
            "paused": {"type": "boolean"},
            "stateFilter": {
                "type": "object",
                "properties": {
                    "states": {
                        "type": "array", "x-kubernetes-list-type": "set", "default": ["Running"],
                        "items": one_of(&["Running", "Paused"]),
                    },
                },
            },
        },
        "x-kubernetes-validations": [
            {"rule": "self.selector == oldSelf.selector", "message": "selector is immutable"},
            {
                "rule": "has(self.lifecycle) == has(oldSelf.lifecycle) && \
                         (!has(self.lifecycle) || self.lifecycle == oldSelf.lifecycle)",
                "message": "lifecycle is immutable",
            },
        ],
    })
}
