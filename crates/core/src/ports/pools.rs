//! Warm pools as operators see them.

use std::time::Duration;

use crate::BoxFuture;
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
    /// Those of them that are parked: on the disk instead of in memory.
    pub parked: usize,
    /// Members that are being made.
    pub starting: usize,
    /// Claims since the server started.
    pub claimed: u64,
    /// Creates since then that found no ready member.
    pub misses: u64,
    /// How long the last claims took; none before the first.
    pub claim_times: Option<ClaimTimes>,
    /// The last failure, unless a later attempt succeeded.
    pub fault: Option<PoolFault>,
}

/// How long claims took.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClaimTimes {
    /// The median.
    pub median: Duration,
    /// The time that 99 of 100 claims did not exceed.
    pub p99: Duration,
}

/// A pool at a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PoolSample {
    /// The moment.
    pub at: Timestamp,
    /// See [`PoolView::size`].
    pub size: usize,
    /// See [`PoolView::ready`].
    pub ready: usize,
    /// See [`PoolView::parked`].
    pub parked: usize,
    /// See [`PoolView::claimed`].
    pub claimed: u64,
    /// See [`PoolView::misses`].
    pub misses: u64,
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
    /// Whether it is parked: on the disk instead of in memory.
    pub parked: bool,
}

/// The warm pools of the catalogue.
pub trait Pools: Send + Sync {
    /// Every pool, in the order of the catalogue.
    fn list(&self) -> BoxFuture<'_, Vec<PoolView>>;

    /// The members of an entry's pool, the next to be claimed first; none when the catalogue has no such
    /// pool.
    fn members<'a>(&'a self, template: &'a str) -> BoxFuture<'a, Option<Vec<MemberView>>>;

    /// The last hours of an entry's pool, oldest first; none when the catalogue has no such pool. Empty where no
    /// history is kept.
    fn history<'a>(&'a self, template: &'a str) -> BoxFuture<'a, Option<Vec<PoolSample>>>;

    /// Ends a member, or every member of an entry's pool, and returns their number. New ones are made in
    /// their place. None when neither a pool nor a member has this name.
    fn remove<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Option<usize>>;
}
