//! Exports and imports of snapshots.

use serde::{Deserialize, Serialize};

/// Request to export a snapshot to a file on the server's machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ExportSnapshot {
    /// Snapshot name or id, with a tag unless it is `default`.
    pub snapshot: String,
    /// Absolute path on the server's machine. The file must not exist.
    pub path: String,
}

/// An exported snapshot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct ExportedSnapshot {
    /// Path of the file.
    pub path: String,
    /// Size of the file.
    pub bytes: u64,
}

/// Request to import a snapshot from a file on the server's machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ImportSnapshot {
    /// Absolute path on the server's machine.
    pub path: String,
    /// Name of the snapshot; its original name if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Accepts an export of another installation. Its memory is loaded into the runtime and its
    /// programs run as the author of the file wrote them.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub trust: bool,
}

/// An imported snapshot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct ImportedSnapshot {
    /// Id to start sandboxes from.
    #[serde(rename = "snapshotID")]
    pub snapshot_id: String,
    /// Contents: `filesystem` or `memory,filesystem`.
    pub contents: String,
}
