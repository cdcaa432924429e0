//! Warm pools as operators see them.

use crate::catalogue::EntryName;
use crate::clock::Timestamp;
use crate::id::SandboxId;

/// Why a member could not be made or claimed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolFault {
    /// When it happened.
    pub at: Timestamp,
    /// The reason, for people.
    pub message: String,
}

/// A pool and its counters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolView {
    /// The catalogue entry that the pool belongs to.
    pub template: EntryName,
    /// The wanted number of members.
    pub size: usize,
    /// Members that can be claimed.
    pub ready: usize,
    /// Members that are being made.
    pub starting: usize,
    /// Claims since the server started.
    pub claimed: u64,
    /// Creates since then that found no ready member.
    pub misses: u64,
    /// The last failure, unless a later attempt succeeded.
    pub fault: Option<PoolFault>,
}

/// A member of a pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberView {
    /// The sandbox.
    pub id: SandboxId,
    /// When its creation began.
    pub since: Timestamp,
    /// When it became ready to be claimed; none while it is being made.
    pub ready: Option<Timestamp>,
}
