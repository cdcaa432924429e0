//! What the server says of itself.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::Share;

/// What the server is and does.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Status {
    /// The server's version.
    pub version: String,
    /// The team of the key that asked.
    pub team: String,
    /// Whether that key may make keys, images and templates.
    pub admin: bool,
    /// How many sandboxes of that team run.
    pub running: usize,
    /// What runs sandboxes.
    pub driver: String,
    /// The OCI runtimes; the first is the default.
    pub runtimes: Vec<Runtime>,
    /// How the disk of a sandbox is bounded, for people.
    pub disk_limit: String,
    /// How many sandboxes of that team there are, by state.
    #[serde(default)]
    pub states: BTreeMap<String, usize>,
    /// What all teams have together: for admins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub totals: Option<Totals>,
}

/// What the sandboxes of all teams take, of what there is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Totals {
    /// How many there are, by state.
    pub states: BTreeMap<String, usize>,
    /// Sandboxes that are not paused, of as many as there may be at once.
    pub sandboxes: Share,
    /// Thousandths of a processor that they may use together, and those of the machine: more may be
    /// given out than there is.
    pub cpu_milli: Share,
    /// Memory that they may use together, in MiB.
    #[serde(rename = "memoryMB")]
    pub memory_mb: u64,
    /// Of how many teams they are.
    pub teams: usize,
}

/// An OCI runtime on the server's machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Runtime {
    /// Its name.
    pub name: String,
    /// Its version, as it says.
    pub version: String,
    /// What it isolates with: `namespaces`, `userspace_kernel`, `virtual_machine` or `none`.
    pub isolation: String,
    /// Whether memory can be saved and started again.
    pub memory_snapshot: bool,
}
