use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use serde::{Deserialize, Serialize};

use super::parts::{Lifecycle, PauseStrategy, RuntimeRef, TemplateRef, UpgradePolicy};
use crate::parts::{Pairs, PodTemplate, VolumeClaimTemplate, is_default};
use crate::resource::resource;

resource!(
    /// One pod that can be paused, resumed, updated in place and claimed.
    Sandbox, SandboxSpec, SandboxStatus, "agents.kruise.io", "v1alpha1", "sandboxes"
);

/// The desired state of a sandbox.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SandboxSpec {
    /// Whether it has no pod.
    #[serde(default, skip_serializing_if = "is_default")]
    pub paused: bool,
    /// How it is paused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pause_strategy: Option<PauseStrategy>,
    /// What a checkpoint keeps: `ip`, `memory`, `filesystem`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub persistent_contents: Vec<String>,
    /// When it is deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shutdown_time: Option<Time>,
    /// When it is paused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pause_time: Option<Time>,
    /// The runtimes that it needs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub runtimes: Vec<RuntimeRef>,
    /// Commands around an upgrade.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lifecycle: Option<Lifecycle>,
    /// How a change of the template reaches the pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upgrade_policy: Option<UpgradePolicy>,
    /// The template, in place of an inline one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template_ref: Option<TemplateRef>,
    /// The pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template: Option<PodTemplate>,
    /// Volume claims of the pod.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub volume_claim_templates: Vec<VolumeClaimTemplate>,
}

/// The phases of a sandbox.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum SandboxPhase {
    /// Its pod does not run yet.
    #[default]
    Pending,
    /// Its pod runs.
    Running,
    /// It is paused, or about to be.
    Paused,
    /// Its pod is being created again.
    Resuming,
    /// Its pod is being replaced.
    Upgrading,
    /// Its pod ended well.
    Succeeded,
    /// Its pod failed, or is gone.
    Failed,
    /// It returns to its pool.
    Recycling,
    /// Other controllers write it to a sandbox that is being deleted.
    Terminating,
}

impl SandboxPhase {
    /// The name, as JSON has it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "Pending",
            Self::Running => "Running",
            Self::Paused => "Paused",
            Self::Resuming => "Resuming",
            Self::Upgrading => "Upgrading",
            Self::Succeeded => "Succeeded",
            Self::Failed => "Failed",
            Self::Recycling => "Recycling",
            Self::Terminating => "Terminating",
        }
    }
}

/// The observed state of a sandbox.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SandboxStatus {
    /// The generation that this state is about.
    #[serde(default, skip_serializing_if = "is_default")]
    pub observed_generation: i64,
    /// The phase.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<SandboxPhase>,
    /// Why it has this phase.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// Conditions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// The pod.
    #[serde(default, skip_serializing_if = "is_default")]
    pub pod_info: PodInfo,
    /// The node of the pod.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub node_name: String,
    /// The address of the pod.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub sandbox_ip: String,
    /// The revision of the template.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub update_revision: String,
    /// How often it returned to its pool.
    #[serde(default, skip_serializing_if = "is_default")]
    pub recycled_count: i32,
}

/// The pod of a sandbox.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PodInfo {
    /// Annotations.
    #[serde(default, skip_serializing_if = "Pairs::is_empty")]
    pub annotations: Pairs,
    /// Labels.
    #[serde(default, skip_serializing_if = "Pairs::is_empty")]
    pub labels: Pairs,
    /// Its node.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub node_name: String,
    /// Its address.
    #[serde(default, rename = "podIP", skip_serializing_if = "String::is_empty")]
    pub pod_ip: String,
    /// Its UID.
    #[serde(default, rename = "podUID", skip_serializing_if = "String::is_empty")]
    pub pod_uid: String,
}
