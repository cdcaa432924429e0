//! Teams: what they may have, and have.

use serde::{Deserialize, Serialize};

use super::OpenShare;

/// A team.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Team {
    /// What it is called.
    pub name: String,
    /// Sandboxes that are not paused.
    pub sandboxes: OpenShare,
    /// Thousandths of a processor, of those.
    pub cpu_milli: OpenShare,
    /// Memory of those, in MiB.
    #[serde(rename = "memoryMB")]
    pub memory_mb: OpenShare,
    /// Disk in MiB: of sandboxes, paused ones included, of snapshots and of builds. Absent where it is not
    /// counted.
    #[serde(rename = "diskMB", skip_serializing_if = "Option::is_none")]
    pub disk_mb: Option<OpenShare>,
    /// Snapshots.
    pub snapshots: OpenShare,
}

/// What a team may have in all; what is not said is as for the other teams.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NewTeamLimits {
    /// Sandboxes that are not paused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandboxes: Option<u32>,
    /// Thousandths of a processor.
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
