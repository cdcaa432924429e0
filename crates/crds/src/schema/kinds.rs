//! The schemas, columns and subresources of each kind and version.

use serde_json::{Value, json};

use super::core;
use crate::names::{EXTENSIONS_GROUP, GROUP};

/// A kind, as its definition says.
pub(crate) struct Kind {
    pub(crate) group: &'static str,
    pub(crate) kind: &'static str,
    pub(crate) plural: &'static str,
    pub(crate) singular: &'static str,
    pub(crate) short_name: &'static str,
    pub(crate) v1alpha1: Version,
    pub(crate) v1beta1: Version,
}

/// One version of a kind.
pub(crate) struct Version {
    pub(crate) spec: Value,
    pub(crate) status: Option<Value>,
    /// Name, type and path of each printer column.
    pub(crate) columns: Vec<(&'static str, &'static str, &'static str)>,
    pub(crate) scale: bool,
}

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
const AGE: (&str, &str, &str) = ("Age", "date", ".metadata.creationTimestamp");

/// All kinds.
pub(crate) fn kinds() -> [Kind; 4] {
    [sandbox(), claim(), template(), pool()]
}

fn sandbox() -> Kind {
    Kind {
        group: GROUP,
        kind: "Sandbox",
        plural: "sandboxes",
        singular: "sandbox",
        short_name: "sandbox",
        v1alpha1: Version {
            spec: sandbox_spec(false),
            status: Some(sandbox_status(false)),
            columns: Vec::new(),
            scale: true,
        },
        v1beta1: Version {
            spec: sandbox_spec(true),
            status: Some(sandbox_status(true)),
            columns: vec![READY, REASON, AGE],
            scale: false,
        },
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
        v1alpha1: Version {
            spec: claim_spec(false),
            status: Some(claim_status()),
            columns: Vec::new(),
            scale: false,
        },
        v1beta1: Version {
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
        v1alpha1: Version {
            spec: template_spec(false),
            status: Some(json!({"type": "object"})),
            columns: Vec::new(),
            scale: false,
        },
        v1beta1: Version {
            spec: template_spec(true),
            status: None,
            columns: Vec::new(),
            scale: false,
        },
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
        v1alpha1: Version {
            spec: pool_spec(false),
            status: Some(pool_status(false)),
            columns: vec![ready, AGE],
            scale: true,
        },
        v1beta1: Version {
            spec: pool_spec(true),
            status: Some(pool_status(true)),
            columns: vec![ready, ("Desired", "integer", ".spec.replicas"), AGE],
            scale: true,
        },
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
    let integer = json!({"type": "integer", "format": "int32"});
    let mut status = json!({
        "type": "object",
        "properties": {"replicas": integer, "readyReplicas": integer, "selector": string()},
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

fn conditions() -> Value {
    json!({
        "type": "array",
        "items": {
            "type": "object",
            "required": ["lastTransitionTime", "message", "reason", "status", "type"],
            "properties": {
                "lastTransitionTime": date_time(),
                "message": {"type": "string", "maxLength": 32768},
                "observedGeneration": {"type": "integer", "format": "int64", "minimum": 0},
                "reason": {
                    "type": "string",
                    "minLength": 1,
                    "maxLength": 1024,
                    "pattern": "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$",
                },
                "status": {"type": "string", "enum": ["True", "False", "Unknown"]},
                "type": {
                    "type": "string",
                    "maxLength": 316,
                    "pattern": "^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$",
                },
            },
        },
    })
}

fn choice(values: &[&str], default: &str) -> Value {
    json!({"type": "string", "enum": values, "default": default})
}

fn string() -> Value {
    json!({"type": "string"})
}

fn strings() -> Value {
    json!({"type": "array", "items": {"type": "string"}})
}

fn date_time() -> Value {
    json!({"type": "string", "format": "date-time"})
}

fn count() -> Value {
    json!({"type": "integer", "format": "int32", "minimum": 0})
}

fn name_ref() -> Value {
    json!({"type": "object", "required": ["name"], "properties": {"name": string()}})
}
