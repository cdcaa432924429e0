//! Warm snapshots: the first warm member of a pool is saved, and later members start from its memory,
//! so that the warm-up runs once.
//!
//! A warm snapshot survives the server. A server with another version of the daemon takes a new one,
//! because the old daemon runs in the saved memory.

use std::sync::Arc;
use std::time::Duration;

use shoal_core::auth::{SandboxPermit, Token};
use shoal_core::catalogue::{Entry, EntryName};
use shoal_core::detail::Chain;
use shoal_core::id::{SandboxId, SnapshotId};
use shoal_core::pool as stored;
use shoal_core::ports::sandboxes::SandboxError;
use shoal_core::sandbox::{SandboxRecord, SnapshotOrigin};
use shoal_core::snapshot::Contents;

use super::Pools;
use super::make::MemberError;
use super::members::PoolMembers;
use crate::access::INSTALLATION;
use crate::random;

/// How long the snapshot waits for the programs of the first member to become idle.
const IDLE_TIMEOUT: Duration = Duration::from_secs(10);

/// The snapshot that members of a pool start from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct WarmSnapshot {
    /// The digest of the member that was saved.
    digest: String,
    id: SnapshotId,
    /// The token that the daemon in its memory requires.
    guest_token: Option<Token>,
    /// Whether members can start from it. False while it is taken, after that failed, and after a member
    /// could not start from it.
    usable: bool,
}

impl WarmSnapshot {
    /// The id of a complete snapshot. The task that takes a snapshot deletes an incomplete one itself.
    pub(super) fn complete(self) -> Option<SnapshotId> {
        self.usable.then_some(self.id)
    }
}

impl PoolMembers {
    /// The snapshot that members with this digest start from.
    pub(super) fn warm_snapshot(&self, entry: &EntryName, digest: &str) -> Option<SnapshotOrigin> {
        let pools = self.by_entry.lock();
        let warm = pools.get(entry)?.warm.as_ref()?;
        (warm.usable && warm.digest == digest).then(|| SnapshotOrigin {
            id: warm.id,
            memory: true,
            guest_token: warm.guest_token.clone(),
        })
    }

    /// Reserves the snapshot of a pool for its first member. False when there was one, even if it
    /// failed, and when the pool no longer wants the member.
    fn begin_snapshot(
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
        let first = pool.warm.is_none() && pool.members.contains_key(&member.id);
        if first {
            pool.warm = Some(WarmSnapshot {
                digest: digest.to_owned(),
                id,
                guest_token: Some(guest_token),
                usable: false,
            });
        }
        first
    }

    /// Adds a snapshot that recovery has found.
    pub(super) fn recover_snapshot(&self, stored: stored::WarmSnapshot) {
        let stored::WarmSnapshot {
            entry,
            digest,
            id,
            guest_token,
            ..
        } = stored;
        let mut pools = self.by_entry.lock();
        pools.entry(entry).or_default().warm = Some(WarmSnapshot {
            digest,
            id,
            guest_token,
            usable: true,
        });
    }

    /// Lets members start from a snapshot that is complete. False when the pool no longer wants it.
    fn finish_snapshot(&self, entry: &EntryName, id: SnapshotId) -> bool {
        let mut pools = self.by_entry.lock();
        let warm = pools.get_mut(entry).and_then(|pool| pool.warm.as_mut());
        let warm = warm.filter(|warm| warm.id == id);
        warm.is_some_and(|warm| {
            warm.usable = true;
            true
        })
    }

    /// Notes a failed snapshot. If the pool no longer wants the member, the failure says nothing of
    /// others, and the next member is saved instead.
    fn snapshot_failed(&self, entry: &EntryName, member: &SandboxId, id: SnapshotId) {
        let mut pools = self.by_entry.lock();
        if let Some(pool) = pools.get_mut(entry)
            && !pool.members.contains_key(member)
        {
            pool.warm.take_if(|warm| warm.id == id);
        }
    }

    /// Lets no further member start from a snapshot that this member could not start from. False when
    /// the pool uses another one, and when it no longer wants the member, whose failure says nothing
    /// then.
    fn invalidate_snapshot(&self, entry: &EntryName, member: &SandboxId, id: SnapshotId) -> bool {
        let mut pools = self.by_entry.lock();
        let pool = pools.get_mut(entry);
        let pool = pool.filter(|pool| pool.members.contains_key(member));
        let warm = pool.and_then(|pool| pool.warm.as_mut());
        let warm = warm.filter(|warm| warm.usable && warm.id == id);
        warm.is_some_and(|warm| {
            warm.usable = false;
            true
        })
    }

