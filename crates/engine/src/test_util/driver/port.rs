//! The traits of the fake driver.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::Ordering;
use std::time::Duration;

use shoal_core::BoxFuture;
use shoal_core::detail::HostDetail;
use shoal_core::driver::{
    AfterSnapshot, Capabilities, Checkpointer, DiskAccounts, DiskUse, Driver, DriverError,
    DriverEvent, EgressFilter, ExportRequest, Found, FoundPaused, Freezer, ImportRequest, Imported,
    Isolation, Owner, PausedNetwork, Phases, Resizer, SnapshotTransfer, Start, StartKind,
    StartReport, StartSpec,
};
use shoal_core::id::{SandboxId, SnapshotId, TeamId};
use shoal_core::limits::Granted;
use shoal_core::memory::MachineMemory;
use shoal_core::network::Egress;
use shoal_core::resources::{Mib, Usage};
use shoal_core::snapshot::{Contents, Saved};
use shoal_core::template::RuntimeName;

use super::FakeDriver;

impl Driver for FakeDriver {
    fn capabilities(&self) -> &Capabilities {
        &self.state.capabilities
    }

    fn create(&self, spec: StartSpec) -> BoxFuture<'_, Result<StartReport, DriverError>> {
        Box::pin(async move {
            self.state.starts.pass().await;
            self.may_panic();
            let runtimes = &self.state.capabilities.runtimes;
            let usual: &RuntimeName = &runtimes[0].name;
            let known = spec.runtime.clone().unwrap_or_else(|| usual.clone());
            if runtimes.iter().all(|info| info.name != known) {
                return Err(DriverError::RuntimeNotFound {
                    asked: known,
                    available: usual.to_string(),
                });
            }
            let restored = match &spec.start {
                Start::Image(_) => false,
                Start::Snapshot { memory: true, .. } if self.state.refuses.lock().memory => {
                    return Err(DriverError::Unusable(
                        "another build has saved it".to_owned(),
                    ));
                }
                Start::Snapshot { id, memory } => *memory && self.keeps_memory(*id),
                Start::Paused { memory, .. } => *memory && self.has_paused_memory(&spec.id),
            };
            let origin = if restored {
                StartKind::Restored
            } else {
                StartKind::Cold
            };
            let keeps_connections = spec.keep_connections;
            match spec.start {
                Start::Paused { .. } => self.start_again(spec)?,
                _ => self.start_new(spec)?,
            }
            Ok(StartReport {
                runtime: known,
                isolation: Isolation::None,
                origin,
                phases: Phases::default(),
                address: IpAddr::V4(Ipv4Addr::LOCALHOST),
                envd_version: String::new(),
                keeps_connections,
            })
        })
    }

    fn destroy(&self, id: &SandboxId) -> BoxFuture<'_, Result<(), DriverError>> {
        let refused = self.refused(|refuses| refuses.destroy, "clear");
        if refused.is_ok() {
            self.state.sandboxes.lock().remove(id);
        }
        Box::pin(async move { refused })
    }

    fn usage(&self, id: &SandboxId) -> BoxFuture<'_, Result<Usage, DriverError>> {
        self.state.reads.fetch_add(1, Ordering::Relaxed);
        let usage = self.of_live(id, |sandbox| sandbox.usage);
        Box::pin(async move { usage })
    }

    fn memory(&self) -> BoxFuture<'_, Result<Option<MachineMemory>, DriverError>> {
        self.state.memory_reads.fetch_add(1, Ordering::Relaxed);
        let sandboxes = self.state.sandboxes.lock();
        let alive = sandboxes.values().filter(|sandbox| sandbox.alive).count();
        let alive = u32::try_from(alive).unwrap_or(u32::MAX);
        let memory = self.state.memory.lock().map(|(total, each)| MachineMemory {
            total,
            available: Mib(total.0.saturating_sub(alive.saturating_mul(each.0))),
            stalled: None,
        });
        Box::pin(async move { Ok(memory) })
    }

    fn inventory(&self) -> BoxFuture<'_, Result<Vec<Found>, DriverError>> {
        let sandboxes = self.state.sandboxes.lock();
        let found = sandboxes.values().map(|sandbox| Found {
            id: sandbox.spec.id.clone(),
            execution: sandbox.spec.execution,
            alive: sandbox.alive,
            paused: sandbox.paused.clone(),
        });
        let found = found.collect();
        Box::pin(async move { Ok(found) })
    }

    fn next_event(&self) -> BoxFuture<'_, Option<DriverEvent>> {
        Box::pin(async {
            let mut incoming = self.state.incoming.lock().await;
            tokio::select! {
                event = incoming.recv() => event,
                () = self.state.ended.notified() => None,
            }
        })
    }

    fn checkpointer(&self) -> Option<&dyn Checkpointer> {
        self.has_capabilities().then_some(self)
    }

    fn snapshot_transfer(&self) -> Option<&dyn SnapshotTransfer> {
        self.has_capabilities().then_some(self)
    }

    fn freezer(&self) -> Option<&dyn Freezer> {
        self.has_capabilities().then_some(self)
    }

    fn resizer(&self) -> Option<&dyn Resizer> {
        self.has_capabilities().then_some(self)
    }

    fn egress_filter(&self) -> Option<&dyn EgressFilter> {
        self.has_capabilities().then_some(self)
    }

    fn disk_accounts(&self) -> Option<&dyn DiskAccounts> {
        self.has_capabilities().then_some(self)
    }
}

