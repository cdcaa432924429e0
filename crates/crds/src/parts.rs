//! Parts that several kinds and both versions share.

mod pod_spec;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

pub use self::pod_spec::PodSpec;

/// Labels or annotations.
pub type Pairs = BTreeMap<String, String>;

/// Whether a value is the default, and therefore left out of JSON.
pub(crate) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// The pod of a sandbox.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PodTemplate {
    /// The pod's specification, as in core/v1.
    pub spec: PodSpec,
    /// Labels and annotations of the pod.
    #[serde(default, skip_serializing_if = "is_default")]
    pub metadata: PodMetadata,
}

/// Labels and annotations of a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PodMetadata {
    /// Labels.
    #[serde(default, skip_serializing_if = "Pairs::is_empty")]
    pub labels: Pairs,
    /// Annotations.
    #[serde(default, skip_serializing_if = "Pairs::is_empty")]
    pub annotations: Pairs,
}

/// A volume claim that is created with the sandbox.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct VolumeClaimTemplate {
    /// The name of the volume, and labels and annotations of the claim.
    #[serde(default, skip_serializing_if = "is_default")]
    pub metadata: EmbeddedMetadata,
    /// The claim's specification, as in core/v1.
    pub spec: Map<String, Value>,
}

/// The metadata of an object that is created from a template.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EmbeddedMetadata {
    /// The name.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Labels.
    #[serde(default, skip_serializing_if = "Pairs::is_empty")]
    pub labels: Pairs,
    /// Annotations.
    #[serde(default, skip_serializing_if = "Pairs::is_empty")]
    pub annotations: Pairs,
}

/// A reference to an object of the same namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NameRef {
    /// The object's name.
    pub name: String,
}

/// The action at a sandbox's shutdown time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum ShutdownPolicy {
    /// It is deleted.
    Delete,
    /// Its pod and service are deleted; the object stays.
    #[default]
    Retain,
}

/// The action when a claim expires.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum ClaimShutdownPolicy {
    /// It is deleted in the background, and its sandbox with it.
    Delete,
    /// It is deleted after its sandbox.
    DeleteForeground,
    /// Its sandbox is deleted; the claim stays.
    #[default]
    Retain,
}

/// When a claim ends.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClaimLifecycle {
    /// The absolute time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shutdown_time: Option<k8s_openapi::apimachinery::pkg::apis::meta::v1::Time>,
    /// Seconds after its sandbox has finished.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl_seconds_after_finished: Option<i32>,
    /// The action then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shutdown_policy: Option<ClaimShutdownPolicy>,
}

/// A variable that a claim adds to a container.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EnvVar {
    /// The name.
    pub name: String,
    /// The value.
    pub value: String,
    /// The container: the first one by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container_name: Option<String>,
}

/// The sandbox of a claim.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClaimedSandbox {
    /// Its name.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// The addresses of its pod.
    #[serde(default, rename = "podIPs", skip_serializing_if = "Vec::is_empty")]
    pub pod_ips: Vec<String>,
}

/// The status of a claim.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SandboxClaimStatus {
    /// Conditions: `Ready`, and `Finished` when the sandbox has finished.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition>,
    /// The sandbox.
    #[serde(default, skip_serializing_if = "is_default")]
    pub sandbox: ClaimedSandbox,
}

/// The rules of a template's network policy.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NetworkPolicyRules {
    /// Ingress rules, as in networking.k8s.io/v1.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ingress: Vec<Value>,
    /// Egress rules, as in networking.k8s.io/v1.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub egress: Vec<Value>,
}

/// Whether the operator keeps a network policy for a template.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum NetworkPolicyManagement {
    /// It does.
    #[default]
    Managed,
    /// It does not: another system manages the network.
    Unmanaged,
}

/// Whether a claim may change a list of its template.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum InjectionPolicy {
    /// It may add entries.
    Allowed,
    /// It may add and replace entries.
    Overrides,
    /// It may not.
    #[default]
    Disallowed,
}

/// How members of a pool are replaced after their template has changed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UpdateStrategy {
    /// The strategy.
    #[serde(default, rename = "type", skip_serializing_if = "Option::is_none")]
    pub kind: Option<UpdateStrategyKind>,
}

/// The strategies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum UpdateStrategyKind {
    /// Outdated members are deleted at once.
    Recreate,
    /// Outdated members stay until they are claimed or deleted.
    #[default]
    OnReplenish,
}
