//! Pools are kept full: by the minute, and whenever something happens to one.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use shoal_core::catalogue::{Entry, EntryName, Origin};
use shoal_core::detail::Chain;
use shoal_core::id::SandboxId;
use shoal_core::pool::Bounds;
use shoal_core::state::KillReason;
use tokio::sync::Semaphore;

use super::MAKERS;
use crate::engine::{Engine, Shared};
use crate::entropy;
use crate::sandboxes::Order;

/// How often pools are looked at when nothing has happened.
const EVERY: Duration = Duration::from_secs(60);

/// An entry with a pool, and what its members are made from now.
struct Pooled {
    entry: Arc<Entry>,
    bounds: Bounds,
    /// Not known while the image is not here, or the template not built.
    digest: Option<String>,
}

impl Engine {
    /// Keeps the pools as they are to be. Never ends.
    pub(crate) async fn keep_pools(&self) {
        let shared = &self.shared;
        let mut catalogue = self.watch_catalogue();
        let makers = Arc::new(Semaphore::new(MAKERS));
        let mut last = None;
        loop {
            self.look_after_pools(&makers, &mut last).await;
            let now = shared.clock.now();
            let usual = now + EVERY;
            let next = shared.pools.next_try(now).map_or(usual, |at| at.min(usual));
            tokio::select! {
                _ = catalogue.changed() => {}
                () = shared.pools.changed.notified() => {}
                () = shared.clock.sleep_until(next) => {}
            }
        }
    }

    /// `last` is the pool that got a member last: it is looked after last, so that a pool that is never
    /// full takes no other's turns.
    async fn look_after_pools(&self, makers: &Arc<Semaphore>, last: &mut Option<EntryName>) {
        let shared = &self.shared;
        let mut pooled = shared.pooled().await;
        let place = pooled
            .iter()
            .position(|pool| Some(&pool.entry.name) == last.as_ref());
        pooled.rotate_left(place.map_or(0, |place| place + 1));
        let known = |name: &EntryName| pooled.iter().any(|pool| pool.entry.name == *name);
        let (left, seeds) = shared.pools.forget_but(known);
        shared.end_members(left, KillReason::Requested);
        for seed in seeds {
            shared.drop_seed(seed);
        }
        for Pooled {
            entry,
            bounds,
            digest,
        } in pooled
        {
            if let Some(digest) = &digest
                && let Some(seed) = shared.pools.outdated_seed(&entry.name, digest)
            {
                shared.drop_seed(seed);
            }
            shared.pools.follow(&entry);
            let now = shared.clock.now();
            let plan = shared
                .pools
                .plan(&entry.name, &bounds, digest.as_deref(), now);
            shared.end_members(plan.end, KillReason::Requested);
            if shared.work.is_stopping() {
                return;
            }
            for _ in 0..plan.make {
                // The others are made when one of these has ended.
                if MAKERS - makers.available_permits() >= shared.pools.makers() {
                    break;
                }
                let Ok(turn) = makers.clone().try_acquire_owned() else {
                    break;
                };
                let Ok(bytes) = entropy::bytes() else {
                    tracing::error!("the system has no randomness: no pool is filled");
                    return;
                };
                let id = SandboxId::from_entropy(bytes);
                shared.pools.begin(&entry.name, id.clone(), now);
                *last = Some(entry.name.clone());
                let (engine, entry) = (self.clone(), entry.clone());
                shared.work.spawn_until_stop(async move {
                    engine.make_member(&entry, id).await;
                    drop(turn);
                    engine.shared.pools.changed.notify_one();
                });
            }
        }
    }
}

impl Shared {
    /// The entries that have a pool.
    async fn pooled(&self) -> Vec<Pooled> {
        let in_force = self.catalogues.current();
        let mut pooled = Vec::new();
        for entry in in_force.catalogue.entries() {
            let Some(pool) = entry.pool.as_ref().filter(|_| !entry.is_dynamic()) else {
                continue;
            };
            let origin = match entry.origin() {
                // One that cannot be read is told of by whoever makes the next member.
                Some(Origin::Image(name)) => {
                    let image = self.images.find(&name).await.unwrap_or(None);
                    image.map(|image| image.digest)
                }
                Some(Origin::Template(base)) => {
                    let base = self.base_of(entry, &base).ok();
                    base.map(|base| base.build.to_string())
                }
                None => None,
            };
            pooled.push(Pooled {
                bounds: Bounds::from(pool),
                digest: origin.map(|origin| entry.member_digest(&origin)),
                entry: entry.clone(),
            });
        }
        pooled
    }

    /// What the members of each pool are made from now, as far as that is known.
    pub(crate) async fn pool_digests(&self) -> BTreeMap<EntryName, String> {
        let pooled = self.pooled().await.into_iter();
        pooled
            .filter_map(|pool| Some((pool.entry.name.clone(), pool.digest?)))
            .collect()
    }

    /// Ends sandboxes that have been taken out of their pools, without waiting for it.
    pub(crate) fn end_members(self: &Arc<Self>, members: Vec<SandboxId>, reason: KillReason) {
        for id in members {
            let shared = self.clone();
            self.work.spawn(async move {
                let end = |reply| Order::Kill(reason, reply);
                match shared.sandboxes.order(&id, end).await {
                    // Gone, or not there yet: then whoever makes it ends it.
                    Ok(()) | Err(crate::engine::SandboxError::NotFound(_)) => {}
                    Err(error) => {
                        tracing::error!(sandbox.id = %id, error = %Chain(&error), "a member of a pool is not ended yet");
                    }
                }
            });
        }
    }
}
