//! The rules of pools: how many members to start next, and which to end.
//!
//! Pure functions. A pool keeps sandboxes of a catalogue entry ready before a client asks
//! ([`crate::catalogue::Pool`]). A claim takes the oldest ready member (Agent-Sandbox, Pools);
//! that is an ordering and needs no rule here.

mod parking;

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::auth::Token;
use crate::catalogue::{EntryName, Pool};
use crate::clock::Timestamp;
use crate::id::SnapshotId;

pub use self::parking::{MemberPlace, ParkingPlan, ReadyMember, SETTLED, plan_parking};

/// How many members of a pool start, or are replaced, at the same time.
pub const TOGETHER: usize = 4;

/// After this time without a request, a pool that has grown shrinks to its size. The default of the
/// entry's `scaleDownAfter`.
const SCALE_DOWN_AFTER: Duration = Duration::from_secs(300);

/// The shortest and the longest delay of the next start after a failure.
const AGAIN: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(300));

/// The pool that a sandbox belongs to, and its phase.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolMember {
    /// The entry of the pool.
    pub entry: EntryName,
    /// A digest of everything that it was made from. Only requests with the same digest can claim it.
    pub digest: String,
    /// Its phase.
    #[serde(rename = "stage")]
    pub phase: PoolPhase,
}

/// The phase of a pool member.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PoolPhase {
    /// It starts, and is warmed up.
    Starting,
    /// It can be claimed, since this moment.
    Ready(Timestamp),
    /// It is being claimed. No client knows it yet.
    Claimed,
}

impl PoolPhase {
    /// Since when it can be claimed, if it can.
    #[must_use]
    pub fn ready_since(self) -> Option<Timestamp> {
        match self {
            Self::Ready(since) => Some(since),
            Self::Starting | Self::Claimed => None,
        }
    }
}

/// The snapshot of a warm member that later members start from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WarmSnapshot {
    /// The entry whose members start from it.
    pub entry: EntryName,
    /// The digest of the member, as in [`PoolMember::digest`].
    pub digest: String,
    /// The version of the daemon in its memory. Members must not have an older one than other sandboxes.
    pub daemon: String,
    /// The id of its data.
    pub id: SnapshotId,
    /// The token that the daemon in its memory requires.
    #[serde(default)]
    pub guest_token: Option<Token>,
}

/// The bounds of a pool's size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PoolBounds {
    /// How many members there are without extra demand.
    pub size: usize,
    /// How many stay ready while outdated members are replaced.
    pub min_ready: usize,
    /// The most members.
    pub max: usize,
    /// After this time without a request the pool has `size` members again.
    pub scale_down_after: Duration,
    /// How many ready members stay in memory. The others are parked.
    pub hot: usize,
}

impl From<&Pool> for PoolBounds {
    fn from(pool: &Pool) -> Self {
        let count = |count: u32| usize::try_from(count).unwrap_or(usize::MAX);
        let size = count(pool.size);
        Self {
            size,
            min_ready: pool.min_ready.map_or(size / 2, count).min(size),
            max: pool.max.map_or(size, count).max(size),
            scale_down_after: pool
                .scale_down_after
                .as_ref()
                .map_or(SCALE_DOWN_AFTER, crate::catalogue::Span::time),
            hot: pool.hot.map_or(usize::MAX, count),
        }
    }
}

/// The recent demand for a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Demand {
    /// How many members it needs beyond its size.
    pub extra: usize,
    /// When the last request came.
    pub last: Option<Timestamp>,
}

impl Demand {
    /// The demand after a request. A request that `missed` found no ready member, and makes the pool grow.
    #[must_use]
    pub fn asked(self, missed: bool, bounds: &PoolBounds, now: Timestamp) -> Self {
        let extra = self.current(bounds, now) + usize::from(missed);
        Self {
            extra: extra.min(bounds.max - bounds.size),
            last: Some(now),
        }
    }

