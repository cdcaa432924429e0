//! The autoscaler of pools.

use serde_json::{Value, json};

use super::super::fields::{AGE, conditions_by_type, count, date_time, integer, one_of, string};
use super::super::{Kind, Version};
use super::kind;
use super::parts::{generation, number_or_percentage};

/// The longest lists and texts: the API server bounds the cost of rules by them.
const MOST_POLICIES: u32 = 64;
const LONGEST_NAME: u32 = 63;

pub(super) fn pool_autoscaler() -> Kind {
    let version = Version {
        spec: spec(),
        status: Some(status()),
        columns: vec![
            ("Reference", "string", ".spec.scaleTargetRef.name"),
            ("MinReplicas", "integer", ".spec.minReplicas"),
            ("MaxReplicas", "integer", ".spec.maxReplicas"),
            ("CurrentReplicas", "integer", ".status.currentReplicas"),
            ("DesiredReplicas", "integer", ".status.desiredReplicas"),
            AGE,
        ],
        scale: false,
    };
    kind(
        "PoolAutoscaler",
        "poolautoscalers",
        "poolautoscaler",
        "pa",
        version,
    )
}

fn spec() -> Value {
    json!({
        "type": "object",
        "required": ["maxReplicas", "scaleTargetRef"],
        "properties": {
            "scaleTargetRef": {
                "type": "object",
                "required": ["kind", "name"],
                "properties": {
                    "kind": one_of(&["SandboxSet"]),
                    "name": {"type": "string", "minLength": 1},
                    "apiVersion": string(),
                },
            },
            "maxReplicas": {"type": "integer", "format": "int32", "minimum": 1},
            "minReplicas": {"type": "integer", "format": "int32", "minimum": 0, "default": 0},
            "cronPolicies": {
                "type": "array",
                "maxItems": MOST_POLICIES,
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["name"],
                "items": {
                    "type": "object",
                    "required": ["name", "schedule", "targetReplicas"],
                    "properties": {
                        "name": {"type": "string", "minLength": 1, "maxLength": LONGEST_NAME},
                        "timeZone": string(),
                        "schedule": {"type": "string", "minLength": 1},
                        "targetReplicas": count(),
                    },
                },
            },
            "capacityPolicy": {
                "type": "object",
                "required": ["targetAvailable"],
                "properties": {
                    "targetAvailable": number_or_percentage(None),
                    "tolerance": number_or_percentage(Some("10%".into())),
                    "scaleUp": rules(),
                    "scaleDown": rules(),
                },
            },
            "suspend": {"type": "boolean"},
        },
        "x-kubernetes-validations": [
            {
                "rule": "has(self.capacityPolicy) || (has(self.cronPolicies) && size(self.cronPolicies) > 0)",
                "message": "at least one of cronPolicies and capacityPolicy is required",
            },
            {
                "rule": "self.minReplicas <= self.maxReplicas",
                "message": "minReplicas must not be more than maxReplicas",
            },
        ],
    })
}

fn rules() -> Value {
    json!({
        "type": "object",
        "properties": {
            "stabilizationWindowSeconds": {
                "type": "integer", "format": "int32", "minimum": 60, "maximum": 3600,
            },
        },
    })
}

fn status() -> Value {
    json!({
        "type": "object",
        "properties": {
            "observedGeneration": generation(),
            "lastScaleTime": date_time(),
            "currentReplicas": integer(),
            "desiredReplicas": integer(),
            "suspended": {"type": "boolean"},
            "appliedCronPolicies": {
                "type": "array",
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["name"],
                "items": {
                    "type": "object",
                    "required": ["name"],
                    "properties": {"name": string(), "lastScheduleTime": date_time()},
                },
            },
            "currentCapacity": {
                "type": "object",
                "properties": {"available": integer()},
            },
            "conditions": conditions_by_type(),
        },
    })
}
