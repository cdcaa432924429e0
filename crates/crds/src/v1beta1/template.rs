use serde::{Deserialize, Serialize};

use crate::parts::{
    InjectionPolicy, NetworkPolicyManagement, NetworkPolicyRules, PodTemplate, VolumeClaimTemplate,
};
use crate::resource::resource;

resource!(
    /// The template of the sandboxes of pools and claims.
    SandboxTemplate, SandboxTemplateSpec, SandboxTemplateStatus, "extensions.agents.x-k8s.io", "v1beta1",
    "sandboxtemplates"
);

/// The sandbox, and what claims may change.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SandboxTemplateSpec {
    /// The pod.
    pub pod_template: PodTemplate,
    /// Volume claims of the pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume_claim_templates: Option<Vec<VolumeClaimTemplate>>,
    /// The rules of the network policy: the secure default if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network_policy: Option<NetworkPolicyRules>,
    /// Whether the operator keeps a network policy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network_policy_management: Option<NetworkPolicyManagement>,
    /// Whether claims may set variables.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub env_vars_injection_policy: Option<InjectionPolicy>,
    /// Whether claims may add volume claims.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume_claim_templates_policy: Option<InjectionPolicy>,
    /// Whether sandboxes have a headless service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<bool>,
}

/// A template has no observed state. Older objects have an empty one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SandboxTemplateStatus {}
