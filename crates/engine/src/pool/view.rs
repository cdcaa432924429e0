//! Pools as operators see them.

use shoal_core::catalogue::{Entry, EntryName};
use shoal_core::clock::Timestamp;
use shoal_core::id::{SandboxId, SnapshotId};
use shoal_core::pool::PoolBounds;
pub use shoal_core::ports::pools::{MemberView, PoolFault, PoolSample, PoolView};
use shoal_core::state::KillReason;

use super::Pools;
use super::members::{Pool, PoolMembers};
use super::warm_snapshot::WarmSnapshot;

impl Pool {
    /// The number of members that it should have.
    pub(super) fn size(&self, bounds: &PoolBounds, now: Timestamp) -> usize {
        (bounds.size + self.demand.current(bounds, now)).min(bounds.max)
    }

    pub(super) fn ready(&self) -> usize {
        self.members.values().filter(|m| m.ready.is_some()).count()
    }

    pub(super) fn parked(&self) -> usize {
        self.members.values().filter(|m| m.is_parked()).count()
    }
}

impl PoolMembers {
    /// Removes and returns all members of a pool, and its warm snapshot.
    fn empty(&self, entry: &EntryName) -> (Vec<SandboxId>, Option<SnapshotId>) {
        let mut pools = self.by_entry.lock();
        let Some(pool) = pools.get_mut(entry) else {
            return (Vec::new(), None);
        };
        let members = std::mem::take(&mut pool.members).into_keys().collect();
        (members, pool.warm.take().and_then(WarmSnapshot::complete))
    }

    /// Removes a member from its pool. False when it is in no pool.
    fn remove(&self, id: &SandboxId) -> bool {
        let mut pools = self.by_entry.lock();
        pools
            .values_mut()
            .any(|pool| pool.members.remove(id).is_some())
    }
}

fn has_pool(entry: &Entry) -> bool {
    entry.pool.is_some() && !entry.is_dynamic()
}

impl Pools {
    /// The pools of the catalogue, in its order.
    pub(crate) fn list(&self) -> Vec<PoolView> {
        let in_force = self.parts.catalogues.current();
        let now = self.parts.clock.now();
        let none = Pool::default();
        let pools = self.parts.members.by_entry.lock();
        let entries = in_force.catalogue.entries().iter();
        let described = entries.filter_map(|entry| {
            let bounds = PoolBounds::from(entry.pool.as_ref().filter(|_| !entry.is_dynamic())?);
            let pool = pools.get(&entry.name).unwrap_or(&none);
            let sample = pool.now(&bounds, now);
            let faults = pool.start_fault.iter().chain(&pool.claim_fault);
            Some(PoolView {
                template: entry.name.clone(),
                size: sample.size,
                ready: sample.ready,
                parked: sample.parked,
                starting: pool.members.len() - sample.ready,
                claimed: sample.claimed,
                misses: sample.misses,
                claim_times: pool.history.claim_times(),
                fault: faults.max_by_key(|fault| fault.at).cloned(),
            })
        });
        described.collect()
    }

    /// The members of an entry's pool, the next to be claimed first; none when the catalogue has no such
    /// pool.
    pub(crate) fn members(&self, template: &str) -> Option<Vec<MemberView>> {
        let in_force = self.parts.catalogues.current();
        let entry = in_force.catalogue.entry(template);
        let entry = entry.filter(|entry| has_pool(entry))?;
        let pools = self.parts.members.by_entry.lock();
        let members = pools.get(&entry.name).map(|pool| &pool.members);
        let mut views: Vec<MemberView> = members
            .into_iter()
            .flatten()
            .map(|(id, member)| MemberView {
                id: id.clone(),
                since: member.since,
                ready: member.ready,
                parked: member.is_parked(),
            })
            .collect();
        views.sort_by(|a, b| {
            let rank =
                |view: &MemberView| (view.ready.is_none(), view.parked, view.ready, view.since);
            rank(a).cmp(&rank(b)).then_with(|| a.id.cmp(&b.id))
        });
        Some(views)
    }

    /// The last hours of an entry's pool, and its present state, oldest first; none when the catalogue has no such
    /// pool.
    pub(crate) fn history(&self, template: &str) -> Option<Vec<PoolSample>> {
        let in_force = self.parts.catalogues.current();
        let entry = in_force.catalogue.entry(template);
        let entry = entry.filter(|entry| !entry.is_dynamic())?;
        let bounds = PoolBounds::from(entry.pool.as_ref()?);
        let now = self.parts.clock.now();
        Some(self.parts.members.history(&entry.name, &bounds, now))
    }

    /// Ends a member, or every member of an entry's pool together with its warm snapshot. New members
    /// replace them. Returns how many are ended; none when no pool and no member has this name.
    pub(crate) fn remove(&self, name: &str) -> Option<usize> {
        let in_force = self.parts.catalogues.current();
        let whole = in_force
            .catalogue
            .entry(name)
            .filter(|entry| has_pool(entry));
        let (ended, warm) = match whole {
            Some(entry) => self.parts.members.empty(&entry.name),
            None => {
                let id = SandboxId::from_wire(name).ok()?;
                if !self.parts.members.remove(&id) {
                    return None;
                }
                (vec![id], None)
            }
        };
        let count = ended.len();
        self.end_members(ended, KillReason::Operator);
        if let Some(warm) = warm {
            self.delete_warm_snapshot(warm);
        }
        self.parts.members.changed.notify_one();
        Some(count)
    }

    /// Sets the gauges of the pools. Those of a removed pool become zero: a gauge cannot be removed.
    pub(crate) fn count(&self) {
        let pools = self.list();
        let mut counted = self.parts.members.counted.lock();
        let gone = counted.iter().filter(|&name| {
            let called = |pool: &PoolView| pool.template == *name;
            !pools.iter().any(called)
        });
        for name in gone {
            set_gauges(name, 0, 0, 0);
        }
        for pool in &pools {
            set_gauges(&pool.template, pool.size, pool.ready, pool.parked);
        }
        *counted = pools.into_iter().map(|pool| pool.template).collect();
    }
}

#[expect(clippy::cast_precision_loss, reason = "a pool is small")]
fn set_gauges(template: &EntryName, size: usize, ready: usize, parked: usize) {
    let labels = [("template", template.to_string())];
    metrics::gauge!("shoal_pool_size", &labels).set(size as f64);
    metrics::gauge!("shoal_pool_ready", &labels).set(ready as f64);
    metrics::gauge!("shoal_pool_parked", &labels).set(parked as f64);
}
