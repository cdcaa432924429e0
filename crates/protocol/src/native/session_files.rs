//! The files of sessions.

use serde::{Deserialize, Serialize};

/// A file of a session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct SessionFile {
    /// Where it is, below the home directory of the machine.
    pub path: String,
    /// Its size, in bytes.
    pub size: u64,
    /// The SHA-256 digest of its contents, in hexadecimal digits.
    pub sha256: String,
    /// Whether its owner may execute it.
    pub executable: bool,
    /// When its contents last changed.
    pub modified_at: String,
    /// Both sides had changed the file at this path, and this is the machine's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conflict_of: Option<String>,
}

/// A file or a directory to move.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct MoveSessionFile {
    /// Where it is.
    pub from: String,
    /// Where it goes. Nothing may be there.
    pub to: String,
}

/// How many files were concerned.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct SessionFileCount {
    /// The number of files.
    pub files: usize,
}

/// How the files of a session and of its machine stand.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct SessionSync {
    /// `synced`, also without a machine; `behind`, while files of the session wait for the machine, or while the
    /// synchronization is interrupted; or `conflict`.
    pub state: String,
    /// How many files wait for the machine, or cannot get there.
    pub behind: usize,
    /// Whether there is a machine that is kept equal.
    pub connected: bool,
    /// The machine's versions of files that both sides had changed. Remove or move them to settle the conflict.
    pub conflicts: Vec<String>,
    /// Files that are not synced, each with the reason.
    pub notes: Vec<String>,
}
