use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use serde::{Deserialize, Serialize};

use crate::parts::{PodTemplate, ShutdownPolicy, VolumeClaimTemplate};
use crate::resource::resource;

resource!(
    /// One pod with a stable name, volumes and service.
    Sandbox, SandboxSpec, SandboxStatus, "agents.x-k8s.io", "v1alpha1", "sandboxes"
);

/// The desired state of a sandbox.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SandboxSpec {
    /// The pod.
    pub pod_template: PodTemplate,
    /// Volume claims of the pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume_claim_templates: Option<Vec<VolumeClaimTemplate>>,
    /// Whether it has a headless service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<bool>,
    /// When it expires.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shutdown_time: Option<Time>,
    /// The action then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shutdown_policy: Option<ShutdownPolicy>,
    /// The number of pods: 0 or 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i32>,
}

/// The observed state of a sandbox.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SandboxStatus {
    /// The DNS name of the service.
    #[serde(
        default,
        rename = "serviceFQDN",
        skip_serializing_if = "String::is_empty"
    )]
    pub service_fqdn: String,
    /// The name of the service.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub service: String,
    /// Conditions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// The number of pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i32>,
    /// The label selector of the pod.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub selector: String,
    /// The addresses of the pod.
    #[serde(default, rename = "podIPs", skip_serializing_if = "Vec::is_empty")]
    pub pod_ips: Vec<String>,
}
