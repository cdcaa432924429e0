//! The members and the state of all pools, in memory.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use shoal_core::catalogue::{Entry, EntryName};
use shoal_core::clock::Timestamp;
use shoal_core::id::{SandboxId, SnapshotId};
use shoal_core::pool::{Demand, MemberPlace, PlannedMember, PoolBounds, PoolPlan, back_off, plan};
use shoal_core::ports::pools::PoolFault;
use shoal_core::sandbox::SandboxRecord;
use tokio::sync::Notify;

use super::MAX_CONCURRENT_STARTS;
use super::history::History;
use super::warm_snapshot::WarmSnapshot;
use crate::sandboxes::{Claiming, Listener};

/// The members of all pools.
#[derive(Debug, Default)]
pub(crate) struct PoolMembers {
    pub(super) by_entry: Mutex<BTreeMap<EntryName, Pool>>,
    /// Signals that a pool may need more members, or fewer.
    pub(super) changed: Arc<Notify>,
    /// How many members are being claimed.
    claiming: Arc<AtomicUsize>,
    /// Until when pools keep no member in memory.
    pub(super) scarce_until: Mutex<Option<Timestamp>>,
    /// The pools whose gauges are set.
    pub(super) counted: Mutex<BTreeSet<EntryName>>,
}

/// The pool of one entry.
#[derive(Debug, Default)]
pub(super) struct Pool {
    pub(super) members: BTreeMap<SandboxId, MemberState>,
    /// The version of the entry that the faults below refer to.
    entry: Option<Arc<Entry>>,
    /// The snapshot that members start from.
    pub(super) warm: Option<WarmSnapshot>,
    pub(super) demand: Demand,
    pub(super) claims: u64,
    pub(super) misses: u64,
    pub(super) history: History,
    /// How many starts in a row failed.
    failures: u32,
    /// When `failures` was last increased. Starts that began before belong to the same attempt.
    counted: Option<Timestamp>,
    /// No member is started before.
    not_before: Option<Timestamp>,
    /// Why the last start failed; none after a success.
    pub(super) start_fault: Option<PoolFault>,
    /// Why the last claim failed; none after a success.
    pub(super) claim_fault: Option<PoolFault>,
}

/// The outcome of a claim, for the size of the pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ClaimOutcome {
    /// A member was claimed, in this time.
    Claimed(Duration),
    /// There was no ready member: the pool is too small.
    Missed,
    /// The members failed. More members of the same kind would fail too.
    Failed,
}

/// A member.
#[derive(Debug, Clone)]
pub(super) struct MemberState {
    /// The digest of its plan; none until the plan is known.
    pub(super) digest: Option<String>,
    pub(super) since: Timestamp,
    pub(super) ready: Option<Timestamp>,
    /// The place of its memory, once it is ready.
    pub(super) place: MemberPlace,
    /// It could not be parked, and is not tried again before this moment.
    pub(super) not_before: Option<Timestamp>,
}

impl Listener for PoolMembers {
    fn ended(&self, record: &SandboxRecord) {
        if let Some(pool_member) = record.pool_member() {
            self.remove_ended(&pool_member.entry, &record.id);
        }
    }
}

impl PoolMembers {
    /// Counts a claim until the guard is dropped.
    pub(super) fn claiming(&self) -> Claiming {
        self.claiming.fetch_add(1, Ordering::Relaxed);
        Claiming {
            claiming: self.claiming.clone(),
            changed: self.changed.clone(),
        }
    }

    /// How many members may start at the same time: one during a claim, which must not wait for the
    /// processor.
    pub(super) fn max_concurrent_starts(&self) -> usize {
        if self.claiming.load(Ordering::Relaxed) > 0 {
            1
        } else {
            MAX_CONCURRENT_STARTS
        }
    }

