//! The drivers of this node. Each sandbox belongs to the driver of its recorded runtime.

mod inventory;
mod of_sandbox;

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use parking_lot::Mutex;
use shoal_core::driver::{
    Capabilities, Capability, DiskUse, Driver, DriverError, ExportRequest, ImportRequest, Imported,
    Start,
};
use shoal_core::id::{SandboxId, SnapshotId, TeamId};
use shoal_core::memory::MachineMemory;
use shoal_core::resources::{Mib, MilliCpu};
use shoal_core::sandbox::SandboxRecord;
use shoal_core::template::RuntimeName;

pub(crate) use self::of_sandbox::SandboxDriver;

/// The place of a driver in [`Drivers`].
type Index = usize;

/// Why the drivers of a node cannot be used together.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidDrivers {
    /// No driver has a runtime.
    #[error("no driver has a runtime: nothing could run")]
    NoRuntime,
    /// Two drivers offer one runtime, so a sandbox of it would belong to both.
    #[error("two drivers offer runtime {0}: a runtime belongs to one driver")]
    Duplicate(RuntimeName),
}

/// All drivers of this node, by the runtimes that they offer. The first runtime of the first driver is
/// the default.
pub(crate) struct Drivers {
    all: Vec<Arc<dyn Driver>>,
    by_runtime: HashMap<RuntimeName, Index>,
    capabilities: Capabilities,
    /// The driver of each snapshot. A spec without a runtime starts where its snapshot is.
    snapshots: Mutex<HashMap<SnapshotId, Index>>,
    /// The drivers of recovered sandboxes whose runtime no driver offers any more.
    without_runtime: Mutex<HashMap<SandboxId, Index>>,
}

impl Drivers {
    pub(crate) fn new(all: Vec<Arc<dyn Driver>>) -> Result<Self, InvalidDrivers> {
        let mut by_runtime = HashMap::new();
        for (index, driver) in all.iter().enumerate() {
            for runtime in &driver.capabilities().runtimes {
                let name = runtime.name.clone();
                if by_runtime.insert(name, index).is_some() {
                    return Err(InvalidDrivers::Duplicate(runtime.name.clone()));
                }
            }
        }
        if by_runtime.is_empty() {
            return Err(InvalidDrivers::NoRuntime);
        }
        Ok(Self {
            capabilities: merged(&all),
            all,
            by_runtime,
            snapshots: Mutex::default(),
            without_runtime: Mutex::default(),
        })
    }

    /// The runtimes of all drivers, and the resources that they share.
    pub(crate) fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    /// The memory of the machine, on which all of them run.
    pub(crate) async fn memory(&self) -> Result<Option<MachineMemory>, DriverError> {
        match self.all.first() {
            Some(driver) => driver.memory().await,
            None => Ok(None),
        }
    }

    /// Every driver.
    pub(crate) fn all(&self) -> &[Arc<dyn Driver>] {
        &self.all
    }

    /// The driver of a runtime, or the default one. An unknown runtime gets the default driver, and
    /// [`Drivers::for_start`] refuses it.
    pub(crate) fn of_runtime(&self, runtime: Option<&RuntimeName>) -> SandboxDriver {
        let index = runtime.and_then(|name| self.by_runtime.get(name));
        self.at(index.copied().unwrap_or_default(), runtime)
    }

    /// The driver of a sandbox: that of the runtime which runs it or saved it, or else of the one that
    /// its spec asks for.
    pub(crate) fn of(&self, record: &SandboxRecord) -> SandboxDriver {
        let runtime = recorded(record);
        self.at(self.index_of(record, runtime), runtime)
    }

    /// The driver that can start a run of a sandbox.
    ///
    /// # Errors
    /// [`DriverError::RuntimeNotFound`] when no driver offers its runtime; [`DriverError::Unusable`]
    /// when another driver has its snapshot.
    pub(crate) fn for_start(
        &self,
        record: &SandboxRecord,
        start: &Start,
    ) -> Result<Arc<dyn Driver>, DriverError> {
        if let Some(asked) = &record.spec.runtime
            && !self.by_runtime.contains_key(asked)
        {
            return Err(self.not_found(asked));
        }
        let index = self.index_of(record, recorded(record));
        if let Start::Snapshot { id, .. } = start
            && let Some(saved) = self.snapshots.lock().get(id)
            && *saved != index
        {
            let [own, other] = [index, *saved].map(|index| &self.all[index].capabilities().driver);
            return Err(DriverError::Unusable(format!(
                "driver {other} saved it, and driver {own} cannot read it"
            )));
        }
        Ok(self.all[index].clone())
    }

    /// Records which driver has a snapshot.
    pub(crate) fn note_snapshot(&self, id: SnapshotId, record: &SandboxRecord) {
        let index = self.index_of(record, recorded(record));
        self.snapshots.lock().insert(id, index);
    }

