//! Members that are copies: the first one that is warm is saved, and those after it begin with its
//! memory, so that nothing is warmed up twice.
//!
//! What was saved outlives the server. One that comes with another daemon saves anew: in what was saved
//! runs the one that was there then.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use shoal_core::auth::{SandboxPermit, Token};
use shoal_core::catalogue::{Entry, EntryName};
use shoal_core::detail::Chain;
use shoal_core::id::{SandboxId, SnapshotId};
use shoal_core::pool as stored;
use shoal_core::sandbox::{SandboxRecord, SandboxSpec, SnapshotOrigin};
use shoal_core::snapshot::Contents;
use shoal_core::store::StoreError;

use super::{MemberError, Pools};
use crate::access::INSTALLATION;
use crate::engine::{Engine, SandboxError, Shared};
use crate::entropy;

/// How long the first member is waited for until its programs are quiet.
const QUIET: Duration = Duration::from_secs(10);

/// What members of a pool begin with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Seed {
    /// Of what the member was made that is saved.
    digest: String,
    /// As what it is saved.
    id: SnapshotId,
    /// What the daemon in its memory asks for.
    guest_token: Option<Token>,
    /// Whether it is there: not while that is under way, nor when it cannot be or is no good.
    there: bool,
}

impl Seed {
    /// What was saved. What is still under way is dropped when it has ended.
    pub(super) fn saved(self) -> Option<SnapshotId> {
        self.there.then_some(self.id)
    }
}

impl Pools {
    /// What members made from this begin with.
    fn seed(&self, entry: &EntryName, digest: &str) -> Option<SnapshotOrigin> {
        let pools = self.by_entry.lock();
        let seed = pools.get(entry)?.seed.as_ref()?;
        (seed.there && seed.digest == digest).then(|| SnapshotOrigin {
            id: seed.id,
            memory: true,
            guest_token: seed.guest_token.clone(),
        })
    }

    /// Whether a member made from this is to be saved: the first one is, whether it can be or not,
    /// unless nobody waits for it any more.
    fn begin_seed(
        &self,
        entry: &EntryName,
        member: &SandboxRecord,
        digest: &str,
        id: SnapshotId,
        guest_token: Token,
    ) -> bool {
        let mut pools = self.by_entry.lock();
        let Some(pool) = pools.get_mut(entry) else {
            return false;
        };
        let first = pool.seed.is_none() && pool.members.contains_key(&member.id);
        if first {
            pool.seed = Some(Seed {
                digest: digest.to_owned(),
                id,
                guest_token: Some(guest_token),
                there: false,
            });
        }
        first
    }

    /// Takes over what the last server has saved of a member.
    pub(crate) fn found_seed(&self, seed: stored::Seed) {
        let stored::Seed {
            entry,
            digest,
            id,
            guest_token,
            ..
        } = seed;
        let mut pools = self.by_entry.lock();
        pools.entry(entry).or_default().seed = Some(Seed {
            digest,
            id,
            guest_token,
            there: true,
        });
    }

    /// Lets members begin with what was saved. False when nobody wants it any more.
    fn keep_seed(&self, entry: &EntryName, saved: SnapshotId) -> bool {
        let mut pools = self.by_entry.lock();
        let seed = pools.get_mut(entry).and_then(|pool| pool.seed.as_mut());
        let seed = seed.filter(|seed| seed.id == saved);
        seed.is_some_and(|seed| {
            seed.there = true;
            true
        })
    }

    /// What was to be saved of a member is not there. When that one is not waited for any more it
    /// says nothing of others: the next one is saved.
    fn no_seed(&self, entry: &EntryName, member: &SandboxId, id: SnapshotId) {
        let mut pools = self.by_entry.lock();
        if let Some(pool) = pools.get_mut(entry)
            && !pool.members.contains_key(member)
        {
            pool.seed.take_if(|seed| seed.id == id);
        }
    }

    /// Lets no member begin any more with what this one could not be made from. False when none
    /// does, and when the member was ended because nobody wanted it: that says nothing of what it
    /// began with.
    fn spoil_seed(&self, entry: &EntryName, member: &SandboxId, spoilt: SnapshotId) -> bool {
        let mut pools = self.by_entry.lock();
        let pool = pools.get_mut(entry);
        let pool = pool.filter(|pool| pool.members.contains_key(member));
        let seed = pool.and_then(|pool| pool.seed.as_mut());
        let seed = seed.filter(|seed| seed.there && seed.id == spoilt);
        seed.is_some_and(|seed| {
            seed.there = false;
            true
        })
    }

    /// Forgets what was saved of members that were made from something else; what is to be removed.
    pub(super) fn outdated_seed(&self, entry: &EntryName, digest: &str) -> Option<SnapshotId> {
        let mut pools = self.by_entry.lock();
        let pool = pools.get_mut(entry)?;
        let outdated = pool.seed.as_ref().is_some_and(|s| s.digest != digest);
        pool.seed.take_if(|_| outdated)?.saved()
    }
}

