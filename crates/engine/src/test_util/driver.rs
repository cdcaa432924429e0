//! A driver that keeps its sandboxes in memory.

mod port;

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use shoal_core::auth::Token;
use shoal_core::detail::HostDetail;
use shoal_core::driver::{
    Capabilities, DriverError, DriverEvent, FoundPaused, Isolation, Owner, PausedNetwork,
    RuntimeInfo, Start, StartSpec,
};
use shoal_core::id::{SandboxId, SnapshotId};
use shoal_core::network::Egress;
use shoal_core::resources::{Mib, MilliCpu, Resources, Usage};
use shoal_core::snapshot::{Contents, Saved};
use shoal_core::state::FailReason;
use tokio::sync::{Mutex as AsyncMutex, Notify, mpsc};

use super::gate::Gate;

/// A driver that keeps its sandboxes in memory. Clones share them, as servers share a node.
#[derive(Clone)]
pub struct FakeDriver {
    state: Arc<FakeState>,
}

struct FakeState {
    capabilities: Capabilities,
    /// Whether it has the capabilities that a driver may lack.
    capable: bool,
    sandboxes: Mutex<HashMap<SandboxId, FakeSandbox>>,
    snapshots: Mutex<HashMap<SnapshotId, Contents>>,
    refuses: Mutex<Refusals>,
    /// How often the use of a sandbox was read.
    reads: AtomicUsize,
    /// The free bytes of its disk.
    room: Mutex<Option<u64>>,
    /// The memory of its machine, and what each live sandbox uses of it.
    memory: Mutex<Option<(Mib, Mib)>>,
    /// How often its memory was read.
    memory_reads: AtomicUsize,
    starts: Gate,
    saves: Gate,
    resizes: Gate,
    idles: Gate,
    events: mpsc::Sender<DriverEvent>,
    incoming: AsyncMutex<mpsc::Receiver<DriverEvent>>,
    ended: Notify,
}

/// A sandbox of the fake driver.
#[derive(Debug, Clone)]
struct FakeSandbox {
    spec: StartSpec,
    alive: bool,
    frozen: bool,
    /// How often it was frozen.
    freezes: usize,
    paused: Option<FoundPaused>,
    /// The network of its last run, when the next one was prepared.
    network: Option<PausedNetwork>,
    usage: Usage,
}

/// The operations that a fake driver refuses from now on.
#[derive(Debug, Clone, Copy, Default)]
pub struct Refusals {
    /// Destroying a sandbox.
    pub destroy: bool,
    /// Saving one.
    pub save: bool,
    /// Resuming one.
    pub resume: bool,
    /// Changing limits.
    pub resize: bool,
    /// Restoring the memory of a snapshot.
    pub memory: bool,
    /// Returning: a start, a save and a change of rules panic.
    pub panic: bool,
}

/// The image that the fake driver refuses to start.
pub const BROKEN_IMAGE: &str = "test/broken:1";

impl FakeDriver {
    /// A driver with no sandboxes, of the runtimes `fake` and `second`.
    #[must_use]
    pub fn new() -> Self {
        Self::with("fake", &["fake", "second"], true)
    }

    /// A driver of other runtimes.
    #[must_use]
    pub fn named(name: &str, runtimes: &[&str]) -> Self {
        Self::with(name, runtimes, true)
    }

    /// A driver that can only create and destroy sandboxes.
    #[must_use]
    pub fn without_capabilities(name: &str, runtimes: &[&str]) -> Self {
        Self::with(name, runtimes, false)
    }

    #[expect(clippy::expect_used, reason = "constants of a test")]
    fn with(name: &str, runtimes: &[&str], capable: bool) -> Self {
        let (events, incoming) = mpsc::channel(64);
        let runtime = |name: &&str| RuntimeInfo {
            name: name.parse().expect("a name"),
            version: "1".to_owned(),
            build: "1".to_owned(),
            isolation: Isolation::None,
            memory_snapshot: capable,
            nested_containers: capable,
            keeps_connections: capable,
            idle_cpu: MilliCpu(0),
        };
        let capabilities = Capabilities {
            driver: name.to_owned(),
            runtimes: runtimes.iter().map(runtime).collect(),
            daemon: "1".to_owned(),
            disk_limit: "none".to_owned(),
            cpu: MilliCpu(16_000),
            memory: Mib(64 << 10),
            disk: Some(Mib(64 << 10)),
        };
        let state = FakeState {
            capabilities,
            capable,
            sandboxes: Mutex::default(),
            snapshots: Mutex::default(),
            refuses: Mutex::default(),
            reads: AtomicUsize::new(0),
            room: Mutex::default(),
            memory: Mutex::default(),
            memory_reads: AtomicUsize::new(0),
            starts: Gate::default(),
            saves: Gate::default(),
            resizes: Gate::default(),
            idles: Gate::default(),
            events,
            incoming: AsyncMutex::new(incoming),
            ended: Notify::new(),
        };
        Self {
            state: Arc::new(state),
        }
    }

