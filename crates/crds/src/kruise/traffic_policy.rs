use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector};
use serde::{Deserialize, Serialize};

use crate::parts::is_default;
use crate::resource::resource;

resource!(
    /// The peers that the selected pods may reach, and those that may reach them.
    TrafficPolicy, TrafficPolicySpec, TrafficPolicyStatus, "agents.kruise.io", "v1alpha1",
    "trafficpolicies"
);

/// The rules of a policy.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TrafficPolicySpec {
    /// Policies with lower numbers come first: 1000 if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<i32>,
    /// The pods: all of the namespace if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selector: Option<LabelSelector>,
    /// Traffic to the pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ingress: Option<TrafficDirection>,
    /// Traffic from the pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub egress: Option<TrafficDirection>,
}

/// The rules of one direction. The first that matches decides.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrafficDirection {
    /// The rules.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<TrafficRule>,
}

/// A rule.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrafficRule {
    /// The action for traffic that matches.
    pub action: RuleAction,
    /// The sources. All if empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub from: Vec<Peer>,
    /// The destinations. All if empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub to: Vec<Peer>,
    /// The ports. All if empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<PolicyPort>,
}

/// The action for traffic that matches a rule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RuleAction {
    /// It passes.
    #[default]
    Allow,
    /// It is dropped.
    Reject,
}

/// An end of traffic. Exactly one field is set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Peer {
    /// A range of addresses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cidr: Option<String>,
    /// A domain name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fqdn: Option<String>,
    /// A service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<PeerService>,
    /// Pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workload: Option<PeerWorkload>,
}

impl Peer {
    /// A range of addresses.
    #[must_use]
    pub fn of_cidr(cidr: &str) -> Self {
        Self {
            cidr: Some(cidr.to_owned()),
            ..Self::default()
        }
    }
}

/// A service.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerService {
    /// Its namespace.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// Its name.
    pub name: String,
}

/// Pods.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerWorkload {
    /// Their namespace: that of the policy if empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// Their labels: all pods if empty.
    #[serde(default, skip_serializing_if = "is_default")]
    pub selector: crate::parts::Pairs,
}

/// A port, or a range of ports.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PolicyPort {
    /// `TCP`, `UDP`, `ICMP` or `SCTP`: TCP if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol: Option<String>,
    /// The port, or the first of the range.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<i32>,
    /// The last port of the range.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end_port: Option<i32>,
}

/// The observed state of a policy.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TrafficPolicyStatus {
    /// The generation that this state is about.
    #[serde(default, skip_serializing_if = "is_default")]
    pub observed_generation: i64,
    /// Conditions: `Accepted`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}
