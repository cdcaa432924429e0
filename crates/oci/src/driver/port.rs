//! The driver's traits. Each call has a file of its own.

use std::time::Duration;

use shoal_core::BoxFuture;
use shoal_core::driver::{
    AfterSnapshot, Capabilities, Checkpointer, DiskAccounts, DiskUse, Driver, DriverError,
    DriverEvent, EgressFilter, ExportRequest, Found, Freezer, ImportRequest, Imported, Owner,
    PausedNetwork, Resizer, SnapshotTransfer, StartReport, StartSpec,
};
use shoal_core::id::{SandboxId, SnapshotId, TeamId};
use shoal_core::limits::Granted;
use shoal_core::memory::MachineMemory;
use shoal_core::network::Egress;
use shoal_core::resources::Usage;
use shoal_core::snapshot::{Contents, Saved};
use shoal_node::{blocking, machine};

use super::{OciDriver, carry, create, destroy, failed, idle, inventory, paused, resize, save};

impl Driver for OciDriver {
    fn capabilities(&self) -> &Capabilities {
        &self.shared.capabilities
    }

    fn create(&self, spec: StartSpec) -> BoxFuture<'_, Result<StartReport, DriverError>> {
        Box::pin(create::create(self.shared.clone(), spec))
    }

    fn destroy(&self, id: &SandboxId) -> BoxFuture<'_, Result<(), DriverError>> {
        Box::pin(destroy::destroy(self.shared.clone(), id.clone()))
    }

    fn usage(&self, id: &SandboxId) -> BoxFuture<'_, Result<Usage, DriverError>> {
        let (shared, id) = (self.shared.clone(), id.clone());
        Box::pin(async move {
            let slot = shared.slot_of(&id)?;
            let read = move || {
                let usage = shared.group(&id).usage()?;
                let (received_bytes, sent_bytes) = shared.network.traffic(slot)?;
                Ok(Usage {
                    disk_bytes: shared.disk.usage(id.as_str())?,
                    received_bytes,
                    sent_bytes,
                    ..usage
                })
            };
            blocking(read).await.map_err(failed("read counters"))
        })
    }

    fn memory(&self) -> BoxFuture<'_, Result<Option<MachineMemory>, DriverError>> {
        Box::pin(async {
            let read = blocking(machine::memory_use).await;
            read.map_err(failed("read the machine's memory"))
        })
    }

    fn inventory(&self) -> BoxFuture<'_, Result<Vec<Found>, DriverError>> {
        Box::pin(inventory::inventory(self.shared.clone()))
    }

    fn next_event(&self) -> BoxFuture<'_, Option<DriverEvent>> {
        Box::pin(async { self.shared.incoming.lock().await.recv().await })
    }

    fn checkpointer(&self) -> Option<&dyn Checkpointer> {
        Some(self)
    }

    fn snapshot_transfer(&self) -> Option<&dyn SnapshotTransfer> {
        Some(self)
    }

    fn freezer(&self) -> Option<&dyn Freezer> {
        Some(self)
    }

    fn resizer(&self) -> Option<&dyn Resizer> {
        Some(self)
    }

    fn egress_filter(&self) -> Option<&dyn EgressFilter> {
        Some(self)
    }

    fn disk_accounts(&self) -> Option<&dyn DiskAccounts> {
        Some(self)
    }
}