impl Checkpointer for FakeDriver {
    fn pause(
        &self,
        id: &SandboxId,
        contents: Contents,
    ) -> BoxFuture<'_, Result<Saved, DriverError>> {
        let id = id.clone();
        Box::pin(async move {
            self.state.saves.pass().await;
            self.may_panic();
            self.refused(|refuses| refuses.save, "save the memory")?;
            let mut sandboxes = self.state.sandboxes.lock();
            let sandbox = sandboxes.get_mut(&id);
            let sandbox = sandbox.ok_or_else(|| DriverError::NotFound(id.clone()))?;
            if !sandbox.alive && sandbox.paused.is_none() {
                return Err(DriverError::NotFound(id));
            }
            sandbox.alive = false;
            let execution = sandbox.spec.execution;
            let paused = sandbox.paused.get_or_insert_with(|| FoundPaused {
                execution,
                saved: self.saved(contents),
            });
            Ok(paused.saved.clone())
        })
    }

    fn rollback_resume(&self, id: &SandboxId) -> BoxFuture<'_, Result<(), DriverError>> {
        let id = id.clone();
        Box::pin(async move {
            let mut sandboxes = self.state.sandboxes.lock();
            let sandbox = sandboxes.get_mut(&id);
            let sandbox = sandbox.filter(|sandbox| sandbox.paused.is_some());
            sandbox.ok_or(DriverError::NotFound(id))?.alive = false;
            Ok(())
        })
    }

    fn room(&self) -> BoxFuture<'_, Result<Option<u64>, DriverError>> {
        let room = *self.state.room.lock();
        Box::pin(async move { Ok(room) })
    }

    fn prepare_resume(
        &self,
        id: &SandboxId,
        network: PausedNetwork,
    ) -> BoxFuture<'_, Result<(), DriverError>> {
        if let Some(sandbox) = self.state.sandboxes.lock().get_mut(id) {
            sandbox.network = Some(network);
        }
        Box::pin(async { Ok(()) })
    }

    fn delete_checkpoint(&self, id: &SandboxId) -> BoxFuture<'_, Result<(), DriverError>> {
        if let Some(sandbox) = self.state.sandboxes.lock().get_mut(id) {
            sandbox.paused = None;
        }
        Box::pin(async { Ok(()) })
    }

    fn snapshot(
        &self,
        id: &SandboxId,
        snapshot: SnapshotId,
        contents: Contents,
        after: AfterSnapshot,
    ) -> BoxFuture<'_, Result<Saved, DriverError>> {
        let id = id.clone();
        Box::pin(async move {
            self.of_live(&id, |sandbox| sandbox.frozen = true)?;
            self.state.saves.pass().await;
            self.may_panic();
            let refused = self.refused(|refuses| refuses.save, "save the memory");
            let frozen = refused.is_ok() && after == AfterSnapshot::KeepFrozen;
            self.of_live(&id, |sandbox| sandbox.frozen = frozen)?;
            refused?;
            self.state.snapshots.lock().insert(snapshot, contents);
            Ok(self.saved(contents))
        })
    }

    fn thaw_source(&self, id: &SandboxId) -> BoxFuture<'_, Result<(), DriverError>> {
        let thawed = self.of_live(id, |sandbox| sandbox.frozen = false);
        Box::pin(async move { thawed })
    }

    fn wait_idle(&self, id: &SandboxId, _: Duration) -> BoxFuture<'_, Result<bool, DriverError>> {
        let id = id.clone();
        Box::pin(async move {
            self.state.idles.pass().await;
            self.of_live(&id, |_| true)
        })
    }

    fn snapshots(&self) -> BoxFuture<'_, Result<Vec<SnapshotId>, DriverError>> {
        let kept = self.kept();
        Box::pin(async move { Ok(kept) })
    }

    fn remove_snapshot(&self, snapshot: SnapshotId) -> BoxFuture<'_, Result<(), DriverError>> {
        self.state.snapshots.lock().remove(&snapshot);
        Box::pin(async { Ok(()) })
    }
}