    /// How many members it needs beyond its size now.
    #[must_use]
    pub fn current(&self, bounds: &PoolBounds, now: Timestamp) -> usize {
        let quiet = self
            .last
            .is_none_or(|last| now.since(last) >= bounds.scale_down_after);
        if quiet { 0 } else { self.extra }
    }
}

/// A member, as the plan sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedMember<K> {
    /// Its id.
    pub id: K,
    /// When it became ready; none while it starts.
    pub ready: Option<Timestamp>,
    /// Whether its digest differs from the entry's, so that no request can claim it.
    pub outdated: bool,
}

/// The next step of a pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolPlan<K> {
    /// How many members to start.
    pub make: usize,
    /// The members to end.
    pub end: Vec<K>,
}

/// Plans the next step of a pool. `members` excludes those that are being ended.
///
/// * The pool never exceeds `max` members, starting ones included.
/// * A few members start at a time. The next ones start when those are ready.
/// * A pool above its need first ends starting members, then those that became ready last.
/// * Outdated members that are starting are ended at once. Ready ones are ended a few at a time while at
///   least `min_ready` ready members stay. One may always be ended, so that every pool is replaced.
#[must_use]
pub fn plan<K: Clone + Ord>(
    bounds: &PoolBounds,
    demand: &Demand,
    members: &[PlannedMember<K>],
    now: Timestamp,
) -> PoolPlan<K> {
    let wanted = (bounds.size + demand.current(bounds, now)).min(bounds.max);
    let (outdated, current): (Vec<&PlannedMember<K>>, Vec<&PlannedMember<K>>) =
        members.iter().partition(|member| member.outdated);
    let (mut old, half_made): (Vec<&PlannedMember<K>>, Vec<&PlannedMember<K>>) = outdated
        .into_iter()
        .partition(|member| member.ready.is_some());
    let mut end: Vec<K> = half_made.iter().map(|member| member.id.clone()).collect();

    // The newest members first: those are ended.
    let mut surplus = current.clone();
    surplus.sort_by(|a, b| {
        let rank = |member: &PlannedMember<K>| (member.ready.is_some(), member.ready);
        match (rank(a), rank(b)) {
            ((false, _), (true, _)) => std::cmp::Ordering::Less,
            ((true, _), (false, _)) => std::cmp::Ordering::Greater,
            ((_, a_since), (_, b_since)) => b_since.cmp(&a_since).then_with(|| b.id.cmp(&a.id)),
        }
    });
    surplus.truncate(current.len().saturating_sub(wanted));
    end.extend(surplus.iter().map(|member| member.id.clone()));
    let kept: Vec<_> = current
        .iter()
        .filter(|member| !surplus.contains(member))
        .collect();
    let starting = kept.iter().filter(|member| member.ready.is_none()).count();
    let ready = kept.len() - starting;

    old.sort_by(|a, b| (a.ready, &a.id).cmp(&(b.ready, &b.id)));
    let floor = bounds.min_ready.min(bounds.max.saturating_sub(1));
    let may_go = (ready + old.len()).saturating_sub(floor.min(wanted));
    let few = TOGETHER.saturating_sub(starting);
    let gone = old.len().min(may_go).min(few);
    end.extend(old.iter().take(gone).map(|member| member.id.clone()));

    let alive = kept.len() + old.len() - gone;
    let make = wanted
        .saturating_sub(kept.len())
        .min(bounds.max.saturating_sub(alive))
        .min(few);
    PoolPlan { make, end }
}

/// The delay of the next start after this many failures in a row.
#[must_use]
pub fn back_off(failures: u32) -> Duration {
    let (first, longest) = AGAIN;
    let doubled = 1u32.checked_shl(failures.saturating_sub(1)).unwrap_or(0);
    if doubled == 0 {
        return longest;
    }
    first.saturating_mul(doubled).min(longest)
}

#[cfg(test)]
mod tests;