    /// Adds a member whose sandbox does not exist yet.
    pub(super) fn add_starting(&self, entry: &EntryName, id: SandboxId, now: Timestamp) {
        let member = MemberState {
            digest: None,
            since: now,
            ready: None,
            place: MemberPlace::Hot,
            not_before: None,
        };
        let mut pools = self.by_entry.lock();
        let pool = pools.entry(entry.clone()).or_default();
        pool.members.insert(id, member);
    }

    /// Sets the digest of a starting member. False when the pool no longer wants it.
    pub(super) fn set_digest(&self, entry: &EntryName, id: &SandboxId, digest: &str) -> bool {
        let mut pools = self.by_entry.lock();
        let pool = pools.get_mut(entry);
        let member = pool.and_then(|pool| pool.members.get_mut(id));
        member.is_some_and(|member| {
            member.digest = Some(digest.to_owned());
            true
        })
    }

    /// Makes a member claimable. False when the pool no longer wants it.
    pub(super) fn set_ready(&self, entry: &EntryName, id: &SandboxId, now: Timestamp) -> bool {
        let mut pools = self.by_entry.lock();
        let Some(pool) = pools.get_mut(entry) else {
            return false;
        };
        let Some(member) = pool.members.get_mut(id) else {
            return false;
        };
        member.ready = Some(now);
        (pool.failures, pool.counted) = (0, None);
        (pool.not_before, pool.start_fault) = (None, None);
        drop(pools);
        self.changed.notify_one();
        true
    }

    /// Adds a ready member that recovery has found.
    pub(super) fn add_recovered(
        &self,
        entry: &EntryName,
        id: SandboxId,
        digest: &str,
        ready: Timestamp,
        place: MemberPlace,
    ) {
        let member = MemberState {
            digest: Some(digest.to_owned()),
            since: ready,
            ready: Some(ready),
            place,
            not_before: None,
        };
        let mut pools = self.by_entry.lock();
        let pool = pools.entry(entry.clone()).or_default();
        pool.members.insert(id, member);
    }

    /// Removes and returns the oldest ready member with this digest (Agent-Sandbox, Pools); the oldest hot one, if
    /// there is one.
    pub(super) fn take(&self, entry: &EntryName, digest: &str) -> Option<SandboxId> {
        let mut pools = self.by_entry.lock();
        let pool = pools.get_mut(entry)?;
        let ready = pool
            .members
            .iter()
            .filter(|(_, member)| member.digest.as_deref() == Some(digest))
            .filter_map(|(id, member)| Some((member.place, member.ready?, id)));
        let (_, _, oldest) = ready.min()?;
        let oldest = oldest.clone();
        pool.members.remove(&oldest);
        Some(oldest)
    }

    /// Counts a claim and adapts the size of the pool.
    pub(super) fn count_claim(
        &self,
        entry: &EntryName,
        bounds: &PoolBounds,
        outcome: ClaimOutcome,
        now: Timestamp,
    ) {
        {
            let mut pools = self.by_entry.lock();
            let pool = pools.entry(entry.clone()).or_default();
            let missed = outcome == ClaimOutcome::Missed;
            pool.demand = pool.demand.asked(missed, bounds, now);
            match outcome {
                ClaimOutcome::Claimed(took) => {
                    pool.claims += 1;
                    pool.history.claimed(took);
                    pool.claim_fault = None;
                }
                ClaimOutcome::Missed => pool.misses += 1,
                ClaimOutcome::Failed => {}
            }
        }
        self.changed.notify_one();
    }

    /// Removes a member that failed to start, and delays the next start, longer with each failure.
    /// Members that started before the last failure was known count as one attempt. False, without an
    /// effect, when the pool no longer wanted the member.
    pub(super) fn start_failed(
        &self,
        entry: &EntryName,
        id: &SandboxId,
        message: String,
        now: Timestamp,
    ) -> bool {
        let mut pools = self.by_entry.lock();
        let Some(pool) = pools.get_mut(entry) else {
            return false;
        };
        let Some(member) = pool.members.remove(id) else {
            return false;
        };
        if pool.counted.is_none_or(|counted| member.since > counted) {
            pool.failures = pool.failures.saturating_add(1);
            pool.counted = Some(now);
            pool.not_before = Some(now + back_off(pool.failures));
        }
        pool.start_fault = Some(PoolFault { at: now, message });
        true
    }

