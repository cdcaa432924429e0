//! The kinds of `agents.kruise.io`.
//!
//! Pod and volume claim templates have no schema but that of their metadata: a field that this version of
//! Kubernetes does not know is kept. The types of labels are checked, so that no object spoils a list.

mod autoscaler;
mod operations;
mod parts;
mod policies;
mod profiles;

use serde_json::{Value, json};

use self::parts::{
    atomic_strings, duration, generation, lifecycle, number_or_percentage, pairs, pause_strategy,
    pod_template, runtimes, template_ref, volume_claim_templates,
};
use super::fields::{AGE, conditions_by_type, count, date_time, integer, one_of, string};
use super::{Kind, Version};
use crate::kruise::names::{GROUP, VERSION};

/// All kinds.
pub(super) fn kinds() -> Vec<Kind> {
    vec![
        sandbox(),
        sandbox_set(),
        sandbox_claim(),
        sandbox_template(),
        operations::checkpoint(),
        operations::commit(),
        operations::update_ops(),
        policies::traffic_policy(),
        policies::global_traffic_policy(),
        profiles::security_profile(),
        profiles::global_security_profile(),
        autoscaler::pool_autoscaler(),
    ]
}

fn kind(
    kind: &'static str,
    plural: &'static str,
    singular: &'static str,
    short_name: &'static str,
    version: Version,
) -> Kind {
    Kind {
        group: GROUP,
        kind,
        plural,
        singular,
        short_name,
        namespaced: true,
        versions: vec![(VERSION, version)],
    }
}

fn sandbox() -> Kind {
    let version = Version {
        spec: sandbox_spec(),
        status: Some(sandbox_status()),
        columns: vec![
            ("Status", "string", ".status.phase"),
            AGE,
            (
                "Claimed",
                "string",
                r".metadata.labels.agents\.kruise\.io/sandbox-claimed",
            ),
            ("shutdown_time", "string", ".spec.shutdownTime"),
            ("pause_time", "string", ".spec.pauseTime"),
            ("RecycledCount", "integer", ".status.recycledCount"),
            ("Message", "string", ".status.message"),
        ],
        scale: false,
    };
    kind("Sandbox", "sandboxes", "sandbox", "sbx", version)
}

fn sandbox_spec() -> Value {
    json!({
        "type": "object",
        "properties": {
            "paused": {"type": "boolean"},
            "pauseStrategy": pause_strategy(),
            "persistentContents": atomic_strings(),
            "shutdownTime": date_time(),
            "pauseTime": date_time(),
            "runtimes": runtimes(),
            "lifecycle": lifecycle(),
            "upgradePolicy": {
                "type": "object",
                "properties": {"type": one_of(&["Recreate", "CheckpointRestore"])},
            },
            "templateRef": template_ref(),
            "template": pod_template(),
            "volumeClaimTemplates": volume_claim_templates(),
        },
    })
}

fn sandbox_status() -> Value {
    json!({
        "type": "object",
        "properties": {
            "observedGeneration": generation(),
            "phase": one_of(&[
                "Pending", "Running", "Paused", "Resuming", "Upgrading", "Succeeded", "Failed", "Recycling",
                "Terminating",
            ]),
            "message": string(),
            "conditions": conditions_by_type(),
            "podInfo": {
                "type": "object",
                "properties": {
                    "annotations": pairs(),
                    "labels": pairs(),
                    "nodeName": string(),
                    "podIP": string(),
                    "podUID": string(),
                },
            },
            "nodeName": string(),
            "sandboxIp": string(),
            "updateRevision": string(),
            "recycledCount": integer(),
        },
    })
}

fn sandbox_set() -> Kind {
    let version = Version {
        spec: sandbox_set_spec(),
        status: Some(json!({
            "type": "object",
            "properties": {
                "observedGeneration": generation(),
                "replicas": integer(),
                "availableReplicas": integer(),
                "updateRevision": string(),
                "currentRevision": string(),
                "updatedReplicas": integer(),
                "updatedAvailableReplicas": integer(),
                "conditions": conditions_by_type(),
                "selector": string(),
            },
        })),
        columns: vec![
            ("Replicas", "integer", ".status.replicas"),
            ("Available", "integer", ".status.availableReplicas"),
            ("UpdatedReplicas", "integer", ".status.updatedReplicas"),
            (
                "UpdatedAvailableReplicas",
                "integer",
                ".status.updatedAvailableReplicas",
            ),
            ("UpdateRevision", "string", ".status.updateRevision"),
            AGE,
        ],
        scale: true,
    };
    kind("SandboxSet", "sandboxsets", "sandboxset", "sbs", version)
}

