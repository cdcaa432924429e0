use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::parts::{Lifecycle, UpgradePolicyKind};
use crate::parts::is_default;
use crate::resource::resource;

resource!(
    /// A change of the templates of many claimed sandboxes.
    SandboxUpdateOps, SandboxUpdateOpsSpec, SandboxUpdateOpsStatus, "agents.kruise.io", "v1alpha1",
    "sandboxupdateops"
);

/// The desired state of an update.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SandboxUpdateOpsSpec {
    /// The sandboxes.
    pub selector: LabelSelector,
    /// How they are updated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub update_strategy: Option<UpdateOpsStrategy>,
    /// A strategic merge patch of the pod template.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub patch: Map<String, Value>,
    /// Commands around each upgrade.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lifecycle: Option<Lifecycle>,
    /// Whether no further sandbox is started.
    #[serde(default, skip_serializing_if = "is_default")]
    pub paused: bool,
    /// The states of the sandboxes to update.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state_filter: Option<StateFilter>,
}

/// How sandboxes are updated.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct UpdateOpsStrategy {
    /// The strategy: `Recreate` if absent.
    #[serde(default, rename = "type", skip_serializing_if = "Option::is_none")]
    pub kind: Option<UpgradePolicyKind>,
    /// A number, or a percentage rounded up: 1 if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_unavailable: Option<IntOrString>,
}

/// The states of the sandboxes to update.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StateFilter {
    /// Running sandboxes if empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub states: Vec<UpdateOpsState>,
}

/// A state of a sandbox to update.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum UpdateOpsState {
    /// It runs.
    Running,
    /// It is paused.
    Paused,
}

/// The phases of an update.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum UpdateOpsPhase {
    /// It has not begun.
    #[default]
    Pending,
    /// Sandboxes are being updated.
    Updating,
    /// All are updated.
    Completed,
    /// It ended, and some failed.
    Failed,
}

/// The observed state of an update.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SandboxUpdateOpsStatus {
    /// The generation that this state is about.
    #[serde(default, skip_serializing_if = "is_default")]
    pub observed_generation: i64,
    /// The phase.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<UpdateOpsPhase>,
    /// The number of sandboxes.
    #[serde(default)]
    pub replicas: i32,
    /// The number of those that are updated.
    #[serde(default)]
    pub updated_replicas: i32,
    /// The number of those that failed.
    #[serde(default)]
    pub failed_replicas: i32,
    /// The number of those that are being updated.
    #[serde(default)]
    pub updating_replicas: i32,
    /// Conditions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}