    /// Every snapshot on this node.
    pub(crate) async fn snapshots(&self) -> Result<Vec<SnapshotId>, DriverError> {
        let mut ids = Vec::new();
        for (index, driver) in self.all.iter().enumerate() {
            if let Some(checkpointer) = driver.checkpointer() {
                let found = checkpointer.snapshots().await?;
                let located = found.iter().map(|id| (*id, index));
                self.snapshots.lock().extend(located);
                ids.extend(found);
            }
        }
        Ok(ids)
    }

    /// Removes a snapshot from the driver that has it. Idempotent.
    pub(crate) async fn remove_snapshot(&self, id: SnapshotId) -> Result<(), DriverError> {
        let located = self.snapshots.lock().get(&id).copied();
        for (index, driver) in self.all.iter().enumerate() {
            let may_have = located.is_none_or(|located| located == index);
            if let Some(checkpointer) = driver.checkpointer().filter(|_| may_have) {
                checkpointer.remove_snapshot(id).await?;
            }
        }
        self.snapshots.lock().remove(&id);
        Ok(())
    }

    /// Exports a snapshot from the driver that has it.
    pub(crate) async fn export_snapshot(&self, request: ExportRequest) -> Result<u64, DriverError> {
        let located = self.snapshots.lock().get(&request.snapshot).copied();
        let driver = &self.all[located.unwrap_or_default()];
        let transfer = driver
            .snapshot_transfer()
            .ok_or_else(|| lacks(driver.as_ref(), Capability::Transfer))?;
        transfer.export_snapshot(request).await
    }

    /// Imports a snapshot into the first driver that can.
    pub(crate) async fn import_snapshot(
        &self,
        request: ImportRequest,
    ) -> Result<Imported, DriverError> {
        let id = request.snapshot;
        for (index, driver) in self.all.iter().enumerate() {
            if let Some(transfer) = driver.snapshot_transfer() {
                let imported = transfer.import_snapshot(request).await?;
                self.snapshots.lock().insert(id, index);
                return Ok(imported);
            }
        }
        Err(lacks(self.all[0].as_ref(), Capability::Transfer))
    }

    /// The disk usage of a team in all drivers; none if no driver counts it.
    pub(crate) async fn disk_use(&self, team: TeamId) -> Result<Option<DiskUse>, DriverError> {
        let mut sum = None;
        for driver in &self.all {
            let used = match driver.disk_accounts() {
                Some(accounts) => accounts.disk_use(team).await?,
                None => None,
            };
            if let Some(DiskUse { bytes }) = used {
                *sum.get_or_insert(0) += bytes;
            }
        }
        Ok(sum.map(|bytes| DiskUse { bytes }))
    }

    fn at(&self, index: Index, runtime: Option<&RuntimeName>) -> SandboxDriver {
        SandboxDriver::new(self.all[index].clone(), runtime)
    }

    fn index_of(&self, record: &SandboxRecord, runtime: Option<&RuntimeName>) -> Index {
        let index = match (runtime, &record.spec.snapshot) {
            (Some(name), _) => match self.by_runtime.get(name) {
                None => self.without_runtime.lock().get(&record.id).copied(),
                known => known.copied(),
            },
            (None, Some(origin)) => self.snapshots.lock().get(&origin.id).copied(),
            (None, None) => None,
        };
        index.unwrap_or_default()
    }

    fn not_found(&self, asked: &RuntimeName) -> DriverError {
        let names = self.capabilities.runtimes.iter();
        let names: Vec<&str> = names.map(|info| info.name.as_str()).collect();
        DriverError::RuntimeNotFound {
            asked: asked.clone(),
            available: names.join(", "),
        }
    }
}

/// The runtime that a record names, if it names one.
fn recorded(record: &SandboxRecord) -> Option<&RuntimeName> {
    let ran = record.report.as_ref().map(|report| &report.runtime);
    let saved = record.state.saved().map(|saved| &saved.runtime);
    ran.or(saved).or(record.spec.runtime.as_ref())
}

fn lacks(driver: &dyn Driver, capability: Capability) -> DriverError {
    SandboxDriver::lacks(driver, None, capability)
}

/// The capabilities of all drivers together. They share one node, so its resources do not add up: the
/// smallest figure counts.
fn merged(all: &[Arc<dyn Driver>]) -> Capabilities {
    let each = || all.iter().map(|driver| driver.capabilities());
    let joined = |part: fn(&Capabilities) -> &str| {
        let parts: BTreeSet<&str> = each().map(part).collect();
        parts.into_iter().collect::<Vec<_>>().join(", ")
    };
    Capabilities {
        driver: joined(|of| &of.driver),
        runtimes: each().flat_map(|of| of.runtimes.clone()).collect(),
        daemon: joined(|of| &of.daemon),
        disk_limit: joined(|of| &of.disk_limit),
        cpu: each().map(|of| of.cpu).min().unwrap_or(MilliCpu(0)),
        memory: each().map(|of| of.memory).min().unwrap_or(Mib(0)),
        disk: each().filter_map(|of| of.disk).min(),
    }
}
