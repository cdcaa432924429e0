//! A driver that only remembers.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use shoal_core::BoxFuture;
use shoal_core::driver::{
    Capabilities, CreateOrder, Driver, DriverError, DriverEvent, Found, FoundPaused, Isolation,
    Origin, Phases, RuntimeInfo, Start, StartReport,
};
use shoal_core::id::{SandboxId, SnapshotId};
use shoal_core::network::Egress;
use shoal_core::resources::{Mib, MilliCpu, Resources, Usage};
use shoal_core::snapshot::{Contents, Saved};
use shoal_core::state::FailReason;
use shoal_core::template::RuntimeName;
use tokio::sync::{Mutex as AsyncMutex, mpsc};

use super::gate::Gate;

/// A driver that only remembers. Clones share what they remember, as servers share a machine.
#[derive(Clone)]
pub struct FakeDriver {
    state: Arc<FakeState>,
}

struct FakeState {
    capabilities: Capabilities,
    sandboxes: Mutex<HashMap<SandboxId, FakeSandbox>>,
    snapshots: Mutex<HashMap<SnapshotId, Contents>>,
    refuses: Mutex<Refusals>,
    starts: Gate,
    saves: Gate,
    resizes: Gate,
    events: mpsc::Sender<DriverEvent>,
    incoming: AsyncMutex<mpsc::Receiver<DriverEvent>>,
}

/// What a driver that only remembers remembers of a sandbox.
#[derive(Debug, Clone)]
struct FakeSandbox {
    order: CreateOrder,
    alive: bool,
    paused: Option<FoundPaused>,
}

/// What a fake driver refuses from now on.
#[derive(Debug, Clone, Copy, Default)]
pub struct Refusals {
    /// To clear what is left of a sandbox.
    pub destroy: bool,
    /// To save one.
    pub save: bool,
    /// To let one go on.
    pub resume: bool,
    /// To change limits.
    pub resize: bool,
    /// To go on with the memory of a snapshot.
    pub memory: bool,
}

/// The image that the fake driver refuses to start.
pub const BROKEN_IMAGE: &str = "test/broken:1";

impl FakeDriver {
    /// A driver with no sandboxes.
    ///
    /// # Panics
    /// Never: its constants are valid.
    #[must_use]
    #[expect(clippy::expect_used, reason = "constants of a test")]
    pub fn new() -> Self {
        let (events, incoming) = mpsc::channel(64);
        let runtime = RuntimeInfo {
            name: "fake".parse().expect("a name"),
            version: "1".to_owned(),
            build: "1".to_owned(),
            isolation: Isolation::None,
            memory_snapshot: true,
            nested_containers: false,
        };
        let capabilities = Capabilities {
            driver: "fake".to_owned(),
            runtimes: vec![runtime],
            daemon: "1".to_owned(),
            disk_limit: "none".to_owned(),
            cpu: MilliCpu(16_000),
            memory: Mib(64 << 10),
        };
        let state = FakeState {
            capabilities,
            sandboxes: Mutex::default(),
            snapshots: Mutex::default(),
            refuses: Mutex::default(),
            starts: Gate::default(),
            saves: Gate::default(),
            resizes: Gate::default(),
            events,
            incoming: AsyncMutex::new(incoming),
        };
        Self {
            state: Arc::new(state),
        }
    }

    /// The sandboxes that there are, by id.
    #[must_use]
    pub fn sandboxes(&self) -> Vec<SandboxId> {
        let mut ids: Vec<_> = self.state.sandboxes.lock().keys().cloned().collect();
        ids.sort();
        ids
    }

    /// What a sandbox may reach.
    #[must_use]
    pub fn egress(&self, id: &SandboxId) -> Option<Egress> {
        self.state
            .sandboxes
            .lock()
            .get(id)
            .map(|sandbox| sandbox.order.egress.clone())
    }

    /// Lets a sandbox stop by itself.
    pub async fn fail(&self, id: &SandboxId, reason: FailReason) {
        let execution = {
            let mut sandboxes = self.state.sandboxes.lock();
            let Some(sandbox) = sandboxes.get_mut(id) else {
                return;
            };
            sandbox.alive = false;
            sandbox.order.execution
        };
        let event = DriverEvent::Failed {
            id: id.clone(),
            execution,
            reason,
        };
        // The receiver lives as long as `self` does.
        let _ = self.state.events.send(event).await;
    }

    /// What fails from now on.
    pub fn refuse(&self, refuses: Refusals) {
        *self.state.refuses.lock() = refuses;
    }

    /// Where whoever starts a sandbox passes.
    #[must_use]
    pub fn starts(&self) -> &Gate {
        &self.state.starts
    }

    /// Where whoever pauses a sandbox, or takes a snapshot of one, passes.
    #[must_use]
    pub fn saves(&self) -> &Gate {
        &self.state.saves
    }

    /// Where whoever changes limits passes.
    #[must_use]
    pub fn resizes(&self) -> &Gate {
        &self.state.resizes
    }

    /// The limits of a sandbox.
    #[must_use]
    pub fn resources(&self, id: &SandboxId) -> Option<Resources> {
        let sandboxes = self.state.sandboxes.lock();
        sandboxes.get(id).map(|sandbox| sandbox.order.resources)
    }

