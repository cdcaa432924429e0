//! The pools of the catalogue under `/api/v1/pool`.

use serde::{Deserialize, Serialize};

/// A pool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Pool {
    /// The entry of the catalogue.
    pub template: String,
    /// How many members are wanted now.
    pub size: usize,
    /// How many may be handed out.
    pub ready: usize,
    /// How many are being made.
    pub starting: usize,
    /// How many were handed out since the server started.
    pub claimed: u64,
    /// How often there was none to hand out since then.
    pub misses: u64,
    /// What went wrong last, unless it has gone well since.
    #[serde(default)]
    pub last_error: Option<PoolError>,
}

/// What went wrong in a pool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolError {
    /// When.
    pub at: String,
    /// What.
    pub message: String,
}

/// A member of a pool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PoolMember {
    /// The sandbox; it keeps this id when it is handed out.
    pub name: String,
    /// `ready` or `starting`.
    pub status: String,
    /// Since when it is made.
    pub created_at: String,
    /// Since when it may be handed out.
    #[serde(default)]
    pub ready_at: Option<String>,
}

/// What was removed from a pool; others take the places.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemovedMembers {
    /// How many members.
    pub removed: usize,
}
