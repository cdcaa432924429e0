//! Members that are copies: the first one that is warm is saved, and those after it begin with its
//! memory, so that nothing is warmed up twice.
//!
//! What was saved is known in memory only. A start clears the data, as that of every snapshot that
//! nobody knows, and the first member that is then made is saved again.

use std::sync::Arc;

use shoal_core::auth::SandboxPermit;
use shoal_core::catalogue::{Entry, EntryName};
use shoal_core::id::{SandboxId, SnapshotId};
use shoal_core::sandbox::{SandboxRecord, SandboxSpec, SnapshotOrigin};
use shoal_core::snapshot::Contents;

use super::warm::nobody;
use super::{MemberError, Pools};
use crate::engine::{Engine, Shared};
use crate::entropy;

/// What members of a pool begin with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Seed {
    /// Of what the member was made that was saved.
    pub(super) digest: String,
    /// What was saved; none while that is under way, and when it cannot be.
    pub(super) saved: Option<SnapshotId>,
}

impl Pools {
    /// What members made from this begin with.
    fn seed(&self, entry: &EntryName, digest: &str) -> Option<SnapshotId> {
        let pools = self.by_entry.lock();
        let seed = pools.get(entry)?.seed.as_ref()?;
        seed.saved.filter(|_| seed.digest == digest)
    }

    /// Whether a member made from this is to be saved: the first one is, whether it can be or not.
    fn begin_seed(&self, entry: &EntryName, digest: &str) -> bool {
        let mut pools = self.by_entry.lock();
        let Some(pool) = pools.get_mut(entry) else {
            return false;
        };
        let first = pool.seed.is_none();
        if first {
            pool.seed = Some(Seed {
                digest: digest.to_owned(),
                saved: None,
            });
        }
        first
    }

    /// Lets members begin with what was saved. False when nobody wants it any more.
    fn keep_seed(&self, entry: &EntryName, digest: &str, saved: SnapshotId) -> bool {
        let mut pools = self.by_entry.lock();
        let seed = pools.get_mut(entry).and_then(|pool| pool.seed.as_mut());
        let seed = seed.filter(|seed| seed.digest == digest && seed.saved.is_none());
        seed.is_some_and(|seed| {
            seed.saved = Some(saved);
            true
        })
    }

    /// Lets no member begin with this any more. False when none does.
    fn spoil_seed(&self, entry: &EntryName, spoilt: SnapshotId) -> bool {
        let mut pools = self.by_entry.lock();
        let seed = pools.get_mut(entry).and_then(|pool| pool.seed.as_mut());
        let seed = seed.filter(|seed| seed.saved == Some(spoilt));
        seed.is_some_and(|seed| {
            seed.saved = None;
            true
        })
    }

    /// Forgets what was saved of members that were made from something else; what is to be removed.
    pub(super) fn outdated_seed(&self, entry: &EntryName, digest: &str) -> Option<SnapshotId> {
        let mut pools = self.by_entry.lock();
        let pool = pools.get_mut(entry)?;
        let outdated = pool.seed.as_ref().is_some_and(|s| s.digest != digest);
        pool.seed.take_if(|_| outdated)?.saved
    }
}

impl Engine {
    /// Lets a member begin with the memory of another, if there is one to begin with.
    pub(super) fn plant(&self, entry: &Entry, digest: &str, spec: &mut SandboxSpec) {
        if let Some(id) = self.shared.pools.seed(&entry.name, digest) {
            spec.snapshot = Some(SnapshotOrigin {
                id,
                memory: true,
                // A member asks for no token.
                guest_token: None,
            });
        }
    }

    /// Saves a member that is warm, if it is the first and its runtime can. One that cannot be saved
    /// is a member all the same.
    pub(super) async fn save_seed(
        &self,
        entry: &Entry,
        digest: &str,
        record: &SandboxRecord,
    ) -> Result<(), MemberError> {
        let (shared, name) = (&self.shared, &entry.name);
        // Without anything to warm up a start is cheaper than what was saved.
        let pays = entry.warmup_argv().is_some() && self.memory_runtime(&record.spec).is_some();
        if !pays || record.spec.snapshot.is_some() || !shared.pools.begin_seed(name, digest) {
            return Ok(());
        }
        let permit = SandboxPermit::grant(&nobody()?, record).ok_or(MemberError::Unwanted)?;
        let Ok(bytes) = entropy::bytes() else {
            return Ok(());
        };
        let id = SnapshotId::from_entropy(bytes);
        match self.take_as(&permit, id, Some(Contents::Memory)).await {
            Ok(_) if shared.pools.keep_seed(name, digest, id) => {}
            Ok(_) => shared.drop_seed(id),
            Err(error) => {
                tracing::warn!(template = %name, %error, "a warm member cannot be saved: each is warmed up");
            }
        }
        Ok(())
    }

    /// A member that began with this could not be made: the next one begins as the first did.
    pub(super) fn spoil(&self, entry: &EntryName, member: &SandboxId, seed: SnapshotId) {
        if self.shared.pools.spoil_seed(entry, seed) {
            tracing::warn!(template = %entry, sandbox.id = %member, "what was saved of a member is no good: each is warmed up");
            self.shared.drop_seed(seed);
        }
    }
}

impl Shared {
    /// Removes what was saved, without waiting for it. What stays is cleared by the next start.
    pub(super) fn drop_seed(self: &Arc<Self>, seed: SnapshotId) {
        let shared = self.clone();
        tokio::spawn(async move {
            if let Err(error) = shared.driver.remove_snapshot(seed).await {
                tracing::error!(snapshot.id = %seed, %error, "a snapshot of a pool is not removed");
            }
        });
    }
}