impl SnapshotTransfer for FakeDriver {
    fn export_snapshot(&self, request: ExportRequest) -> BoxFuture<'_, Result<u64, DriverError>> {
        let kept = self.state.snapshots.lock().contains_key(&request.snapshot);
        Box::pin(async move {
            if !kept {
                return Err(DriverError::SnapshotNotFound(request.snapshot));
            }
            let bytes = request.note.len() as u64;
            let sealed = format!("{}\n{}", request.key.id(), request.note);
            match std::fs::write(request.target, sealed) {
                Ok(()) => Ok(bytes),
                Err(error) => Err(DriverError::Step {
                    step: "export",
                    detail: HostDetail::new(error),
                }),
            }
        })
    }

    fn import_snapshot(
        &self,
        request: ImportRequest,
    ) -> BoxFuture<'_, Result<Imported, DriverError>> {
        Box::pin(async move {
            let text = std::fs::read_to_string(request.source)
                .map_err(|error| DriverError::Unusable(error.to_string()))?;
            let (key, note) = text.split_once('\n').unwrap_or_default();
            if key != request.key.id() && !request.trust {
                return Err(DriverError::Untrusted);
            }
            let snapshots = &mut self.state.snapshots.lock();
            snapshots.insert(request.snapshot, Contents::Memory);
            Ok(Imported {
                saved: self.saved(Contents::Memory),
                note: note.to_owned(),
            })
        })
    }
}

impl Freezer for FakeDriver {
    fn freeze(&self, id: &SandboxId) -> BoxFuture<'_, Result<(), DriverError>> {
        let frozen = self.of_live(id, |sandbox| {
            sandbox.frozen = true;
            sandbox.freezes += 1;
        });
        Box::pin(async move { frozen })
    }

    fn thaw(&self, id: &SandboxId) -> BoxFuture<'_, Result<(), DriverError>> {
        let thawed = self.of_live(id, |sandbox| sandbox.frozen = false);
        Box::pin(async move { thawed })
    }
}

impl Resizer for FakeDriver {
    fn resize(&self, id: &SandboxId, limits: Granted) -> BoxFuture<'_, Result<(), DriverError>> {
        let id = id.clone();
        Box::pin(async move {
            self.state.resizes.pass().await;
            if self.state.refuses.lock().resize {
                return Err(DriverError::CannotResize("told to refuse".to_owned()));
            }
            self.of_live(&id, |sandbox| sandbox.spec.limits = limits)
        })
    }
}

impl EgressFilter for FakeDriver {
    fn set_egress(&self, id: &SandboxId, egress: Egress) -> BoxFuture<'_, Result<(), DriverError>> {
        self.may_panic();
        let set = self.of_live(id, |sandbox| sandbox.spec.egress = egress);
        Box::pin(async move { set })
    }
}

impl DiskAccounts for FakeDriver {
    fn set_owner(&self, id: &SandboxId, owner: Owner) -> BoxFuture<'_, Result<(), DriverError>> {
        let given = self.of_live(id, |sandbox| sandbox.spec.owner = owner);
        Box::pin(async move { given })
    }

    fn disk_use(&self, team: TeamId) -> BoxFuture<'_, Result<Option<DiskUse>, DriverError>> {
        let sandboxes = self.state.sandboxes.lock();
        let of_team = sandboxes.values();
        let of_team = of_team.filter(|sandbox| sandbox.spec.owner.team == team);
        let bytes = of_team.count() as u64;
        Box::pin(async move { Ok(Some(DiskUse { bytes })) })
    }
}
