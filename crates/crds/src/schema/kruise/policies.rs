//! Network policies with an order.

use serde_json::{Value, json};

use super::super::fields::{AGE, conditions_by_type, one_of, string};
use super::super::{Kind, Version};
use super::kind;
use super::parts::{generation, label_selector, pairs};

pub(super) fn traffic_policy() -> Kind {
    kind(
        "TrafficPolicy",
        "trafficpolicies",
        "trafficpolicy",
        "tp",
        version(),
    )
}

pub(super) fn global_traffic_policy() -> Kind {
    Kind {
        namespaced: false,
        ..kind(
            "GlobalTrafficPolicy",
            "globaltrafficpolicies",
            "globaltrafficpolicy",
            "gtp",
            version(),
        )
    }
}

fn version() -> Version {
    let direction = json!({
        "type": "object",
        "properties": {
            "rules": {"type": "array", "maxItems": 50, "x-kubernetes-list-type": "atomic", "items": rule()},
        },
    });
    Version {
        spec: json!({
            "type": "object",
            "properties": {
                "priority": {"type": "integer", "format": "int32", "minimum": 0, "default": 1000},
                "selector": label_selector(),
                "ingress": direction,
                "egress": direction,
            },
            "x-kubernetes-validations": [{
                "rule": "has(self.ingress) || has(self.egress)",
                "message": "at least one of ingress and egress is required",
            }],
        }),
        status: Some(json!({
            "type": "object",
            "properties": {"observedGeneration": generation(), "conditions": conditions_by_type()},
        })),
        columns: vec![("Priority", "integer", ".spec.priority"), AGE],
        scale: false,
    }
}

fn rule() -> Value {
    let peers = json!({"type": "array", "maxItems": 20, "x-kubernetes-list-type": "atomic", "items": peer()});
    json!({
        "type": "object",
        "required": ["action"],
        "properties": {
            "action": one_of(&["allow", "reject"]),
            "from": peers,
            "to": peers,
            "ports": {"type": "array", "maxItems": 20, "x-kubernetes-list-type": "atomic", "items": port()},
        },
    })
}

fn peer() -> Value {
    let mut selector = pairs();
    selector["maxProperties"] = 10.into();
    json!({
        "type": "object",
        "minProperties": 1,
        "maxProperties": 1,
        "properties": {
            "cidr": {"type": "string", "maxLength": 64},
            "fqdn": {"type": "string", "maxLength": 253},
            "service": {
                "type": "object",
                "required": ["name"],
                "properties": {"namespace": string(), "name": string()},
            },
            "workload": {
                "type": "object",
                "properties": {"namespace": string(), "selector": selector},
            },
        },
    })
}

fn port() -> Value {
    let number = json!({"type": "integer", "format": "int32", "minimum": 1, "maximum": 65535});
    json!({
        "type": "object",
        "properties": {
            "protocol": one_of(&["TCP", "UDP", "ICMP", "SCTP"]),
            "port": number,
            "endPort": number,
        },
        "x-kubernetes-validations": [{
            "rule": "!has(self.endPort) || (has(self.port) && self.endPort >= self.port)",
            "message": "endPort must not be less than port",
        }],
    })
}
