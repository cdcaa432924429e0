//! Recovery: taking over the sandboxes, snapshots and builds of the previous server.

use std::collections::HashSet;

use shoal_core::driver::DriverError;
use shoal_core::id::SnapshotId;
use shoal_core::sandbox::SandboxRecord;
use shoal_core::store::StoreError;

use crate::engine::Engine;
use crate::sandboxes::resolve;

/// Why recovery failed.
#[derive(Debug, thiserror::Error)]
pub enum RecoverError {
    /// The store cannot be read.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The driver cannot list what exists on the node.
    #[error(transparent)]
    Driver(#[from] DriverError),
}

impl Engine {
    /// Takes over from the previous server: running sandboxes keep running, transient states are
    /// resolved, and unknown sandboxes and snapshots are deleted. Call once, before serving. Returns how
    /// many sandboxes live on.
    ///
    /// # Errors
    /// See [`RecoverError`].
    pub async fn recover(&self) -> Result<usize, RecoverError> {
        let stored = self.shared.store.live_sandboxes().await?;
        let drivers = &self.shared.drivers;
        let mut found = drivers.inventory().await?;
        // From here on the drivers of snapshots are known.
        let snapshots = drivers.snapshots().await?.into_iter().collect();
        let digests = self.shared.pools.digests().await;
        let mut kept = 0;
        for versioned in stored {
            let record = versioned.value;
            let mut action = resolve(&record, drivers.take_found(&mut found, &record));
            if let Some(pool_member) = record.pool_member() {
                let pools = &self.shared.pools;
                action = pools.recover_member(&record, pool_member, action, &digests);
            }
            if action.keeps(&record) {
                kept += 1;
                self.settle_found(&record).await?;
                self.count_disk(&record).await;
            }
            self.shared
                .sandboxes
                .adopt(record, versioned.version, action);
        }
        for (id, driver) in drivers.unclaimed(found) {
            tracing::info!(sandbox.id = %id, "clearing a sandbox that nobody knows");
            driver.destroy(&id).await?;
        }
        // No other unsettled request has created a sandbox.
        self.shared.store.release_idempotency().await?;
        self.clear_snapshots(snapshots).await?;
        self.shared.builds.recover().await?;
        Ok(kept)
    }

    /// Counts the disk of a sandbox for its team, in case an earlier version created it uncounted.
    async fn count_disk(&self, record: &SandboxRecord) {
        let driver = self.shared.drivers.of(record);
        let Some(accounts) = driver.disk_accounts() else {
            return;
        };
        let owner = self.shared.access.owner(record.team);
        if let Err(error) = accounts.set_owner(&record.id, owner).await {
            tracing::debug!(sandbox.id = %record.id, %error, "the disk of a sandbox is not counted for its team");
        }
    }

    /// Settles the idempotency key of a sandbox, in case the previous server ended before it could: a
    /// client that retries gets this sandbox and no second one.
    async fn settle_found(&self, record: &SandboxRecord) -> Result<(), RecoverError> {
        if let Some(key) = record
            .idempotency
            .as_ref()
            .filter(|_| record.is_user_visible())
        {
            let store = &self.shared.store;
            store
                .settle_idempotency(record.team, key, Some(&record.id))
                .await?;
        }
        Ok(())
    }

    /// Deletes snapshot data without a record, and records without data.
    async fn clear_snapshots(&self, there: HashSet<SnapshotId>) -> Result<(), RecoverError> {
        let known = self.shared.snapshots.all();
        self.shared
            .build_records
            .drop_layers_without(|id| there.contains(&id))
            .await?;
        let of_builds = self.shared.build_records.snapshots();
        let of_pools = self.shared.pools.recover_warm_snapshots(&there).await?;
        for id in &there {
            let known = known.iter().any(|snapshot| snapshot.id == *id);
            if !known && !of_builds.contains(id) && !of_pools.contains(id) {
                tracing::info!(snapshot.id = %id, "clearing a snapshot that nobody knows");
                self.shared.drivers.remove_snapshot(*id).await?;
            }
        }
        for snapshot in known {
            if !there.contains(&snapshot.id) {
                tracing::error!(snapshot.id = %snapshot.id, "a snapshot has lost its data");
                self.shared.store.delete_snapshot(snapshot.id).await?;
                self.shared.snapshots.remove(snapshot.id);
            }
        }
        Ok(())
    }
}
