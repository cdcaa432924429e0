//! Limits and usage of teams.

use serde::{Deserialize, Serialize};

use super::OpenShare;

/// A team.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Team {
    /// Team name.
    pub name: String,
    /// Sandboxes that are not paused.
    pub sandboxes: OpenShare,
    /// Their CPU limit in thousandths of a core.
    pub cpu_milli: OpenShare,
    /// Their memory in MiB.
    #[serde(rename = "memoryMB")]
    pub memory_mb: OpenShare,
    /// Disk in MiB: sandboxes (including paused ones), snapshots and builds. Absent if not
    /// accounted.
    #[serde(rename = "diskMB", skip_serializing_if = "Option::is_none")]
    pub disk_mb: Option<OpenShare>,
    /// Snapshots.
    pub snapshots: OpenShare,
}

/// Limits of a team; absent ones are the installation's.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NewTeamLimits {
    /// Sandboxes that are not paused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandboxes: Option<u32>,
    /// CPU in thousandths of a core.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_milli: Option<u32>,
    /// Memory in MiB.
    #[serde(rename = "memoryMB", default, skip_serializing_if = "Option::is_none")]
    pub memory_mb: Option<u32>,
    /// Disk in MiB.
    #[serde(rename = "diskMB", default, skip_serializing_if = "Option::is_none")]
    pub disk_mb: Option<u32>,
    /// Snapshots.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshots: Option<u32>,
}