    /// Removes the snapshot of a pool whose members have another digest now. Returns it if it has to be
    /// deleted.
    pub(super) fn take_outdated_snapshot(
        &self,
        entry: &EntryName,
        digest: &str,
    ) -> Option<SnapshotId> {
        let mut pools = self.by_entry.lock();
        let pool = pools.get_mut(entry)?;
        let outdated = pool.warm.as_ref().is_some_and(|w| w.digest != digest);
        pool.warm.take_if(|_| outdated)?.complete()
    }
}

impl Pools {
    /// Saves the first warm member of a pool, if its runtime can save memory. A member that cannot be
    /// saved stays a member.
    pub(super) async fn save_warm_snapshot(
        self: &Arc<Self>,
        entry: &Entry,
        digest: &str,
        record: &SandboxRecord,
    ) -> Result<(), MemberError> {
        let name = &entry.name;
        // Without a warm-up, starting from the image is cheaper than from a snapshot.
        let pays = entry.warmup_argv().is_some()
            && self.parts.planner.memory_runtime(&record.spec).is_some();
        if !pays {
            return Ok(());
        }
        let gone = || SandboxError::NotFound(record.id.clone());
        let permit = SandboxPermit::grant(&INSTALLATION, record).ok_or_else(gone)?;
        let id = SnapshotId::from_entropy(random::bytes().map_err(SandboxError::from)?);
        let token = self.parts.access.guest_token(record);
        let members = &self.parts.members;
        if !members.begin_snapshot(name, record, digest, id, token.clone()) {
            return Ok(());
        }
        self.wait_idle(record).await;
        let taken = self
            .parts
            .sandboxes
            .take_as(&permit, id, Some(Contents::Memory));
        match taken.await {
            Ok(_) if members.finish_snapshot(name, id) => {
                let stored = stored::WarmSnapshot {
                    entry: name.clone(),
                    digest: digest.to_owned(),
                    daemon: self.parts.drivers.capabilities().daemon.clone(),
                    id,
                    guest_token: Some(token),
                };
                if let Err(error) = self.parts.store.put_warm_snapshot(stored).await {
                    tracing::warn!(template = %name, error = %Chain(&error), "the warm snapshot of a pool is lost at the next start");
                }
            }
            Ok(_) => self.delete_warm_snapshot(id),
            Err(error) => {
                members.snapshot_failed(name, &record.id, id);
                tracing::warn!(template = %name, error = %Chain(&error), "a warm member cannot be saved: each is warmed up");
            }
        }
        Ok(())
    }

    /// Waits until the member has finished its work after it opened its port. Every member that starts
    /// from its memory would repeat that work.
    async fn wait_idle(&self, record: &SandboxRecord) {
        let driver = self.parts.drivers.of(record);
        let idle = match driver.checkpoints() {
            Ok(checkpointer) => checkpointer.wait_idle(&record.id, IDLE_TIMEOUT).await,
            Err(error) => Err(error),
        };
        match idle {
            Ok(true) => {}
            Ok(false) => {
                tracing::info!(sandbox.id = %record.id, "a member is saved while its programs are at work");
            }
            // The snapshot fails for the same reason, and reports it.
            Err(error) => {
                tracing::debug!(sandbox.id = %record.id, error = %Chain(&error), "a member is not waited for");
            }
        }
    }

    /// Invalidates the snapshot that a member could not start from. The next member starts as the first
    /// one did.
    pub(super) fn invalidate(&self, entry: &EntryName, member: &SandboxId, id: SnapshotId) {
        if self.parts.members.invalidate_snapshot(entry, member, id) {
            tracing::warn!(template = %entry, sandbox.id = %member, "the warm snapshot of a pool is unusable: each member is warmed up");
            self.delete_warm_snapshot(id);
        }
    }

    /// Deletes a snapshot in the background. The next start of the server deletes what remains.
    pub(super) fn delete_warm_snapshot(&self, id: SnapshotId) {
        let (store, drivers) = (self.parts.store.clone(), self.parts.drivers.clone());
        self.parts.work.spawn(async move {
            if let Err(error) = store.delete_warm_snapshot(id).await {
                tracing::warn!(snapshot.id = %id, error = %Chain(&error), "the record of a warm snapshot is not deleted");
            }
            if let Err(error) = drivers.remove_snapshot(id).await {
                tracing::error!(snapshot.id = %id, error = %Chain(&error), "a snapshot of a pool is not removed");
            }
        });
    }
}