    /// The ids of all sandboxes, in order.
    #[must_use]
    pub fn sandboxes(&self) -> Vec<SandboxId> {
        let mut ids: Vec<_> = self.state.sandboxes.lock().keys().cloned().collect();
        ids.sort();
        ids
    }

    /// The egress rules of a sandbox.
    #[must_use]
    pub fn egress(&self, id: &SandboxId) -> Option<Egress> {
        self.state
            .sandboxes
            .lock()
            .get(id)
            .map(|sandbox| sandbox.spec.egress.clone())
    }

    /// Ends a sandbox without a request.
    pub async fn fail(&self, id: &SandboxId, reason: FailReason) {
        let execution = {
            let mut sandboxes = self.state.sandboxes.lock();
            let Some(sandbox) = sandboxes.get_mut(id) else {
                return;
            };
            sandbox.alive = false;
            sandbox.spec.execution
        };
        let event = DriverEvent::Failed {
            id: id.clone(),
            execution,
            reason,
        };
        // The receiver lives as long as `self` does.
        let _ = self.state.events.send(event).await;
    }

    /// Ends the events, as a driver that has ended.
    pub fn end_events(&self) {
        self.state.ended.notify_one();
    }

    /// Makes operations fail from now on.
    pub fn refuse(&self, refuses: Refusals) {
        *self.state.refuses.lock() = refuses;
    }

    /// Sets the use of a running sandbox.
    pub fn set_usage(&self, id: &SandboxId, usage: Usage) {
        if let Some(sandbox) = self.state.sandboxes.lock().get_mut(id) {
            sandbox.usage = usage;
        }
    }

    /// How often the use of a sandbox was read.
    #[must_use]
    pub fn reads(&self) -> usize {
        self.state.reads.load(Ordering::Relaxed)
    }

    /// How often the memory of its machine was read.
    #[must_use]
    pub fn memory_reads(&self) -> usize {
        self.state.memory_reads.load(Ordering::Relaxed)
    }

    /// Sets the memory of its machine, and what each live sandbox uses of it.
    pub fn set_memory(&self, total: Mib, each: Mib) {
        *self.state.memory.lock() = Some((total, each));
    }

    /// Sets the free bytes of its disk.
    pub fn set_room(&self, bytes: u64) {
        *self.state.room.lock() = Some(bytes);
    }

    /// The gate of starts.
    #[must_use]
    pub fn starts(&self) -> &Gate {
        &self.state.starts
    }

    /// The gate of pauses and snapshots.
    #[must_use]
    pub fn saves(&self) -> &Gate {
        &self.state.saves
    }

    /// The gate of waits until a sandbox is idle.
    #[must_use]
    pub fn idles(&self) -> &Gate {
        &self.state.idles
    }

    /// The gate of resizes.
    #[must_use]
    pub fn resizes(&self) -> &Gate {
        &self.state.resizes
    }

    /// The limits of a sandbox.
    #[must_use]
    pub fn resources(&self, id: &SandboxId) -> Option<Resources> {
        let sandboxes = self.state.sandboxes.lock();
        sandboxes
            .get(id)
            .map(|sandbox| sandbox.spec.limits.resources())
    }

    /// The owner of the disk of a sandbox.
    #[must_use]
    pub fn owner(&self, id: &SandboxId) -> Option<Owner> {
        let sandboxes = self.state.sandboxes.lock();
        sandboxes.get(id).map(|sandbox| sandbox.spec.owner)
    }

    /// The origin of the present run of a sandbox.
    #[must_use]
    pub fn start(&self, id: &SandboxId) -> Option<Start> {
        let sandboxes = self.state.sandboxes.lock();
        sandboxes.get(id).map(|sandbox| sandbox.spec.start.clone())
    }