    /// Sets the current version of an entry. A new version clears the faults and the delay of the
    /// previous one.
    pub(super) fn set_entry(&self, entry: &Arc<Entry>) {
        let mut pools = self.by_entry.lock();
        let pool = pools.entry(entry.name.clone()).or_default();
        let before = pool.entry.replace(entry.clone());
        if before.is_some_and(|before| before != *entry) {
            (pool.failures, pool.counted, pool.not_before) = (0, None, None);
            (pool.start_fault, pool.claim_fault) = (None, None);
        }
    }

    /// Removes a starting member that is no longer wanted. This is not a fault.
    pub(super) fn remove_unwanted(&self, entry: &EntryName, id: &SandboxId) {
        if let Some(pool) = self.by_entry.lock().get_mut(entry) {
            pool.members.remove(id);
        }
    }

    /// Records why a member could not be claimed.
    pub(super) fn claim_failed(&self, entry: &EntryName, message: String, now: Timestamp) {
        if let Some(pool) = self.by_entry.lock().get_mut(entry) {
            pool.claim_fault = Some(PoolFault { at: now, message });
        }
    }

    /// Removes a ready member whose sandbox has ended. The task that starts a member reports its end
    /// itself.
    fn remove_ended(&self, entry: &EntryName, id: &SandboxId) {
        {
            let mut pools = self.by_entry.lock();
            let Some(pool) = pools.get_mut(entry) else {
                return;
            };
            let ready = pool.members.get(id).is_some_and(|m| m.ready.is_some());
            if !ready {
                return;
            }
            pool.members.remove(id);
        }
        self.changed.notify_one();
    }

    /// Plans the next step of a pool, and removes the members that it ends. `digest` is that of new
    /// members, if it is known.
    pub(super) fn plan(
        &self,
        entry: &EntryName,
        bounds: &PoolBounds,
        digest: Option<&str>,
        now: Timestamp,
    ) -> PoolPlan<SandboxId> {
        let mut pools = self.by_entry.lock();
        let pool = pools.entry(entry.clone()).or_default();
        let outdated = |member: &MemberState| match (member.digest.as_deref(), digest) {
            (Some(made_from), Some(now)) => made_from != now,
            _ => false,
        };
        let members: Vec<PlannedMember<SandboxId>> = pool
            .members
            .iter()
            .map(|(id, member)| PlannedMember {
                id: id.clone(),
                ready: member.ready,
                outdated: outdated(member),
            })
            .collect();
        let mut plan = plan(bounds, &pool.demand, &members, now);
        if pool.not_before.is_some_and(|moment| now < moment) {
            plan.make = 0;
        }
        for id in &plan.end {
            pool.members.remove(id);
        }
        plan
    }

    /// Removes the pools whose entry is not `wanted`. Returns their members and warm snapshots.
    pub(super) fn retain(
        &self,
        wanted: impl Fn(&EntryName) -> bool,
    ) -> (Vec<SandboxId>, Vec<SnapshotId>) {
        let mut pools = self.by_entry.lock();
        let (mut removed, mut snapshots) = (Vec::new(), Vec::new());
        pools.retain(|entry, pool| {
            let stays = wanted(entry);
            if !stays {
                removed.extend(std::mem::take(&mut pool.members).into_keys());
                snapshots.extend(pool.warm.take().and_then(WarmSnapshot::complete));
            }
            stays
        });
        (removed, snapshots)
    }

    /// When the first pool after a failure may start a member again.
    pub(super) fn next_retry(&self, now: Timestamp) -> Option<Timestamp> {
        let pools = self.by_entry.lock();
        let moments = pools.values().filter_map(|pool| pool.not_before);
        moments.filter(|moment| *moment > now).min()
    }
}