    /// What the present run of a sandbox started from.
    #[must_use]
    pub fn start(&self, id: &SandboxId) -> Option<Start> {
        let sandboxes = self.state.sandboxes.lock();
        sandboxes.get(id).map(|sandbox| sandbox.order.start.clone())
    }

    /// The snapshots that there are.
    #[must_use]
    pub fn kept(&self) -> Vec<SnapshotId> {
        self.state.snapshots.lock().keys().copied().collect()
    }

    fn refused(
        &self,
        what: impl Fn(&Refusals) -> bool,
        step: &'static str,
    ) -> Result<(), DriverError> {
        if what(&self.state.refuses.lock()) {
            let detail = "told to refuse".to_owned();
            return Err(DriverError::Step { step, detail });
        }
        Ok(())
    }

    fn saved(contents: Contents) -> Saved {
        Saved {
            contents,
            runtime: "fake"
                .parse()
                .unwrap_or_else(|_| unreachable!("it is a name")),
            freeze: Duration::from_millis(1),
            memory_bytes: 1,
            file_bytes: 1,
            copied: "not at all".to_owned(),
        }
    }

    fn keeps_memory(&self, id: SnapshotId) -> bool {
        let snapshots = self.state.snapshots.lock();
        snapshots.get(&id).is_some_and(|kept| kept.has_memory())
    }

    fn rests_with_memory(&self, id: &SandboxId) -> bool {
        let sandboxes = self.state.sandboxes.lock();
        let saved = sandboxes
            .get(id)
            .and_then(|sandbox| sandbox.paused.as_ref());
        saved.is_some_and(|saved| saved.saved.contents.has_memory())
    }

    fn start_again(&self, order: CreateOrder) -> Result<(), DriverError> {
        self.refused(|refuses| refuses.resume, "start")?;
        let mut sandboxes = self.state.sandboxes.lock();
        let sandbox = sandboxes.get_mut(&order.id);
        let sandbox = sandbox.filter(|sandbox| sandbox.paused.is_some() && !sandbox.alive);
        let sandbox = sandbox.ok_or_else(|| DriverError::NotFound(order.id.clone()))?;
        sandbox.alive = true;
        sandbox.order = order;
        Ok(())
    }

    fn start_new(&self, order: CreateOrder) -> Result<(), DriverError> {
        match &order.start {
            Start::Image(image) if image.as_str() == BROKEN_IMAGE => {
                return Err(DriverError::ImageNotFound(image.clone()));
            }
            Start::Snapshot { id, .. } if !self.state.snapshots.lock().contains_key(id) => {
                return Err(DriverError::SnapshotNotFound(*id));
            }
            _ => {}
        }
        match self.state.sandboxes.lock().entry(order.id.clone()) {
            Entry::Occupied(_) => Err(DriverError::Step {
                step: "make the sandbox",
                detail: "the id is taken".to_owned(),
            }),
            Entry::Vacant(free) => {
                free.insert(FakeSandbox {
                    order,
                    alive: true,
                    paused: None,
                });
                Ok(())
            }
        }
    }
}

impl Default for FakeDriver {
    fn default() -> Self {
        Self::new()
    }
}

impl Driver for FakeDriver {
    fn capabilities(&self) -> &Capabilities {
        &self.state.capabilities
    }

