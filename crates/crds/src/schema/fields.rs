//! Schemas of fields, and columns, that many kinds have.

use serde_json::{Value, json};

/// The printer column of the age.
pub(super) const AGE: (&str, &str, &str) = ("Age", "date", ".metadata.creationTimestamp");

pub(super) fn conditions() -> Value {
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

/// The conditions as a list with keys.
pub(super) fn conditions_by_type() -> Value {
    let mut list = conditions();
    list["x-kubernetes-list-type"] = "map".into();
    list["x-kubernetes-list-map-keys"] = json!(["type"]);
    list
}

pub(super) fn one_of(values: &[&str]) -> Value {
    json!({"type": "string", "enum": values})
}

pub(super) fn choice(values: &[&str], default: &str) -> Value {
    json!({"type": "string", "enum": values, "default": default})
}

pub(super) fn string() -> Value {
    json!({"type": "string"})
}

pub(super) fn strings() -> Value {
    json!({"type": "array", "items": {"type": "string"}})
}

pub(super) fn date_time() -> Value {
    json!({"type": "string", "format": "date-time"})
}

pub(super) fn integer() -> Value {
    json!({"type": "integer", "format": "int32"})
}

pub(super) fn count() -> Value {
    json!({"type": "integer", "format": "int32", "minimum": 0})
}

pub(super) fn name_ref() -> Value {
    json!({"type": "object", "required": ["name"], "properties": {"name": string()}})
}
