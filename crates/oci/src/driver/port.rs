//! The port, each call of which has a file of its own.

use std::time::Duration;

use shoal_core::BoxFuture;
use shoal_core::driver::{
    Capabilities, CreateOrder, DiskUse, Driver, DriverError, DriverEvent, ExportOrder, Found,
    ImportOrder, Imported, Owner, Source, StartReport,
};
use shoal_core::id::{SandboxId, SnapshotId, TeamId};
use shoal_core::limits::Granted;
use shoal_core::network::Egress;
use shoal_core::resources::Usage;
use shoal_core::snapshot::{Contents, Saved};
use shoal_node::blocking;

use super::{OciDriver, carry, create, destroy, failed, inventory, paused, quiet, resize, save};

impl Driver for OciDriver {
    fn capabilities(&self) -> &Capabilities {
        &self.shared.capabilities
    }

    fn create(&self, order: CreateOrder) -> BoxFuture<'_, Result<StartReport, DriverError>> {
        Box::pin(create::create(self.shared.clone(), order))
    }

    fn destroy(&self, id: &SandboxId) -> BoxFuture<'_, Result<(), DriverError>> {
        Box::pin(destroy::destroy(self.shared.clone(), id.clone()))
    }

    fn pause(
        &self,
        id: &SandboxId,
        contents: Contents,
    ) -> BoxFuture<'_, Result<Saved, DriverError>> {
        Box::pin(save::pause(self.shared.clone(), id.clone(), contents))
    }

    fn back_to_pause(&self, id: &SandboxId) -> BoxFuture<'_, Result<(), DriverError>> {
        Box::pin(paused::back_to_pause(self.shared.clone(), id.clone()))
    }

    fn prepare_resume(&self, id: &SandboxId) -> BoxFuture<'_, Result<(), DriverError>> {
        Box::pin(paused::prepare_resume(self.shared.clone(), id.clone()))
    }

    fn discard_pause(&self, id: &SandboxId) -> BoxFuture<'_, Result<(), DriverError>> {
        Box::pin(paused::discard_pause(self.shared.clone(), id.clone()))
    }

    fn snapshot(
        &self,
        id: &SandboxId,
        snapshot: SnapshotId,
        contents: Contents,
        source: Source,
    ) -> BoxFuture<'_, Result<Saved, DriverError>> {
        let (shared, id) = (self.shared.clone(), id.clone());
        Box::pin(save::snapshot(shared, id, snapshot, contents, source))
    }

    fn go_on(&self, id: &SandboxId) -> BoxFuture<'_, Result<(), DriverError>> {
        Box::pin(save::go_on(self.shared.clone(), id.clone()))
    }

    fn snapshots(&self) -> BoxFuture<'_, Result<Vec<SnapshotId>, DriverError>> {
        Box::pin(save::snapshots(self.shared.clone()))
    }

    fn remove_snapshot(&self, snapshot: SnapshotId) -> BoxFuture<'_, Result<(), DriverError>> {
        Box::pin(save::remove_snapshot(self.shared.clone(), snapshot))
    }

    fn export_snapshot(&self, order: ExportOrder) -> BoxFuture<'_, Result<u64, DriverError>> {
        Box::pin(carry::export(self.shared.clone(), order))
    }

    fn import_snapshot(&self, order: ImportOrder) -> BoxFuture<'_, Result<Imported, DriverError>> {
        Box::pin(carry::import(self.shared.clone(), order))
    }

    fn resize(&self, id: &SandboxId, limits: Granted) -> BoxFuture<'_, Result<(), DriverError>> {
        Box::pin(resize::resize(self.shared.clone(), id.clone(), limits))
    }

    fn set_egress(&self, id: &SandboxId, egress: Egress) -> BoxFuture<'_, Result<(), DriverError>> {
        let slot = self
            .shared
            .live
            .lock()
            .get(id)
            .map(|manifest| manifest.slot);
        let id = id.clone();
        Box::pin(async move {
            let slot = slot.ok_or(DriverError::NotFound(id))?;
            self.shared
                .network
                .set_egress(slot, &egress)
                .await
                .map_err(failed("set network rules"))
        })
    }

    fn set_owner(&self, id: &SandboxId, owner: Owner) -> BoxFuture<'_, Result<(), DriverError>> {
        Box::pin(resize::set_owner(self.shared.clone(), id.clone(), owner))
    }

    fn disk_use(&self, team: TeamId) -> BoxFuture<'_, Result<Option<DiskUse>, DriverError>> {
        Box::pin(resize::disk_use(self.shared.clone(), team))
    }

    fn hold(&self, id: &SandboxId, still: bool) -> BoxFuture<'_, Result<(), DriverError>> {
        let (shared, id) = (self.shared.clone(), id.clone());
        Box::pin(async move {
            let known = shared.live.lock().contains_key(&id);
            if !known {
                return Err(DriverError::NotFound(id));
            }
            let group = shared.group(&id);
            if still {
                let held = blocking(move || group.freeze()).await;
                held.map_err(failed("hold the sandbox still"))
            } else {
                // A file is written, nothing is waited for.
                group
                    .set_frozen(false)
                    .map_err(failed("let the sandbox go on"))
            }
        })
    }

    fn until_quiet(
        &self,
        id: &SandboxId,
        within: Duration,
    ) -> BoxFuture<'_, Result<bool, DriverError>> {
        Box::pin(quiet::until_quiet(self.shared.clone(), id.clone(), within))
    }

    fn usage(&self, id: &SandboxId) -> BoxFuture<'_, Result<Usage, DriverError>> {
        let (shared, id) = (self.shared.clone(), id.clone());
        Box::pin(async move {
            let known = shared.live.lock().contains_key(&id);
            if !known {
                return Err(DriverError::NotFound(id));
            }
            let read = move || {
                let usage = shared.group(&id).usage()?;
                Ok(Usage {
                    disk_bytes: shared.disk.usage(id.as_str())?,
                    ..usage
                })
            };
            blocking(read).await.map_err(failed("read counters"))
        })
    }

    fn inventory(&self) -> BoxFuture<'_, Result<Vec<Found>, DriverError>> {
        Box::pin(inventory::inventory(self.shared.clone()))
    }

    fn next_event(&self) -> BoxFuture<'_, Option<DriverEvent>> {
        Box::pin(async { self.shared.incoming.lock().await.recv().await })
    }
}