fn sandbox_set_spec() -> Value {
    let limit =
        json!({"type": "object", "properties": {"maxUnavailable": number_or_percentage(None)}});
    json!({
        "type": "object",
        "required": ["replicas"],
        "properties": {
            "replicas": count(),
            "pauseStrategy": pause_strategy(),
            "persistentContents": atomic_strings(),
            "runtimes": runtimes(),
            "template": pod_template(),
            "templateRef": template_ref(),
            "volumeClaimTemplates": volume_claim_templates(),
            "scaleStrategy": limit,
            "updateStrategy": {
                "type": "object",
                "default": {},
                "properties": {"maxUnavailable": number_or_percentage(Some("20%".into()))},
            },
        },
        "x-kubernetes-validations": [{
            "rule": "has(self.template) != has(self.templateRef)",
            "message": "exactly one of template and templateRef is required",
        }],
    })
}

fn sandbox_claim() -> Kind {
    let version = Version {
        spec: sandbox_claim_spec(),
        status: Some(json!({
            "type": "object",
            "properties": {
                "observedGeneration": generation(),
                "phase": one_of(&["Claiming", "Completed"]),
                "message": string(),
                "claimedReplicas": integer(),
                "claimStartTime": date_time(),
                "completionTime": date_time(),
                "conditions": conditions_by_type(),
            },
        })),
        columns: vec![
            ("Phase", "string", ".status.phase"),
            ("Template", "string", ".spec.templateName"),
            ("Desired", "integer", ".spec.replicas"),
            ("Claimed", "integer", ".status.claimedReplicas"),
            AGE,
        ],
        scale: false,
    };
    kind(
        "SandboxClaim",
        "sandboxclaims",
        "sandboxclaim",
        "sbc",
        version,
    )
}

fn sandbox_claim_spec() -> Value {
    let quantities = json!({"type": "object", "additionalProperties": super::core::quantity()});
    json!({
        "type": "object",
        "required": ["templateName"],
        "properties": {
            "templateName": {"type": "string", "minLength": 1},
            "replicas": {
                "type": "integer", "format": "int32", "minimum": 1, "default": 1,
                "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "replicas is immutable"}],
            },
            "shutdownTime": date_time(),
            "claimTimeout": duration("1m", true),
            "ttlAfterCompleted": duration("60m", false),
            "labels": pairs(),
            "annotations": pairs(),
            "envVars": pairs(),
            "inplaceUpdate": {
                "type": "object",
                "properties": {
                    "image": string(),
                    "resources": {
                        "type": "object",
                        "properties": {"requests": quantities, "limits": quantities},
                    },
                },
            },
            "dynamicVolumesMount": {
                "type": "array",
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["mountPath"],
                "items": csi_mount(),
            },
            "runtimes": runtimes(),
            "reserveFailedSandbox": {"type": "boolean"},
            "createOnNoStock": {"type": "boolean", "default": true},
            "waitReadyTimeout": duration("30s", true),
            "skipInitRuntime": {"type": "boolean", "default": false},
        },
    })
}

fn csi_mount() -> Value {
    json!({
        "type": "object",
        "required": ["mountPath", "pvName"],
        "properties": {
            "mountID": string(),
            "pvName": string(),
            "mountPath": string(),
            "subPath": string(),
            "readOnly": {"type": "boolean"},
            "attributes": pairs(),
        },
    })
}

fn sandbox_template() -> Kind {
    let version = Version {
        spec: json!({
            "type": "object",
            "required": ["template"],
            "properties": {
                "template": pod_template(),
                "volumeClaimTemplates": volume_claim_templates(),
                "persistentContents": atomic_strings(),
                "runtimes": runtimes(),
                "pauseStrategy": pause_strategy(),
            },
        }),
        status: None,
        columns: Vec::new(),
        scale: false,
    };
    kind(
        "SandboxTemplate",
        "sandboxtemplates",
        "sandboxtemplate",
        "sbt",
        version,
    )
}