    fn create(&self, order: CreateOrder) -> BoxFuture<'_, Result<StartReport, DriverError>> {
        Box::pin(async move {
            self.state.starts.pass().await;
            let known: &RuntimeName = &self.state.capabilities.runtimes[0].name;
            if let Some(asked) = order.runtime.clone().filter(|asked| asked != known) {
                let available = known.to_string();
                return Err(DriverError::RuntimeNotFound { asked, available });
            }
            let restored = match &order.start {
                Start::Image(_) => false,
                Start::Snapshot { memory: true, .. } if self.state.refuses.lock().memory => {
                    return Err(DriverError::Unusable(
                        "another build has saved it".to_owned(),
                    ));
                }
                Start::Snapshot { id, memory } => *memory && self.keeps_memory(*id),
                Start::Paused { memory } => *memory && self.rests_with_memory(&order.id),
            };
            let origin = if restored {
                Origin::Restored
            } else {
                Origin::Cold
            };
            match order.start {
                Start::Paused { .. } => self.start_again(order)?,
                _ => self.start_new(order)?,
            }
            Ok(StartReport {
                runtime: known.clone(),
                isolation: Isolation::None,
                origin,
                phases: Phases::default(),
                address: IpAddr::V4(Ipv4Addr::LOCALHOST),
                envd_version: String::new(),
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

    fn pause(
        &self,
        id: &SandboxId,
        contents: Contents,
    ) -> BoxFuture<'_, Result<Saved, DriverError>> {
        let id = id.clone();
        Box::pin(async move {
            self.state.saves.pass().await;
            self.refused(|refuses| refuses.save, "save the memory")?;
            let mut sandboxes = self.state.sandboxes.lock();
            let sandbox = sandboxes.get_mut(&id);
            let sandbox = sandbox.ok_or_else(|| DriverError::NotFound(id.clone()))?;
            if !sandbox.alive && sandbox.paused.is_none() {
                return Err(DriverError::NotFound(id));
            }
            sandbox.alive = false;
            let execution = sandbox.order.execution;
            let paused = sandbox.paused.get_or_insert_with(|| FoundPaused {
                execution,
                saved: Self::saved(contents),
            });
            Ok(paused.saved.clone())
        })
    }

    fn back_to_pause(&self, id: &SandboxId) -> BoxFuture<'_, Result<(), DriverError>> {
        let id = id.clone();
        Box::pin(async move {
            let mut sandboxes = self.state.sandboxes.lock();
            let sandbox = sandboxes.get_mut(&id);
            let sandbox = sandbox.filter(|sandbox| sandbox.paused.is_some());
            sandbox.ok_or(DriverError::NotFound(id))?.alive = false;
            Ok(())
        })
    }

    fn prepare_resume(&self, _: &SandboxId) -> BoxFuture<'_, Result<(), DriverError>> {
        Box::pin(async { Ok(()) })
    }

    fn discard_pause(&self, id: &SandboxId) -> BoxFuture<'_, Result<(), DriverError>> {
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
    ) -> BoxFuture<'_, Result<Saved, DriverError>> {
        let id = id.clone();
        Box::pin(async move {
            self.state.saves.pass().await;
            self.refused(|refuses| refuses.save, "save the memory")?;
            let alive = self
                .state
                .sandboxes
                .lock()
                .get(&id)
                .map(|sandbox| sandbox.alive);
            if alive != Some(true) {
                return Err(DriverError::NotFound(id));
            }
            self.state.snapshots.lock().insert(snapshot, contents);
            Ok(Self::saved(contents))
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

    fn export_snapshot(
        &self,
        snapshot: SnapshotId,
        target: std::path::PathBuf,
        note: String,
    ) -> BoxFuture<'_, Result<u64, DriverError>> {
        let kept = self.state.snapshots.lock().contains_key(&snapshot);
        Box::pin(async move {
            if !kept {
                return Err(DriverError::SnapshotNotFound(snapshot));
            }
            let bytes = note.len() as u64;
            match std::fs::write(target, note) {
                Ok(()) => Ok(bytes),
                Err(error) => Err(DriverError::Step {
                    step: "export",
                    detail: error.to_string(),
                }),
            }
        })
    }

    fn import_snapshot(
        &self,
        source: std::path::PathBuf,
        snapshot: SnapshotId,
    ) -> BoxFuture<'_, Result<(Saved, String), DriverError>> {
        Box::pin(async move {
            let note = std::fs::read_to_string(source)
                .map_err(|error| DriverError::Unusable(error.to_string()))?;
            let snapshots = &mut self.state.snapshots.lock();
            snapshots.insert(snapshot, Contents::Memory);
            Ok((Self::saved(Contents::Memory), note))
        })
    }

    fn resize(&self, id: &SandboxId, limits: Resources) -> BoxFuture<'_, Result<(), DriverError>> {
        let id = id.clone();
        Box::pin(async move {
            self.state.resizes.pass().await;
            if self.state.refuses.lock().resize {
                return Err(DriverError::CannotResize("told to refuse".to_owned()));
            }
            let mut sandboxes = self.state.sandboxes.lock();
            let sandbox = sandboxes.get_mut(&id).filter(|sandbox| sandbox.alive);
            sandbox.ok_or(DriverError::NotFound(id))?.order.resources = limits;
            Ok(())
        })
    }

    fn set_egress(&self, id: &SandboxId, egress: Egress) -> BoxFuture<'_, Result<(), DriverError>> {
        let known = self
            .state
            .sandboxes
            .lock()
            .get_mut(id)
            .filter(|sandbox| sandbox.alive)
            .map(|sandbox| sandbox.order.egress = egress);
        let known = known.ok_or_else(|| DriverError::NotFound(id.clone()));
        Box::pin(async move { known })
    }

    fn usage(&self, id: &SandboxId) -> BoxFuture<'_, Result<Usage, DriverError>> {
        let sandboxes = self.state.sandboxes.lock();
        let known = sandboxes.get(id).is_some_and(|sandbox| sandbox.alive);
        drop(sandboxes);
        let id = id.clone();
        Box::pin(async move {
            if known {
                Ok(Usage::default())
            } else {
                Err(DriverError::NotFound(id))
            }
        })
    }

    fn inventory(&self) -> BoxFuture<'_, Result<Vec<Found>, DriverError>> {
        let sandboxes = self.state.sandboxes.lock();
        let found = sandboxes.values().map(|sandbox| Found {
            id: sandbox.order.id.clone(),
            execution: sandbox.order.execution,
            alive: sandbox.alive,
            paused: sandbox.paused.clone(),
        });
        let found = found.collect();
        Box::pin(async move { Ok(found) })
    }

    fn next_event(&self) -> BoxFuture<'_, Option<DriverEvent>> {
        Box::pin(async { self.state.incoming.lock().await.recv().await })
    }
}