impl Checkpointer for OciDriver {
    fn pause(
        &self,
        id: &SandboxId,
        contents: Contents,
    ) -> BoxFuture<'_, Result<Saved, DriverError>> {
        Box::pin(save::pause(self.shared.clone(), id.clone(), contents))
    }

    fn room(&self) -> BoxFuture<'_, Result<Option<u64>, DriverError>> {
        let shared = self.shared.clone();
        Box::pin(async move {
            let room = blocking(move || shared.disk.free()).await;
            room.map(Some).map_err(failed("read the free disk"))
        })
    }

    fn prepare_resume(
        &self,
        id: &SandboxId,
        network: PausedNetwork,
    ) -> BoxFuture<'_, Result<(), DriverError>> {
        let (shared, id) = (self.shared.clone(), id.clone());
        Box::pin(paused::prepare_resume(shared, id, network))
    }

    fn rollback_resume(&self, id: &SandboxId) -> BoxFuture<'_, Result<(), DriverError>> {
        Box::pin(paused::rollback_resume(self.shared.clone(), id.clone()))
    }

    fn delete_checkpoint(&self, id: &SandboxId) -> BoxFuture<'_, Result<(), DriverError>> {
        Box::pin(paused::delete_checkpoint(self.shared.clone(), id.clone()))
    }

    fn snapshot(
        &self,
        id: &SandboxId,
        snapshot: SnapshotId,
        contents: Contents,
        after: AfterSnapshot,
    ) -> BoxFuture<'_, Result<Saved, DriverError>> {
        let (shared, id) = (self.shared.clone(), id.clone());
        Box::pin(save::snapshot(shared, id, snapshot, contents, after))
    }

    fn thaw_source(&self, id: &SandboxId) -> BoxFuture<'_, Result<(), DriverError>> {
        Box::pin(save::thaw_source(self.shared.clone(), id.clone()))
    }

    fn wait_idle(
        &self,
        id: &SandboxId,
        timeout: Duration,
    ) -> BoxFuture<'_, Result<bool, DriverError>> {
        Box::pin(idle::wait_idle(self.shared.clone(), id.clone(), timeout))
    }

    fn snapshots(&self) -> BoxFuture<'_, Result<Vec<SnapshotId>, DriverError>> {
        Box::pin(save::snapshots(self.shared.clone()))
    }

    fn remove_snapshot(&self, snapshot: SnapshotId) -> BoxFuture<'_, Result<(), DriverError>> {
        Box::pin(save::remove_snapshot(self.shared.clone(), snapshot))
    }
}

impl SnapshotTransfer for OciDriver {
    fn export_snapshot(&self, request: ExportRequest) -> BoxFuture<'_, Result<u64, DriverError>> {
        Box::pin(carry::export(self.shared.clone(), request))
    }

    fn import_snapshot(
        &self,
        request: ImportRequest,
    ) -> BoxFuture<'_, Result<Imported, DriverError>> {
        Box::pin(carry::import(self.shared.clone(), request))
    }
}

impl Freezer for OciDriver {
    fn freeze(&self, id: &SandboxId) -> BoxFuture<'_, Result<(), DriverError>> {
        let (shared, id) = (self.shared.clone(), id.clone());
        Box::pin(async move {
            shared.must_live(&id)?;
            let group = shared.group(&id);
            let frozen = blocking(move || group.freeze()).await;
            frozen.map_err(failed("freeze the sandbox"))
        })
    }

    fn thaw(&self, id: &SandboxId) -> BoxFuture<'_, Result<(), DriverError>> {
        let (shared, id) = (self.shared.clone(), id.clone());
        Box::pin(async move {
            shared.must_live(&id)?;
            // Writes one control file and does not wait.
            let thawed = shared.group(&id).set_frozen(false);
            thawed.map_err(failed("thaw the sandbox"))
        })
    }
}

impl Resizer for OciDriver {
    fn resize(&self, id: &SandboxId, limits: Granted) -> BoxFuture<'_, Result<(), DriverError>> {
        Box::pin(resize::resize(self.shared.clone(), id.clone(), limits))
    }
}

impl EgressFilter for OciDriver {
    fn set_egress(&self, id: &SandboxId, egress: Egress) -> BoxFuture<'_, Result<(), DriverError>> {
        let slot = self.shared.slot_of(id);
        Box::pin(async move {
            self.shared
                .network
                .set_egress(slot?, &egress)
                .await
                .map_err(failed("set network rules"))
        })
    }
}

impl DiskAccounts for OciDriver {
    fn set_owner(&self, id: &SandboxId, owner: Owner) -> BoxFuture<'_, Result<(), DriverError>> {
        Box::pin(resize::set_owner(self.shared.clone(), id.clone(), owner))
    }

    fn disk_use(&self, team: TeamId) -> BoxFuture<'_, Result<Option<DiskUse>, DriverError>> {
        Box::pin(resize::disk_use(self.shared.clone(), team))
    }
}
