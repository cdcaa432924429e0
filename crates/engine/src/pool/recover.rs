//! Recovery of pools after a restart.

use std::collections::{BTreeMap, HashSet};

use shoal_core::catalogue::EntryName;
use shoal_core::id::SnapshotId;
use shoal_core::pool::{MemberPlace, PoolMember, PoolPhase};
use shoal_core::sandbox::SandboxRecord;
use shoal_core::state::{Input, KillReason};
use shoal_core::store::StoreError;

use super::Pools;
use crate::sandboxes::RecoveryAction;

impl Pools {
    /// The digest of new members of each pool, where it is known.
    pub(crate) async fn digests(&self) -> BTreeMap<EntryName, String> {
        let pooled = self.pooled_entries().await.into_iter();
        pooled
            .filter_map(|pool| Some((pool.entry.name.clone(), pool.digest?)))
            .collect()
    }

    /// Decides about a member that recovery has found. A ready member whose entry has not changed stays
    /// in its pool. A member that was starting or being claimed is ended: no client knows it.
    pub(crate) fn recover_member(
        &self,
        record: &SandboxRecord,
        pool_member: &PoolMember,
        action: RecoveryAction,
        digests: &BTreeMap<EntryName, String>,
    ) -> RecoveryAction {
        if !record.state.is_live() {
            return action;
        }
        let PoolMember {
            entry,
            digest,
            phase,
        } = pool_member;
        match (phase, &action) {
            (PoolPhase::Ready(since), RecoveryAction::Keep)
                if digests.get(entry) == Some(digest) =>
            {
                let place = match record.state.is_parked() {
                    true => MemberPlace::Parked,
                    false => MemberPlace::Hot,
                };
                self.parts
                    .members
                    .add_recovered(entry, record.id.clone(), digest, *since, place);
                action
            }
            (_, RecoveryAction::End(_)) => action,
            _ => RecoveryAction::End(Input::Kill(KillReason::Orphaned)),
        }
    }

    /// Recovers the warm snapshots among `existing`, unless they contain another version of the daemon.
    /// Returns those that pools keep.
    pub(crate) async fn recover_warm_snapshots(
        &self,
        existing: &HashSet<SnapshotId>,
    ) -> Result<HashSet<SnapshotId>, StoreError> {
        let daemon = &self.parts.drivers.capabilities().daemon;
        let mut kept = HashSet::new();
        for warm in self.parts.store.warm_snapshots().await? {
            if existing.contains(&warm.id) && warm.daemon == *daemon {
                kept.insert(warm.id);
                self.parts.members.recover_snapshot(warm);
            } else {
                self.parts.store.delete_warm_snapshot(warm.id).await?;
            }
        }
        Ok(kept)
    }
}
