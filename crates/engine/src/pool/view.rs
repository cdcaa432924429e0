//! Pools as operators see them.

use shoal_core::catalogue::{Entry, EntryName};
use shoal_core::id::{SandboxId, SnapshotId};
use shoal_core::pool::Bounds;
pub use shoal_core::ports::pools::{MemberView, PoolFault, PoolView};
use shoal_core::state::KillReason;

use super::seed::Seed;
use super::{Pool, Pools};
use crate::engine::Engine;

impl Pool {
    fn ready(&self) -> usize {
        self.members.values().filter(|m| m.ready.is_some()).count()
    }
}

impl Pools {
    /// Takes everybody out of a pool, and what members begin with.
    fn empty(&self, entry: &EntryName) -> (Vec<SandboxId>, Option<SnapshotId>) {
        let mut pools = self.by_entry.lock();
        let Some(pool) = pools.get_mut(entry) else {
            return (Vec::new(), None);
        };
        let members = std::mem::take(&mut pool.members).into_keys().collect();
        (members, pool.seed.take().and_then(Seed::saved))
    }

    /// Takes a member out of its pool. False when it is in none.
    fn take_out(&self, id: &SandboxId) -> bool {
        let mut pools = self.by_entry.lock();
        pools
            .values_mut()
            .any(|pool| pool.members.remove(id).is_some())
    }
}

fn has_pool(entry: &Entry) -> bool {
    entry.pool.is_some() && !entry.is_dynamic()
}

impl Engine {
    /// The pools of the catalogue, in its order.
    #[must_use]
    pub fn pools(&self) -> Vec<PoolView> {
        let in_force = self.shared.catalogues.current();
        let now = self.shared.clock.now();
        let pools = self.shared.pools.by_entry.lock();
        let entries = in_force.catalogue.entries().iter();
        let described = entries.filter_map(|entry| {
            let bounds = Bounds::from(entry.pool.as_ref().filter(|_| !entry.is_dynamic())?);
            let mut view = PoolView {
                template: entry.name.clone(),
                size: bounds.size,
                ready: 0,
                starting: 0,
                claimed: 0,
                misses: 0,
                fault: None,
            };
            if let Some(pool) = pools.get(&entry.name) {
                view.size = (bounds.size + pool.demand.current(&bounds, now)).min(bounds.max);
                view.ready = pool.ready();
                view.starting = pool.members.len() - view.ready;
                (view.claimed, view.misses) = (pool.claims, pool.misses);
                let faults = pool.not_made.iter().chain(&pool.not_handed_out);
                view.fault = faults.max_by_key(|fault| fault.at).cloned();
            }
            Some(view)
        });
        described.collect()
    }

    /// The members of the pool of an entry, the next to be handed out first; none when the catalogue
    /// has no such pool.
    #[must_use]
    pub fn pool_members(&self, template: &str) -> Option<Vec<MemberView>> {
        let in_force = self.shared.catalogues.current();
        let entry = in_force.catalogue.entry(template);
        let entry = entry.filter(|entry| has_pool(entry))?;
        let pools = self.shared.pools.by_entry.lock();
        let members = pools.get(&entry.name).map(|pool| &pool.members);
        let mut views: Vec<MemberView> = members
            .into_iter()
            .flatten()
            .map(|(id, known)| MemberView {
                id: id.clone(),
                since: known.since,
                ready: known.ready,
            })
            .collect();
        views.sort_by(|a, b| {
            let rank = |view: &MemberView| (view.ready.is_none(), view.ready, view.since);
            rank(a).cmp(&rank(b)).then_with(|| a.id.cmp(&b.id))
        });
        Some(views)
    }

    /// Ends a member, or every member of an entry's pool: others are made in their places. A whole
    /// pool begins anew: what its members began with goes too. Returns how many are ended; none
    /// when there is neither a pool nor a member of this name.
    #[must_use]
    pub fn remove_from_pool(&self, name: &str) -> Option<usize> {
        let in_force = self.shared.catalogues.current();
        let whole = in_force
            .catalogue
            .entry(name)
            .filter(|entry| has_pool(entry));
        let (ended, seed) = match whole {
            Some(entry) => self.shared.pools.empty(&entry.name),
            None => {
                let id = SandboxId::from_wire(name).ok()?;
                if !self.shared.pools.take_out(&id) {
                    return None;
                }
                (vec![id], None)
            }
        };
        let count = ended.len();
        self.shared.end_members(ended, KillReason::Operator);
        if let Some(seed) = seed {
            self.shared.drop_seed(seed);
        }
        self.shared.pools.changed.notify_one();
        Some(count)
    }

    /// Counts the pools, for whoever reads the gauges next. Of one that is there no longer nothing is
    /// left: no gauge can be taken back.
    pub(crate) fn count_pools(&self) {
        let pools = self.pools();
        let mut counted = self.shared.pools.counted.lock();
        let gone = counted.iter().filter(|&name| {
            let called = |pool: &PoolView| pool.template == *name;
            !pools.iter().any(called)
        });
        for name in gone {
            set_gauges(name, 0, 0);
        }
        for pool in &pools {
            set_gauges(&pool.template, pool.size, pool.ready);
        }
        *counted = pools.into_iter().map(|pool| pool.template).collect();
    }
}

#[expect(clippy::cast_precision_loss, reason = "a pool is small")]
fn set_gauges(template: &EntryName, size: usize, ready: usize) {
    let labels = [("template", template.to_string())];
    metrics::gauge!("shoal_pool_size", &labels).set(size as f64);
    metrics::gauge!("shoal_pool_ready", &labels).set(ready as f64);
}
