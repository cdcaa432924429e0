use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use serde::{Deserialize, Serialize};

use super::parts::{PauseStrategy, RuntimeRef, TemplateRef};
use crate::parts::{PodTemplate, VolumeClaimTemplate, is_default};
use crate::resource::resource;

resource!(
    /// A pool of sandboxes that wait for claims.
    SandboxSet, SandboxSetSpec, SandboxSetStatus, "agents.kruise.io", "v1alpha1", "sandboxsets"
);

/// The desired state of a pool.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SandboxSetSpec {
    /// The number of unclaimed sandboxes.
    #[serde(default)]
    pub replicas: i32,
    /// How its sandboxes are paused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pause_strategy: Option<PauseStrategy>,
    /// The contents of its sandboxes' checkpoints.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub persistent_contents: Vec<String>,
    /// The runtimes that its sandboxes need.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub runtimes: Vec<RuntimeRef>,
    /// The pod of its sandboxes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template: Option<PodTemplate>,
    /// The template, in place of an inline one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template_ref: Option<TemplateRef>,
    /// Volume claims of its sandboxes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub volume_claim_templates: Vec<VolumeClaimTemplate>,
    /// The limit of sandboxes that are being created. Unlimited if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scale_strategy: Option<MaxUnavailable>,
    /// The limit of sandboxes that an update replaces at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub update_strategy: Option<MaxUnavailable>,
}

/// A limit of sandboxes that are not available.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MaxUnavailable {
    /// A number, or a percentage of the replicas.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_unavailable: Option<IntOrString>,
}

/// The observed state of a pool.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SandboxSetStatus {
    /// The generation that this state is about.
    #[serde(default, skip_serializing_if = "is_default")]
    pub observed_generation: i64,
    /// The number of unclaimed sandboxes.
    #[serde(default)]
    pub replicas: i32,
    /// The number of those that are available.
    #[serde(default)]
    pub available_replicas: i32,
    /// The revision of the template.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub update_revision: String,
    /// The name of the SandboxTemplate of this revision.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub current_revision: String,
    /// The number of sandboxes of this revision.
    #[serde(default)]
    pub updated_replicas: i32,
    /// The number of those that are available.
    #[serde(default)]
    pub updated_available_replicas: i32,
    /// Conditions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// The label selector of the sandboxes.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub selector: String,
}
