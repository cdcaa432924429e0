//! Rules for HTTP requests that leave sandboxes. An external proxy enforces them.

use serde_json::{Value, json};

use super::super::fields::{choice, conditions_by_type, one_of, string};
use super::super::{Kind, Version};
use super::kind;
use super::parts::{any_object, atomic_strings, generation, label_selector, pairs};

pub(super) fn security_profile() -> Kind {
    kind(
        "SecurityProfile",
        "securityprofiles",
        "securityprofile",
        "sp",
        version(),
    )
}

pub(super) fn global_security_profile() -> Kind {
    Kind {
        namespaced: false,
        ..kind(
            "GlobalSecurityProfile",
            "globalsecurityprofiles",
            "globalsecurityprofile",
            "gsp",
            version(),
        )
    }
}

fn version() -> Version {
    Version {
        spec: json!({
            "type": "object",
            "properties": {
                "selector": label_selector(),
                "priority": {"type": "integer", "format": "int32", "minimum": 0, "default": 1000},
                "inputs": list(&json!({
                    "type": "object",
                    "required": ["name"],
                    "properties": {
                        "name": string(),
                        "configMap": {"type": "object", "properties": {"name": string(), "namespace": string()}},
                        "inline": any_object(),
                    },
                })),
                "rules": list(&json!({
                    "type": "object",
                    "properties": {"name": string(), "match": list(&matched()), "actions": actions()},
                })),
                "audit": any_object(),
            },
        }),
        status: Some(json!({
            "type": "object",
            "properties": {"observedGeneration": generation(), "conditions": conditions_by_type()},
        })),
        columns: Vec::new(),
        scale: false,
    }
}

fn list(items: &Value) -> Value {
    json!({"type": "array", "x-kubernetes-list-type": "atomic", "items": items})
}

fn matched() -> Value {
    let pattern = |kinds: &[&str], longest: u32| {
        list(&json!({
            "type": "object",
            "required": ["value"],
            "x-kubernetes-preserve-unknown-fields": true,
            "properties": {
                "type": choice(kinds, kinds[0]),
                "value": {"type": "string", "maxLength": longest},
            },
        }))
    };
    json!({
        "type": "object",
        "required": ["domains"],
        "properties": {
            "domains": atomic_strings(),
            "paths": pattern(&["Prefix", "Exact", "Regex"], 256),
            "methods": list(&one_of(&[
                "GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "CONNECT", "OPTIONS", "TRACE",
            ])),
            "ports": list(&json!({"type": "integer", "format": "int32"})),
            "schemes": atomic_strings(),
            "headers": pattern(&["Exact", "Prefix", "Regex"], 512),
            "queryParams": pattern(&["Exact", "Prefix", "Regex"], 512),
        },
    })
}

fn actions() -> Value {
    json!({
        "type": "object",
        "properties": {
            "bypass": any_object(),
            "block": {
                "type": "object",
                "properties": {
                    "statusCode": {"type": "integer", "format": "int32", "default": 403},
                    "body": string(),
                },
            },
            "mcpToolPolicy": any_object(),
            "headerManipulation": {
                "type": "object",
                "properties": {
                    "set": {
                        "type": "array", "maxItems": 16, "x-kubernetes-list-type": "atomic",
                        "items": {
                            "type": "object",
                            "required": ["name"],
                            "properties": {"name": string(), "value": string()},
                        },
                    },
                    "remove": {
                        "type": "array", "maxItems": 16, "x-kubernetes-list-type": "atomic", "items": string(),
                    },
                },
            },
            "tokenTransformation": token_transformation(),
            "audit": list(&any_object()),
        },
    })
}

fn token_transformation() -> Value {
    let named = json!({"name": string(), "namespace": string()});
    json!({
        "type": "object",
        "properties": {
            "disabled": {"type": "boolean"},
            "failStrategy": choice(&["Block", "Allow", "Ignore"], "Block"),
            "type": one_of(&["ApiKey", "AliyunSTS"]),
            "credentialRef": {
                "type": "object",
                "properties": {
                    "secret": {"type": "object", "properties": named},
                    "credentialProvider": {
                        "type": "object",
                        "properties": {"name": string(), "namespace": string(), "parameters": pairs()},
                    },
                },
            },
            "apiKey": {
                "type": "object",
                "properties": {
                    "when": {"type": "object", "properties": {"header": string(), "pattern": string()}},
                    "targetHeader": {"type": "string", "default": "Authorization"},
                    "valueTemplate": string(),
                },
            },
        },
    })
}
