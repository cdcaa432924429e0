//! Filling pools: every minute, and after every change.

use std::sync::Arc;
use std::time::Duration;

use shoal_core::catalogue::{Entry, EntryName, Origin};
use shoal_core::detail::Chain;
use shoal_core::id::SandboxId;
use shoal_core::pool::PoolBounds;
use shoal_core::ports::sandboxes::SandboxError;
use shoal_core::state::KillReason;
use tokio::sync::Semaphore;

use super::{MAX_CONCURRENT_STARTS, Pools};
use crate::random;
use crate::sandboxes::Command;

/// How often pools are reconciled when nothing has changed.
const EVERY: Duration = Duration::from_secs(60);

/// An entry with a pool.
pub(super) struct PooledEntry {
    pub(super) entry: Arc<Entry>,
    pub(super) bounds: PoolBounds,
    /// The digest of new members. None while the image is not on the node, or the base is not built.
    pub(super) digest: Option<String>,
}

impl Pools {
    /// Reconciles the pools with the catalogue. Never ends.
    pub(crate) async fn keep_filled(self: &Arc<Self>) {
        let mut catalogue = self.parts.catalogues.watch();
        let starts = Arc::new(Semaphore::new(MAX_CONCURRENT_STARTS));
        let mut last = None;
        loop {
            self.reconcile(&starts, &mut last).await;
            let now = self.parts.clock.now();
            let usual = now + EVERY;
            let retry = self.parts.members.next_retry(now);
            let next = retry.map_or(usual, |at| at.min(usual));
            tokio::select! {
                _ = catalogue.changed() => {}
                () = self.parts.members.changed.notified() => {}
                () = self.parts.clock.sleep_until(next) => {}
            }
        }
    }

    /// `last` is the pool that started a member last. It comes last now, so that a pool that never fills
    /// does not take every permit.
    async fn reconcile(self: &Arc<Self>, starts: &Arc<Semaphore>, last: &mut Option<EntryName>) {
        let mut pooled = self.pooled_entries().await;
        let place = pooled
            .iter()
            .position(|pool| Some(&pool.entry.name) == last.as_ref());
        pooled.rotate_left(place.map_or(0, |place| place + 1));
        let known = |name: &EntryName| pooled.iter().any(|pool| pool.entry.name == *name);
        let (removed, snapshots) = self.parts.members.retain(known);
        self.end_members(removed, KillReason::Requested);
        for snapshot in snapshots {
            self.delete_warm_snapshot(snapshot);
        }
        let scarce = !pooled.is_empty() && self.must_save_memory(&pooled).await;
        for pool in pooled {
            let name = &pool.entry.name;
            if let Some(digest) = &pool.digest
                && let Some(outdated) = self.parts.members.take_outdated_snapshot(name, digest)
            {
                self.delete_warm_snapshot(outdated);
            }
            self.parts.members.set_entry(&pool.entry);
            let (now, digest) = (self.parts.clock.now(), pool.digest.as_deref());
            let plan = self.parts.members.plan(name, &pool.bounds, digest, now);
            self.end_members(plan.end, KillReason::Requested);
            self.parts.members.sample(name, &pool.bounds, now);
            if self.parts.work.is_stopping() {
                return;
            }
            self.park_and_wake(&pool, plan.make, scarce);
            for _ in 0..plan.make {
                // The rest start after one of these has ended.
                let starting = MAX_CONCURRENT_STARTS - starts.available_permits();
                if starting >= self.parts.members.max_concurrent_starts() {
                    break;
                }
                let Ok(permit) = starts.clone().try_acquire_owned() else {
                    break;
                };
                let Ok(bytes) = random::bytes() else {
                    tracing::error!("the system has no randomness: no pool is filled");
                    return;
                };
                let id = SandboxId::from_entropy(bytes);
                self.parts.members.add_starting(name, id.clone(), now);
                *last = Some(name.clone());
                let (pools, entry) = (self.clone(), pool.entry.clone());
                self.parts.work.spawn_until_stop(async move {
                    pools.make_member(&entry, id).await;
                    drop(permit);
                    pools.parts.members.changed.notify_one();
                });
            }
        }
    }

    /// The entries that have a pool.
    pub(super) async fn pooled_entries(&self) -> Vec<PooledEntry> {
        let in_force = self.parts.catalogues.current();
        let mut pooled = Vec::new();
        for entry in in_force.catalogue.entries() {
            let Some(pool) = entry.pool.as_ref().filter(|_| !entry.is_dynamic()) else {
                continue;
            };
            let origin = match entry.origin() {
                // The start of the next member reports an image that cannot be read.
                Some(Origin::Image(name)) => {
                    let image = self.parts.images.find(&name).await.unwrap_or(None);
                    image.map(|image| image.digest)
                }
                Some(Origin::Template(base)) => {
                    let base = self.parts.resolver.base_of(entry, &base).ok();
                    base.map(|base| base.build.to_string())
                }
                None => None,
            };
            pooled.push(PooledEntry {
                bounds: PoolBounds::from(pool),
                digest: origin.map(|origin| entry.member_digest(&origin)),
                entry: entry.clone(),
            });
        }
        pooled
    }

    /// Ends sandboxes that were removed from their pools, in the background.
    pub(super) fn end_members(&self, members: Vec<SandboxId>, reason: KillReason) {
        for id in members {
            let sandboxes = self.parts.sandboxes.clone();
            self.parts.work.spawn(async move {
                let end = |reply| Command::Kill(reason, reply);
                match sandboxes.call(&id, end).await {
                    // It has ended, or the task that starts it will end it.
                    Ok(()) | Err(SandboxError::NotFound(_)) => {}
                    Err(error) => {
                        tracing::error!(sandbox.id = %id, error = %Chain(&error), "a member of a pool is not ended yet");
                    }
                }
            });
        }
    }
}
