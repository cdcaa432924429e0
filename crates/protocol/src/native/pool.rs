//! The pools of the catalogue under `/api/v1/pool`.

use serde::{Deserialize, Serialize};

/// A pool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Pool {
    /// Template of the catalogue.
    pub template: String,
    /// Target size.
    pub size: usize,
    /// Members ready to be claimed.
    pub ready: usize,
    /// Those of them that are parked: on the disk instead of in memory.
    #[serde(default)]
    pub parked: usize,
    /// Members being started.
    pub starting: usize,
    /// Claims since the server started.
    pub claimed: u64,
    /// Claims since then without a ready member.
    pub misses: u64,
    /// Last error, until the next success.
    #[serde(default)]
    pub last_error: Option<PoolError>,
}

/// An error of a pool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PoolError {
    /// Time.
    pub at: String,
    /// Message.
    pub message: String,
}

/// A member of a pool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct PoolMember {
    /// Sandbox id, kept when claimed.
    pub name: String,
    /// `ready`, `parked` (ready, and on the disk instead of in memory) or `starting`.
    pub status: String,
    /// Start of its creation.
    pub created_at: String,
    /// Time at which it became ready.
    #[serde(default)]
    pub ready_at: Option<String>,
}

/// Members removed from a pool; they are replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RemovedMembers {
    /// Number of members.
    pub removed: usize,
}
