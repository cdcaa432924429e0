//! Schemas of parts that several kinds of `agents.kruise.io` share.

use serde_json::{Value, json};

use super::super::fields::{one_of, string, strings};

/// A pod template: only its metadata has a schema.
pub(super) fn pod_template() -> Value {
    json!({
        "type": "object",
        "required": ["spec"],
        "x-kubernetes-preserve-unknown-fields": true,
        "properties": {"metadata": kept_metadata(), "spec": any_object()},
    })
}

/// Volume claim templates: only their metadata has a schema.
pub(super) fn volume_claim_templates() -> Value {
    json!({
        "type": "array",
        "x-kubernetes-list-type": "atomic",
        "items": {
            "type": "object",
            "required": ["spec"],
            "x-kubernetes-preserve-unknown-fields": true,
            "properties": {"metadata": kept_metadata(), "spec": any_object()},
        },
    })
}

fn kept_metadata() -> Value {
    json!({
        "type": "object",
        "x-kubernetes-preserve-unknown-fields": true,
        "properties": {"name": string(), "labels": pairs(), "annotations": pairs()},
    })
}

pub(super) fn any_object() -> Value {
    json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true})
}

pub(super) fn pairs() -> Value {
    json!({"type": "object", "additionalProperties": {"type": "string"}})
}

pub(super) fn atomic_strings() -> Value {
    let mut list = strings();
    list["x-kubernetes-list-type"] = "atomic".into();
    list
}

pub(super) fn generation() -> Value {
    json!({"type": "integer", "format": "int64"})
}

pub(super) fn pause_strategy() -> Value {
    json!({
        "type": "object",
        "properties": {
            "type": one_of(&["Stop", "Hibernate"]),
            "hibernateStrategy": {"type": "object", "properties": {"type": string()}},
        },
    })
}

pub(super) fn runtimes() -> Value {
    json!({
        "type": "array",
        "x-kubernetes-list-type": "atomic",
        "items": {"type": "object", "required": ["name"], "properties": {"name": string()}},
    })
}

pub(super) fn template_ref() -> Value {
    json!({
        "type": "object",
        "required": ["name"],
        "properties": {
            "name": {"type": "string", "minLength": 1},
            "kind": string(),
            "apiVersion": string(),
        },
    })
}

pub(super) fn lifecycle() -> Value {
    let hook = json!({
        "type": "object",
        "properties": {
            "exec": {"type": "object", "properties": {"command": atomic_strings()}},
            "timeoutSeconds": {"type": "integer", "format": "int32", "minimum": 1, "default": 60},
        },
    });
    json!({"type": "object", "properties": {"preUpgrade": hook, "postUpgrade": hook}})
}

/// A number, or a percentage.
pub(super) fn number_or_percentage(default: Option<Value>) -> Value {
    let mut schema = json!({
        "anyOf": [{"type": "integer"}, {"type": "string"}],
        "x-kubernetes-int-or-string": true,
        "pattern": "^[0-9]{1,9}%?$",
        "minimum": 0,
    });
    if let Some(default) = default {
        schema["default"] = default;
    }
    schema
}

/// A duration of Go. It must be positive, if `positive` says so.
pub(super) fn duration(default: &str, positive: bool) -> Value {
    let (rule, message) = if positive {
        (
            "duration(self) >= duration('1s')",
            "must be at least one second",
        )
    } else {
        ("duration(self) == duration(self)", "must be a duration")
    };
    json!({
        "type": "string",
        "maxLength": 64,
        "default": default,
        "x-kubernetes-validations": [{"rule": rule, "message": message}],
    })
}

pub(super) fn label_selector() -> Value {
    json!({
        "type": "object",
        "x-kubernetes-map-type": "atomic",
        "properties": {
            "matchLabels": pairs(),
            "matchExpressions": {
                "type": "array",
                "x-kubernetes-list-type": "atomic",
                "items": {
                    "type": "object",
                    "required": ["key", "operator"],
                    "properties": {
                        "key": string(),
                        "operator": one_of(&["In", "NotIn", "Exists", "DoesNotExist"]),
                        "values": atomic_strings(),
                    },
                },
            },
        },
    })
}
