use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use serde::{Deserialize, Serialize};

use crate::parts::is_default;
use crate::resource::resource;

resource!(
    /// Changes the size of a pool, by the clock and by how many of its sandboxes are free.
    PoolAutoscaler, PoolAutoscalerSpec, PoolAutoscalerStatus, "agents.kruise.io", "v1alpha1",
    "poolautoscalers"
);

/// The desired state of an autoscaler.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PoolAutoscalerSpec {
    /// The pool.
    pub scale_target_ref: ScaleTargetRef,
    /// The most sandboxes of the pool.
    pub max_replicas: i32,
    /// The least sandboxes of the pool.
    #[serde(default)]
    pub min_replicas: i32,
    /// Sizes by the clock.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cron_policies: Vec<CronPolicy>,
    /// The size by demand.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity_policy: Option<CapacityPolicy>,
    /// Whether nothing is changed.
    #[serde(default, skip_serializing_if = "is_default")]
    pub suspend: bool,
}

/// The pool that an autoscaler changes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ScaleTargetRef {
    /// The kind: `SandboxSet`.
    pub kind: String,
    /// The name.
    pub name: String,
    /// The version of the kind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_version: Option<String>,
}

/// A size from a time on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CronPolicy {
    /// Its name.
    pub name: String,
    /// The time zone, by its IANA name: UTC if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_zone: Option<String>,
    /// Minute, hour, day of the month, month and day of the week.
    pub schedule: String,
    /// The size.
    pub target_replicas: i32,
}

/// The size by demand: so many sandboxes are kept free.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CapacityPolicy {
    /// The free sandboxes: a number, or a percentage of the pool.
    pub target_available: IntOrString,
    /// How far from that the pool may be: `10%` if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tolerance: Option<IntOrString>,
    /// How the pool grows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scale_up: Option<ScalingRules>,
    /// How the pool shrinks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scale_down: Option<ScalingRules>,
}

/// How a pool grows or shrinks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ScalingRules {
    /// The least time after a change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stabilization_window_seconds: Option<i32>,
}

/// The observed state of an autoscaler.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PoolAutoscalerStatus {
    /// The generation that this state is about.
    #[serde(default, skip_serializing_if = "is_default")]
    pub observed_generation: i64,
    /// When it last changed the pool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_scale_time: Option<Time>,
    /// The sandboxes of the pool.
    #[serde(default)]
    pub current_replicas: i32,
    /// The desired size of the pool.
    #[serde(default)]
    pub desired_replicas: i32,
    /// Whether nothing is changed.
    #[serde(default)]
    pub suspended: bool,
    /// When each schedule was last due.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub applied_cron_policies: Vec<AppliedCronPolicy>,
    /// The pool's state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current_capacity: Option<CurrentCapacity>,
    /// Conditions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

/// When a schedule was last due.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AppliedCronPolicy {
    /// The name of the policy.
    pub name: String,
    /// The time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_schedule_time: Option<Time>,
}

/// The state of a pool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CurrentCapacity {
    /// Its free sandboxes.
    #[serde(default)]
    pub available: i32,
}
