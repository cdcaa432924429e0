//! The objects of a cluster behind a sandbox.

use serde::{Deserialize, Serialize};

/// The objects of a cluster behind a sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SandboxObjects {
    /// The objects; none on one machine.
    pub objects: Vec<SandboxObject>,
}

/// An object of a cluster behind a sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct SandboxObject {
    /// Its part in the sandbox: `record`, `owner`, `runs`, `node` (for admin keys), `started_from` or `saved_from`.
    pub role: String,
    /// Its group and version.
    pub api_version: String,
    /// Its kind.
    pub kind: String,
    /// Its namespace; absent for a node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Its name.
    pub name: String,
    /// Its state in one word; empty if it is not known.
    pub state: String,
}
