use serde::{Deserialize, Serialize};

use crate::parts::{NameRef, UpdateStrategy};
use crate::resource::resource;

resource!(
    /// Sandboxes that wait, ready, for claims.
    SandboxWarmPool, SandboxWarmPoolSpec, SandboxWarmPoolStatus, "extensions.agents.x-k8s.io", "v1beta1",
    "sandboxwarmpools"
);

/// The desired state of a pool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SandboxWarmPoolSpec {
    /// The number of members: 1 if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i32>,
    /// The template of the members.
    pub sandbox_template_ref: NameRef,
    /// How members are replaced after a change of the template.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub update_strategy: Option<UpdateStrategy>,
}

/// The observed state of a pool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SandboxWarmPoolStatus {
    /// The number of members.
    #[serde(default)]
    pub replicas: i32,
    /// The number of ready members.
    #[serde(default)]
    pub ready_replicas: i32,
    /// The label selector of the members.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub selector: String,
    /// The generation that this state is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
}
