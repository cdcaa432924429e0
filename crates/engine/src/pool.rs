//! Pools: sandboxes of an entry of the catalogue that are there before somebody asks for one.
//!
//! A member is a sandbox like any other, with a record that says which pool it belongs to and how
//! far it is ([`Membership`](shoal_core::pool::Membership)). What is here is who may be handed out:
//! kept in memory, and made again from the records at a start. A member is taken out of it before
//! anything is done to it, so that nobody else does anything to it too.

mod claim;
mod fill;
mod seed;
mod view;
mod warm;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use shoal_core::catalogue::{Entry, EntryName};
use shoal_core::clock::Timestamp;
use shoal_core::id::{SandboxId, SnapshotId};
use shoal_core::pool::{Bounds, Demand, Member, Plan, back_off, plan};
use shoal_core::sandbox::SandboxRecord;
use tokio::sync::Notify;

use crate::sandboxes::{Claiming, Listener};

pub(crate) use self::claim::Wanted;
use self::seed::Seed;
pub use self::view::{MemberView, PoolFault, PoolView};
use self::warm::MemberError;

/// How many members are made at the same time, of all pools together.
const MAKERS: usize = 8;

/// The pools of this server.
#[derive(Debug, Default)]
pub(crate) struct Pools {
    by_entry: Mutex<BTreeMap<EntryName, Pool>>,
    /// Something has happened that may ask for more members, or fewer.
    changed: Arc<Notify>,
    /// How many members are being handed out.
    claiming: Arc<AtomicUsize>,
    /// The pools that gauges were last set for.
    counted: Mutex<BTreeSet<EntryName>>,
}

#[derive(Debug, Default)]
struct Pool {
    members: BTreeMap<SandboxId, Known>,
    /// The entry that the faults below are of.
    entry: Option<Arc<Entry>>,
    /// What members begin with.
    seed: Option<Seed>,
    demand: Demand,
    claims: u64,
    misses: u64,
    /// How often in a row no member could be made.
    failures: u32,
    /// When that was counted last. What had begun by then was part of the same try.
    counted: Option<Timestamp>,
    /// Before then no other is made.
    not_before: Option<Timestamp>,
    /// Why none could be made, until one could.
    not_made: Option<PoolFault>,
    /// Why one could not be handed out, until one could.
    not_handed_out: Option<PoolFault>,
}

/// What came of asking a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Asked {
    /// It gave a member.
    Given,
    /// It had none: it is too small.
    Missed,
    /// What it had could not be handed out, and more of the same would not help.
    Failed,
}

/// What is known of a member.
#[derive(Debug, Clone)]
struct Known {
    /// Of what it was made from, once that is known.
    digest: Option<String>,
    since: Timestamp,
    ready: Option<Timestamp>,
}

impl Listener for Pools {
    fn ended(&self, record: &SandboxRecord) {
        if let Some(membership) = record.membership() {
            self.gone(&membership.entry, &record.id);
        }
    }
}

impl Pools {
    /// Says that a member is being handed out.
    fn claiming(&self) -> Claiming {
        self.claiming.fetch_add(1, Ordering::Relaxed);
        Claiming {
            claiming: self.claiming.clone(),
            changed: self.changed.clone(),
        }
    }

    /// How many members may be made at the same time: while others are handed out, one. Whoever asks
    /// goes first, and is not to wait for the processor.
    fn makers(&self) -> usize {
        if self.claiming.load(Ordering::Relaxed) > 0 {
            1
        } else {
            MAKERS
        }
    }

    /// Begins a member of which nothing is there yet.
    fn begin(&self, entry: &EntryName, id: SandboxId, now: Timestamp) {
        let known = Known {
            digest: None,
            since: now,
            ready: None,
        };
        let mut pools = self.by_entry.lock();
        pools
            .entry(entry.clone())
            .or_default()
            .members
            .insert(id, known);
    }

    /// Notes what a member is made from. False when it is not wanted any more.
    fn made_from(&self, entry: &EntryName, id: &SandboxId, digest: &str) -> bool {
        let mut pools = self.by_entry.lock();
        let known = pools
            .get_mut(entry)
            .and_then(|pool| pool.members.get_mut(id));
        known.is_some_and(|known| {
            known.digest = Some(digest.to_owned());
            true
        })
    }

    /// Lets a member be handed out. False when it is not wanted any more.
    fn join(&self, entry: &EntryName, id: &SandboxId, now: Timestamp) -> bool {
        let mut pools = self.by_entry.lock();
        let Some(pool) = pools.get_mut(entry) else {
            return false;
        };
        let Some(known) = pool.members.get_mut(id) else {
            return false;
        };
        known.ready = Some(now);
        (pool.failures, pool.counted) = (0, None);
        (pool.not_before, pool.not_made) = (None, None);
        drop(pools);
        self.changed.notify_one();
        true
    }

    /// Takes over a member that the last server made ready.
    pub(crate) fn found(&self, entry: &EntryName, id: SandboxId, digest: &str, ready: Timestamp) {
        let known = Known {
            digest: Some(digest.to_owned()),
            since: ready,
            ready: Some(ready),
        };
        let mut pools = self.by_entry.lock();
        pools
            .entry(entry.clone())
            .or_default()
            .members
            .insert(id, known);
    }