    /// What became of the network of a sandbox when its next run was prepared; none before that.
    #[must_use]
    pub fn network(&self, id: &SandboxId) -> Option<PausedNetwork> {
        let sandboxes = self.state.sandboxes.lock();
        sandboxes.get(id).and_then(|sandbox| sandbox.network)
    }

    /// The token that the daemon of a sandbox got before it ran.
    #[must_use]
    pub fn guest_token(&self, id: &SandboxId) -> Option<Token> {
        let sandboxes = self.state.sandboxes.lock();
        let sandbox = sandboxes.get(id)?;
        Some(sandbox.spec.guest_token.clone())
    }

    /// Whether a sandbox is frozen.
    #[must_use]
    pub fn is_frozen(&self, id: &SandboxId) -> bool {
        let sandboxes = self.state.sandboxes.lock();
        sandboxes.get(id).is_some_and(|sandbox| sandbox.frozen)
    }

    /// How often a sandbox was frozen.
    #[must_use]
    pub fn freezes(&self, id: &SandboxId) -> usize {
        let sandboxes = self.state.sandboxes.lock();
        sandboxes.get(id).map_or(0, |sandbox| sandbox.freezes)
    }

    /// The snapshots that there are.
    #[must_use]
    pub fn kept(&self) -> Vec<SnapshotId> {
        self.state.snapshots.lock().keys().copied().collect()
    }

    /// The result of `look` at a sandbox that is alive.
    fn of_live<T>(
        &self,
        id: &SandboxId,
        look: impl FnOnce(&mut FakeSandbox) -> T,
    ) -> Result<T, DriverError> {
        let mut sandboxes = self.state.sandboxes.lock();
        let sandbox = sandboxes.get_mut(id).filter(|sandbox| sandbox.alive);
        sandbox
            .map(look)
            .ok_or_else(|| DriverError::NotFound(id.clone()))
    }

    /// Panics if the test wants it.
    fn may_panic(&self) {
        let panics = self.state.refuses.lock().panic;
        assert!(!panics, "told to panic");
    }

    fn refused(
        &self,
        what: impl Fn(&Refusals) -> bool,
        step: &'static str,
    ) -> Result<(), DriverError> {
        if what(&self.state.refuses.lock()) {
            let detail = HostDetail::new("told to refuse");
            return Err(DriverError::Step { step, detail });
        }
        Ok(())
    }

    fn has_capabilities(&self) -> bool {
        self.state.capable
    }

    fn saved(&self, contents: Contents) -> Saved {
        Saved {
            contents,
            runtime: self.state.capabilities.runtimes[0].name.clone(),
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

    fn has_paused_memory(&self, id: &SandboxId) -> bool {
        let sandboxes = self.state.sandboxes.lock();
        let saved = sandboxes
            .get(id)
            .and_then(|sandbox| sandbox.paused.as_ref());
        saved.is_some_and(|saved| saved.saved.contents.has_memory())
    }

    fn start_again(&self, spec: StartSpec) -> Result<(), DriverError> {
        self.refused(|refuses| refuses.resume, "start")?;
        let mut sandboxes = self.state.sandboxes.lock();
        let sandbox = sandboxes.get_mut(&spec.id);
        let sandbox = sandbox.filter(|sandbox| sandbox.paused.is_some() && !sandbox.alive);
        let sandbox = sandbox.ok_or_else(|| DriverError::NotFound(spec.id.clone()))?;
        sandbox.alive = true;
        sandbox.network = None;
        sandbox.spec = spec;
        Ok(())
    }

    fn start_new(&self, spec: StartSpec) -> Result<(), DriverError> {
        match &spec.start {
            Start::Image(image) if image.as_str() == BROKEN_IMAGE => {
                return Err(DriverError::ImageNotFound(image.clone()));
            }
            Start::Snapshot { id, .. } if !self.state.snapshots.lock().contains_key(id) => {
                return Err(DriverError::SnapshotNotFound(*id));
            }
            _ => {}
        }
        match self.state.sandboxes.lock().entry(spec.id.clone()) {
            Entry::Occupied(_) => Err(DriverError::Step {
                step: "make the sandbox",
                detail: HostDetail::new("the id is taken"),
            }),
            Entry::Vacant(free) => {
                free.insert(FakeSandbox {
                    spec,
                    alive: true,
                    frozen: false,
                    freezes: 0,
                    paused: None,
                    network: None,
                    usage: Usage::default(),
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
