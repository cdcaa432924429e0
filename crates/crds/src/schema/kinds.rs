//! The kinds of `agents.x-k8s.io` and its extensions, in each version.

use serde_json::{Value, json};

use super::fields::{
    AGE, choice, conditions, count, date_time, integer, name_ref, string, strings,
};
use super::{Kind, Version, core};
use crate::names::{EXTENSIONS_GROUP, GROUP};

const READY: (&str, &str, &str) = (
    "Ready",
    "string",
    ".status.conditions[?(@.type=='Ready')].status",
);
const REASON: (&str, &str, &str) = (
    "Reason",
    "string",
    ".status.conditions[?(@.type=='Ready')].reason",
);
/// All kinds.
pub(super) fn kinds() -> Vec<Kind> {
    vec![sandbox(), claim(), template(), pool()]
}

fn sandbox() -> Kind {
    Kind {
        group: GROUP,
        kind: "Sandbox",
        plural: "sandboxes",
        singular: "sandbox",
        short_name: "sandbox",
        namespaced: true,
        versions: vec![
            (
                "v1alpha1",
                Version {
                    spec: sandbox_spec(false),
                    status: Some(sandbox_status(false)),
                    columns: Vec::new(),
                    scale: true,
                },
            ),
            (
                "v1beta1",
                Version {
                    spec: sandbox_spec(true),
                    status: Some(sandbox_status(true)),
                    columns: vec![READY, REASON, AGE],
                    scale: false,
                },
            ),
        ],
    }
}

fn sandbox_spec(beta: bool) -> Value {
    let mut spec = json!({
        "type": "object",
        "required": ["podTemplate"],
        "properties": {
            "podTemplate": pod_template(),
            "volumeClaimTemplates": volume_claim_templates(),
            "service": {"type": "boolean"},
            "shutdownTime": date_time(),
            "shutdownPolicy": choice(&["Delete", "Retain"], "Retain"),
        },
    });
    if beta {
        spec["properties"]["operatingMode"] = choice(&["Running", "Suspended"], "Running");
        spec["x-kubernetes-validations"] = json!([{
            "rule": "has(self.volumeClaimTemplates) == has(oldSelf.volumeClaimTemplates) && \
                     (!has(self.volumeClaimTemplates) || self.volumeClaimTemplates == oldSelf.volumeClaimTemplates)",
            "message": "volumeClaimTemplates is immutable",
        }]);
    } else {
        spec["properties"]["replicas"] =
            json!({"type": "integer", "format": "int32", "minimum": 0, "maximum": 1, "default": 1});
    }
    spec
}

fn sandbox_status(beta: bool) -> Value {
    let mut status = json!({
        "type": "object",
        "properties": {
            "serviceFQDN": string(),
            "service": string(),
            "conditions": conditions(),
            "selector": string(),
            "podIPs": strings(),
        },
    });
    let (field, schema) = if beta {
        ("nodeName", string())
    } else {
        ("replicas", count())
    };
    status["properties"][field] = schema;
    status
}

fn claim() -> Kind {
    Kind {
        group: EXTENSIONS_GROUP,
        kind: "SandboxClaim",
        plural: "sandboxclaims",
        singular: "sandboxclaim",
        short_name: "sandboxclaim",
        namespaced: true,
        versions: vec![
            (
                "v1alpha1",
                Version {
                    spec: claim_spec(false),
                    status: Some(claim_status()),
                    columns: Vec::new(),
                    scale: false,
                },
            ),
            (
                "v1beta1",
                Version {
                    spec: claim_spec(true),
                    status: Some(claim_status()),
                    columns: vec![
                        READY,
                        ("Sandbox", "string", ".status.sandbox.name"),
                        REASON,
                        AGE,
                    ],
                    scale: false,
                },
            ),
        ],
    }
}

fn claim_spec(beta: bool) -> Value {
    let mut spec = json!({
        "type": "object",
        "properties": {
            "lifecycle": {
                "type": "object",
                "properties": {
                    "shutdownTime": date_time(),
                    "ttlSecondsAfterFinished": count(),
                    "shutdownPolicy": choice(&["Delete", "DeleteForeground", "Retain"], "Retain"),
                },
            },
            "additionalPodMetadata": metadata(false),
            "env": {
                "type": "array",
                "x-kubernetes-list-type": "atomic",
                "items": {
                    "type": "object",
                    "required": ["name", "value"],
                    "properties": {"name": string(), "value": string(), "containerName": string()},
                },
            },
        },
    });
    if beta {
        spec["required"] = json!(["warmPoolRef"]);
        spec["properties"]["warmPoolRef"] = name_ref();
        spec["properties"]["volumeClaimTemplates"] = volume_claim_templates();
    } else {
        spec["required"] = json!(["sandboxTemplateRef"]);
        spec["properties"]["sandboxTemplateRef"] = name_ref();
        spec["properties"]["warmpool"] = json!({"type": "string", "default": "default"});
    }
    spec
}