    /// Removes and returns the oldest ready member with this digest (Agent-Sandbox, Pools).
    fn take(&self, entry: &EntryName, digest: &str) -> Option<SandboxId> {
        let mut pools = self.by_entry.lock();
        let pool = pools.get_mut(entry)?;
        let ready = pool
            .members
            .iter()
            .filter(|(_, known)| known.digest.as_deref() == Some(digest))
            .filter_map(|(id, known)| Some((known.ready?, id)));
        let (_, oldest) = ready.min()?;
        let oldest = oldest.clone();
        pool.members.remove(&oldest);
        Some(oldest)
    }

    /// A pool was asked.
    fn asked(&self, entry: &EntryName, bounds: &Bounds, came: Asked, now: Timestamp) {
        {
            let mut pools = self.by_entry.lock();
            let pool = pools.entry(entry.clone()).or_default();
            pool.demand = pool.demand.asked(came == Asked::Missed, bounds, now);
            match came {
                Asked::Given => {
                    pool.claims += 1;
                    pool.not_handed_out = None;
                }
                Asked::Missed => pool.misses += 1,
                Asked::Failed => {}
            }
        }
        self.changed.notify_one();
    }

    /// A member could not be made: the next one is tried later, and later each time. Those that
    /// were begun before that was known are one try together. False, and no matter, when it was
    /// not wanted any more.
    fn failed(&self, entry: &EntryName, id: &SandboxId, message: String, now: Timestamp) -> bool {
        let mut pools = self.by_entry.lock();
        let Some(pool) = pools.get_mut(entry) else {
            return false;
        };
        let Some(known) = pool.members.remove(id) else {
            return false;
        };
        if pool.counted.is_none_or(|counted| known.since > counted) {
            pool.failures = pool.failures.saturating_add(1);
            pool.counted = Some(now);
            pool.not_before = Some(now + back_off(pool.failures));
        }
        pool.not_made = Some(PoolFault { at: now, message });
        true
    }

    /// Notes what an entry says now. What failed under an earlier version says nothing about this
    /// one: its faults are forgotten, and the pool is filled without waiting.
    fn follow(&self, entry: &Arc<Entry>) {
        let mut pools = self.by_entry.lock();
        let pool = pools.entry(entry.name.clone()).or_default();
        let before = pool.entry.replace(entry.clone());
        if before.is_some_and(|before| before != *entry) {
            (pool.failures, pool.counted, pool.not_before) = (0, None, None);
            (pool.not_made, pool.not_handed_out) = (None, None);
        }
    }

    /// A member that is being made is not what is wanted any more, which is nobody's fault.
    fn give_up(&self, entry: &EntryName, id: &SandboxId) {
        if let Some(pool) = self.by_entry.lock().get_mut(entry) {
            pool.members.remove(id);
        }
    }

    /// A member could not be handed out.
    fn blame(&self, entry: &EntryName, message: String, now: Timestamp) {
        if let Some(pool) = self.by_entry.lock().get_mut(entry) {
            pool.not_handed_out = Some(PoolFault { at: now, message });
        }
    }

    /// A ready member is there no longer. Of one that is being made its maker tells.
    fn gone(&self, entry: &EntryName, id: &SandboxId) {
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

    /// What to do with the pool of an entry now; what is to be ended is taken out. `digest` is of
    /// what members are made from now, if that is known.
    fn plan(
        &self,
        entry: &EntryName,
        bounds: &Bounds,
        digest: Option<&str>,
        now: Timestamp,
    ) -> Plan<SandboxId> {
        let mut pools = self.by_entry.lock();
        let pool = pools.entry(entry.clone()).or_default();
        let outdated = |known: &Known| match (known.digest.as_deref(), digest) {
            (Some(made_from), Some(now)) => made_from != now,
            _ => false,
        };
        let members: Vec<Member<SandboxId>> = pool
            .members
            .iter()
            .map(|(id, known)| Member {
                id: id.clone(),
                ready: known.ready,
                outdated: outdated(known),
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

    /// Forgets the pools that are no entry's, and returns who was in them, and what members began
    /// with.
    fn forget_but(&self, wanted: impl Fn(&EntryName) -> bool) -> (Vec<SandboxId>, Vec<SnapshotId>) {
        let mut pools = self.by_entry.lock();
        let (mut left, mut seeds) = (Vec::new(), Vec::new());
        pools.retain(|entry, pool| {
            let stays = wanted(entry);
            if !stays {
                left.extend(std::mem::take(&mut pool.members).into_keys());
                seeds.extend(pool.seed.take().and_then(Seed::saved));
            }
            stays
        });
        (left, seeds)
    }

    /// When a pool that could not be filled is tried again, the first of them.
    fn next_try(&self, now: Timestamp) -> Option<Timestamp> {
        let pools = self.by_entry.lock();
        let moments = pools.values().filter_map(|pool| pool.not_before);
        moments.filter(|moment| *moment > now).min()
    }
}
