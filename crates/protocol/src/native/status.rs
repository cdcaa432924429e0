//! Server status.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::Share;

/// Status of the server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Status {
    /// The server's version.
    pub version: String,
    /// Team of the caller's key.
    pub team: String,
    /// Whether that key may create keys, images and templates.
    pub admin: bool,
    /// Number of running sandboxes of that team.
    pub running: usize,
    /// Driver.
    pub driver: String,
    /// OCI runtimes; the first is the default.
    pub runtimes: Vec<Runtime>,
    /// Enforcement of disk limits, as text.
    pub disk_limit: String,
    /// Sandboxes of that team by state.
    #[serde(default)]
    pub states: BTreeMap<String, usize>,
    /// Totals of all teams, for admin keys.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub totals: Option<Totals>,
}

/// Resource usage of all teams.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Totals {
    /// Sandboxes by state.
    pub states: BTreeMap<String, usize>,
    /// Sandboxes that are not paused, and their limit.
    pub sandboxes: Share,
    /// Allocated CPU and the machine's, in thousandths of a core. Overcommit is possible.
    pub cpu_milli: Share,
    /// Allocated memory in MiB.
    #[serde(rename = "memoryMB")]
    pub memory_mb: u64,
    /// Number of teams.
    pub teams: usize,
}

/// An OCI runtime on the server's machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Runtime {
    /// Name.
    pub name: String,
    /// Reported version.
    pub version: String,
    /// Isolation: `namespaces`, `userspace_kernel`, `virtual_machine` or `none`.
    pub isolation: String,
    /// Whether it supports memory snapshots.
    pub memory_snapshot: bool,
}
