use serde::{Deserialize, Serialize};

use super::parts::{PauseStrategy, RuntimeRef};
use crate::parts::{PodTemplate, VolumeClaimTemplate};
use crate::resource::resource;

/// A template has no observed state.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NoStatus {}

resource!(
    /// The target of `templateRef` in sandboxes and pools, in place of an inline template.
    SandboxTemplate, SandboxTemplateSpec, NoStatus, "agents.kruise.io", "v1alpha1", "sandboxtemplates"
);

/// The sandbox.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SandboxTemplateSpec {
    /// The pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template: Option<PodTemplate>,
    /// Volume claims of the pod.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub volume_claim_templates: Vec<VolumeClaimTemplate>,
    /// The contents of checkpoints.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub persistent_contents: Vec<String>,
    /// The runtimes that the sandbox needs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub runtimes: Vec<RuntimeRef>,
    /// How the sandbox is paused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pause_strategy: Option<PauseStrategy>,
}
