use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

use super::duration::DurationText;
use super::parts::RuntimeRef;
use crate::parts::{Pairs, is_default};
use crate::resource::resource;

resource!(
    /// A request for sandboxes of a SandboxSet.
    SandboxClaim, SandboxClaimSpec, SandboxClaimStatus, "agents.kruise.io", "v1alpha1", "sandboxclaims"
);

/// The desired state of a claim.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SandboxClaimSpec {
    /// The SandboxSet.
    pub template_name: String,
    /// The number of sandboxes: 1 if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i32>,
    /// The shutdown time of each claimed sandbox.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shutdown_time: Option<Time>,
    /// How long the claim looks for sandboxes: one minute if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claim_timeout: Option<DurationText>,
    /// How long the completed claim stays: 60 minutes if absent, forever if negative.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl_after_completed: Option<DurationText>,
    /// Labels of the sandboxes and their pods.
    #[serde(default, skip_serializing_if = "Pairs::is_empty")]
    pub labels: Pairs,
    /// Annotations of the sandboxes and, except for reserved keys, of their pods.
    #[serde(default, skip_serializing_if = "Pairs::is_empty")]
    pub annotations: Pairs,
    /// Variables of the runtime.
    #[serde(default, skip_serializing_if = "Pairs::is_empty")]
    pub env_vars: Pairs,
    /// Changes of the pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inplace_update: Option<ClaimInplaceUpdate>,
    /// CSI volumes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dynamic_volumes_mount: Vec<CsiMount>,
    /// Runtimes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub runtimes: Vec<RuntimeRef>,
    /// Whether a sandbox that failed stays.
    #[serde(default, skip_serializing_if = "is_default")]
    pub reserve_failed_sandbox: bool,
    /// Whether a sandbox is created when none is available: true if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub create_on_no_stock: Option<bool>,
    /// How long a sandbox may take to become ready: 30 seconds if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait_ready_timeout: Option<DurationText>,
    /// Whether the runtime is not initialized.
    #[serde(default, skip_serializing_if = "is_default")]
    pub skip_init_runtime: bool,
}

/// Changes of a claimed sandbox's pod.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ClaimInplaceUpdate {
    /// The image of the first container.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub image: String,
    /// The resources of the first container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<ClaimResources>,
}

/// Resources of a container. Only `cpu` is changed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ClaimResources {
    /// Requests.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub requests: BTreeMap<String, Quantity>,
    /// Limits.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub limits: BTreeMap<String, Quantity>,
}

/// A CSI volume that is mounted into a running sandbox.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CsiMount {
    /// An ID of the mount.
    #[serde(default, rename = "mountID", skip_serializing_if = "String::is_empty")]
    pub mount_id: String,
    /// The persistent volume.
    pub pv_name: String,
    /// The mount point.
    pub mount_path: String,
    /// The directory of the volume.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub sub_path: String,
    /// Whether it is read-only.
    #[serde(default, skip_serializing_if = "is_default")]
    pub read_only: bool,
    /// More attributes.
    #[serde(default, skip_serializing_if = "Pairs::is_empty")]
    pub attributes: Pairs,
}

/// The phases of a claim.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum ClaimPhase {
    /// It looks for sandboxes.
    #[default]
    Claiming,
    /// It ended.
    Completed,
}

/// The observed state of a claim.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SandboxClaimStatus {
    /// The generation that this state is about.
    #[serde(default, skip_serializing_if = "is_default")]
    pub observed_generation: i64,
    /// The phase.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<ClaimPhase>,
    /// Why it has this phase.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// The number of claimed sandboxes.
    #[serde(default)]
    pub claimed_replicas: i32,
    /// When the claim began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claim_start_time: Option<Time>,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completion_time: Option<Time>,
    /// Conditions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}