fn claim_status() -> Value {
    json!({
        "type": "object",
        "properties": {
            "conditions": conditions(),
            "sandbox": {"type": "object", "properties": {"name": string(), "podIPs": strings()}},
        },
    })
}

fn template() -> Kind {
    Kind {
        group: EXTENSIONS_GROUP,
        kind: "SandboxTemplate",
        plural: "sandboxtemplates",
        singular: "sandboxtemplate",
        short_name: "sandboxtemplate",
        namespaced: true,
        versions: vec![
            (
                "v1alpha1",
                Version {
                    spec: template_spec(false),
                    status: Some(json!({"type": "object"})),
                    columns: Vec::new(),
                    scale: false,
                },
            ),
            (
                "v1beta1",
                Version {
                    spec: template_spec(true),
                    status: None,
                    columns: Vec::new(),
                    scale: false,
                },
            ),
        ],
    }
}

fn template_spec(beta: bool) -> Value {
    let policies = ["Allowed", "Overrides", "Disallowed"];
    let mut spec = json!({
        "type": "object",
        "required": ["podTemplate"],
        "properties": {
            "podTemplate": pod_template(),
            "volumeClaimTemplates": volume_claim_templates(),
            "networkPolicy": {
                "type": "object",
                "properties": {
                    "ingress": {"type": "array", "items": core::ingress_rule()},
                    "egress": {"type": "array", "items": core::egress_rule()},
                },
            },
            "networkPolicyManagement": choice(&["Managed", "Unmanaged"], "Managed"),
            "envVarsInjectionPolicy": choice(&policies, "Disallowed"),
            "service": {"type": "boolean"},
        },
    });
    if beta {
        spec["properties"]["volumeClaimTemplatesPolicy"] = choice(&policies, "Disallowed");
    }
    spec
}

fn pool() -> Kind {
    let ready = ("Ready", "integer", ".status.readyReplicas");
    Kind {
        group: EXTENSIONS_GROUP,
        kind: "SandboxWarmPool",
        plural: "sandboxwarmpools",
        singular: "sandboxwarmpool",
        short_name: "swp",
        namespaced: true,
        versions: vec![
            (
                "v1alpha1",
                Version {
                    spec: pool_spec(false),
                    status: Some(pool_status(false)),
                    columns: vec![ready, AGE],
                    scale: true,
                },
            ),
            (
                "v1beta1",
                Version {
                    spec: pool_spec(true),
                    status: Some(pool_status(true)),
                    columns: vec![ready, ("Desired", "integer", ".spec.replicas"), AGE],
                    scale: true,
                },
            ),
        ],
    }
}

fn pool_spec(beta: bool) -> Value {
    let mut spec = json!({
        "type": "object",
        "required": ["sandboxTemplateRef"],
        "properties": {
            "replicas": count(),
            "sandboxTemplateRef": name_ref(),
            "updateStrategy": {
                "type": "object",
                "properties": {"type": choice(&["Recreate", "OnReplenish"], "OnReplenish")},
            },
        },
    });
    if beta {
        spec["properties"]["replicas"]["default"] = 1.into();
    } else {
        spec["required"] = json!(["replicas", "sandboxTemplateRef"]);
    }
    spec
}

fn pool_status(beta: bool) -> Value {
    let mut status = json!({
        "type": "object",
        "properties": {"replicas": integer(), "readyReplicas": integer(), "selector": string()},
    });
    if beta {
        status["properties"]["observedGeneration"] =
            json!({"type": "integer", "format": "int64", "minimum": 0});
    }
    status
}

fn pod_template() -> Value {
    json!({
        "type": "object",
        "required": ["spec"],
        "properties": {"spec": core::pod_spec(), "metadata": metadata(false)},
    })
}

fn volume_claim_templates() -> Value {
    json!({
        "type": "array",
        "x-kubernetes-list-type": "atomic",
        "items": {
            "type": "object",
            "required": ["spec"],
            "properties": {"metadata": metadata(true), "spec": core::volume_claim_spec()},
        },
    })
}

fn metadata(named: bool) -> Value {
    let pairs = json!({"type": "object", "additionalProperties": {"type": "string"}});
    let mut schema =
        json!({"type": "object", "properties": {"labels": pairs, "annotations": pairs}});
    if named {
        schema["properties"]["name"] = string();
    }
    schema
}
