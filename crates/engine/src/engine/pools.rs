//! Pools, as callers of the engine see them.

use super::Engine;
use crate::pool::{MemberView, PoolSample, PoolView};

impl Engine {
    /// The pools of the catalogue, in its order.
    #[must_use]
    pub fn pools(&self) -> Vec<PoolView> {
        self.shared.pools.list()
    }

    /// The members of an entry's pool, the next to be claimed first; none when the catalogue has no such
    /// pool.
    #[must_use]
    pub fn pool_members(&self, template: &str) -> Option<Vec<MemberView>> {
        self.shared.pools.members(template)
    }

    /// The last hours of an entry's pool, and its present state, oldest first; none when the catalogue has no such
    /// pool.
    #[must_use]
    pub fn pool_history(&self, template: &str) -> Option<Vec<PoolSample>> {
        self.shared.pools.history(template)
    }

    /// Ends a member, or every member of an entry's pool together with its warm snapshot. New members
    /// replace them. Returns how many are ended; none when no pool and no member has this name.
    #[must_use]
    pub fn remove_from_pool(&self, name: &str) -> Option<usize> {
        self.shared.pools.remove(name)
    }
}
