//! The pools of the catalogue under `/api/v1/pool`.

use serde::{Deserialize, Serialize};

/// A pool.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
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
    /// Time of the last hundred claims.
    #[serde(default)]
    pub claim_seconds: Option<ClaimSeconds>,
    /// Last error, until the next success.
    #[serde(default)]
    pub last_error: Option<PoolError>,
}

/// Time of claims, in seconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ClaimSeconds {
    /// Median.
    pub p50: f64,
    /// Time that 99 of 100 did not exceed.
    pub p99: f64,
}

/// A pool at a moment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PoolSample {
    /// The moment.
    pub at: String,
    /// Target size.
    pub size: usize,
    /// Members ready to be claimed.
    pub ready: usize,
    /// Those of them that are parked.
    pub parked: usize,
    /// Claims since the server started.
    pub claimed: u64,
    /// Claims since then without a ready member.
    pub misses: u64,
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
