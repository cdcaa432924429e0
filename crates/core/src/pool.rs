//! What a pool does next: how many members are made, and which are ended.
//!
//! Pure rules. A pool is the members that an entry of the catalogue has ahead of time
//! ([`crate::catalogue::Pool`]). A claim takes the oldest ready member (Agent-Sandbox, Pools);
//! that is an ordering and needs no rule here.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::auth::Token;
use crate::catalogue::{EntryName, Pool};
use crate::clock::Timestamp;
use crate::id::SnapshotId;

/// How many members of a pool are made, or replaced, at the same time.
pub const TOGETHER: usize = 4;

/// After what time without a request a pool that has grown is as small again as it was, when its
/// entry does not say.
const SCALE_DOWN_AFTER: Duration = Duration::from_secs(300);

/// The shortest and the longest time after which a pool is tried again that could not be filled.
const AGAIN: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(300));

/// A sandbox that belongs to a pool, as its record says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Membership {
    /// The entry that it was made from.
    pub entry: EntryName,
    /// A digest of what it was made from: it is handed out to those only who ask for the same.
    pub digest: String,
    /// How far it is.
    pub stage: Stage,
}

/// How far a member is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// It is being made, and warmed up.
    Starting,
    /// It may be handed out, since then.
    Ready(Timestamp),
    /// It is being handed out. Nobody has been told of it yet.
    Claimed,
}

/// What was saved of a member, for others to begin with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seed {
    /// The entry whose members begin with it.
    pub entry: EntryName,
    /// Of what the member was made, as in [`Membership::digest`].
    pub digest: String,
    /// The daemon in its memory: members are not to have an older one than other sandboxes.
    pub daemon: String,
    /// As what it is saved.
    pub id: SnapshotId,
    /// What the daemon in its memory asks for.
    #[serde(default)]
    pub guest_token: Option<Token>,
}

/// How large a pool is to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// How many members are kept.
    pub size: usize,
    /// How many are left alone, ready, while others are replaced.
    pub min_ready: usize,
    /// How many there are at most.
    pub max: usize,
    /// After what time without a request it has `size` members again.
    pub scale_down_after: Duration,
}

impl From<&Pool> for Bounds {
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
        }
    }
}

/// What is asked of a pool lately.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Demand {
    /// How many more members than its size it was found to need.
    pub extra: usize,
    /// When it was asked last.
    pub last: Option<Timestamp>,
}

impl Demand {
    /// It was asked; `missed` when it had nothing to give, which makes it grow.
    #[must_use]
    pub fn asked(self, missed: bool, bounds: &Bounds, now: Timestamp) -> Self {
        let extra = self.current(bounds, now) + usize::from(missed);
        Self {
            extra: extra.min(bounds.max - bounds.size),
            last: Some(now),
        }
    }

    /// How many more members than its size it needs now.
    #[must_use]
    pub fn current(&self, bounds: &Bounds, now: Timestamp) -> usize {
        let quiet = self
            .last
            .is_none_or(|last| now.since(last) >= bounds.scale_down_after);
        if quiet { 0 } else { self.extra }
    }
}

/// A member, as far as its pool has to know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member<K> {
    /// Which.
    pub id: K,
    /// Since when it is ready; none while it is being made.
    pub ready: Option<Timestamp>,
    /// Whether it is not what the entry says any more: nobody can be given it.
    pub outdated: bool,
}

/// What is to be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan<K> {
    /// How many members are made.
    pub make: usize,
    /// Which members are ended.
    pub end: Vec<K>,
}

/// What to do with a pool that has these members. Those that are being ended are not among them.
///
/// * It never has more than `max` members with those that are made.
/// * A few are made at a time; the next ones when those are ready.
/// * Above what it needs, what is being made goes first, then what has become ready last.
/// * Outdated members that are being made go at once. Those that are ready go a few at a time, as
///   far as at least `min_ready` ready ones stay; one may always go, or nothing would ever change.
#[must_use]
pub fn plan<K: Clone + Ord>(
    bounds: &Bounds,
    demand: &Demand,
    members: &[Member<K>],
    now: Timestamp,
) -> Plan<K> {
    let wanted = (bounds.size + demand.current(bounds, now)).min(bounds.max);
    let (outdated, current): (Vec<&Member<K>>, Vec<&Member<K>>) =
        members.iter().partition(|member| member.outdated);
    let (mut old, half_made): (Vec<&Member<K>>, Vec<&Member<K>>) = outdated
        .into_iter()
        .partition(|member| member.ready.is_some());
    let mut end: Vec<K> = half_made.iter().map(|member| member.id.clone()).collect();

    // The last ones first: they are what is superfluous.
    let mut surplus = current.clone();
    surplus.sort_by(|a, b| {
        let rank = |member: &Member<K>| (member.ready.is_some(), member.ready);
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
    Plan { make, end }
}

/// How long to wait after so many failures in a row.
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