impl Engine {
    /// Takes over what the last server has saved of members, of which `there` is still there.
    /// Returns what was.
    pub(crate) async fn find_seeds(
        &self,
        there: &HashSet<SnapshotId>,
    ) -> Result<HashSet<SnapshotId>, StoreError> {
        let mut found = HashSet::new();
        for seed in self.shared.store.seeds().await? {
            if there.contains(&seed.id) && seed.daemon == self.capabilities().daemon {
                found.insert(seed.id);
                self.shared.pools.found_seed(seed);
            } else {
                self.shared.store.delete_seed(seed.id).await?;
            }
        }
        Ok(found)
    }

    /// Lets a member begin with the memory of another, if there is one to begin with: says which.
    pub(super) fn plant(
        &self,
        entry: &Entry,
        digest: &str,
        spec: &mut SandboxSpec,
    ) -> Option<SnapshotId> {
        let origin = self.shared.pools.seed(&entry.name, digest)?;
        let id = origin.id;
        spec.snapshot = Some(origin);
        Some(id)
    }

    /// Saves a member that was warmed up, if it is the first and its runtime can. One that cannot be
    /// saved is a member all the same.
    pub(super) async fn save_seed(
        &self,
        entry: &Entry,
        digest: &str,
        record: &SandboxRecord,
    ) -> Result<(), MemberError> {
        let (shared, name) = (&self.shared, &entry.name);
        // Without anything to warm up a start is cheaper than what was saved.
        let pays = entry.warmup_argv().is_some() && self.memory_runtime(&record.spec).is_some();
        if !pays {
            return Ok(());
        }
        let gone = || SandboxError::NotFound(record.id.clone());
        let permit = SandboxPermit::grant(&INSTALLATION, record).ok_or_else(gone)?;
        let id = SnapshotId::from_entropy(entropy::bytes().map_err(SandboxError::from)?);
        let guest_token = shared.access.guest_token(record);
        let kept = guest_token.clone();
        if !shared.pools.begin_seed(name, record, digest, id, kept) {
            return Ok(());
        }
        self.until_quiet(record).await;
        match self
            .shared
            .sandboxes
            .take_as(&permit, id, Some(Contents::Memory))
            .await
        {
            Ok(_) if shared.pools.keep_seed(name, id) => {
                let seed = stored::Seed {
                    entry: name.clone(),
                    digest: digest.to_owned(),
                    daemon: self.capabilities().daemon.clone(),
                    id,
                    guest_token: Some(guest_token),
                };
                if let Err(error) = shared.store.put_seed(seed).await {
                    tracing::warn!(template = %name, error = %Chain(&error), "what was saved of a member is forgotten at the next start");
                }
            }
            Ok(_) => shared.drop_seed(id),
            Err(error) => {
                shared.pools.no_seed(name, &record.id, id);
                tracing::warn!(template = %name, error = %Chain(&error), "a warm member cannot be saved: each is warmed up");
            }
        }
        Ok(())
    }

    /// Waits until a member that is ready has done what it does behind the opening of its port: each one
    /// that begins with its memory would do that again.
    async fn until_quiet(&self, record: &SandboxRecord) {
        match self.shared.driver.until_quiet(&record.id, QUIET).await {
            Ok(true) => {}
            Ok(false) => {
                tracing::info!(sandbox.id = %record.id, "a member is saved while its programs are at work");
            }
            // Whoever saves it finds the same.
            Err(error) => {
                tracing::debug!(sandbox.id = %record.id, error = %Chain(&error), "a member is not waited for");
            }
        }
    }

    /// A member that began with this could not be made: the next one begins as the first did,
    /// unless the member was ended because nobody wanted it.
    pub(super) fn spoil(&self, entry: &EntryName, member: &SandboxId, seed: SnapshotId) {
        if self.shared.pools.spoil_seed(entry, member, seed) {
            tracing::warn!(template = %entry, sandbox.id = %member, "what was saved of a member is no good: each is warmed up");
            self.shared.drop_seed(seed);
        }
    }
}

impl Shared {
    /// Removes what was saved, without waiting for it. What stays is cleared by the next start.
    pub(super) fn drop_seed(self: &Arc<Self>, seed: SnapshotId) {
        let shared = self.clone();
        self.work.spawn(async move {
            if let Err(error) = shared.store.delete_seed(seed).await {
                tracing::warn!(snapshot.id = %seed, error = %Chain(&error), "a pool has forgotten what the store has not");
            }
            if let Err(error) = shared.driver.remove_snapshot(seed).await {
                tracing::error!(snapshot.id = %seed, error = %Chain(&error), "a snapshot of a pool is not removed");
            }
        });
    }
}
