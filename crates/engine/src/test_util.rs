//! A driver, a guest and a clock that tests own.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::future::Future;
use std::net::{IpAddr, Ipv4Addr};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use shoal_core::BoxFuture;
use shoal_core::clock::{Clock, Timestamp};
use shoal_core::driver::{
    Capabilities, CreateOrder, Driver, DriverError, DriverEvent, Found, Isolation, Origin, Phases,
    RuntimeInfo, StartReport,
};
use shoal_core::id::{ExecutionId, SandboxId, TeamId, TemplateId};
use shoal_core::image::{Image, ImageError, ImageName, Images, ProgressSink, RegistryAuth};
use shoal_core::network::{Egress, NetworkPolicy};
use shoal_core::resources::{Resources, Usage};
use shoal_core::sandbox::{Lifecycle, OnTimeout, SandboxRecord, SandboxSpec};
use shoal_core::state::{FailReason, State};
use shoal_core::template::RuntimeName;
use tokio::sync::{Mutex as AsyncMutex, mpsc, watch};

use crate::guest::{Guest, GuestError, InitOrder};

/// A running sandbox called `id`, of a team made of ones.
///
/// # Panics
/// When `id` is not an id.
#[must_use]
#[expect(clippy::expect_used, reason = "constants of a test")]
pub fn record(id: &str) -> SandboxRecord {
    SandboxRecord {
        id: id.parse().expect("an id"),
        team: TeamId::from_entropy([1; 16]),
        execution: ExecutionId::from_entropy([2; 16]),
        spec: SandboxSpec {
            template: TemplateId::from_entropy([3; 16]),
            template_name: Some("base".to_owned()),
            image: "test/image:1".parse().expect("an image"),
            runtime: None,
            resources: Resources::default(),
            user: "user".to_owned(),
            workdir: None,
            env: BTreeMap::new(),
            metadata: BTreeMap::new(),
            lifecycle: Lifecycle {
                timeout: Duration::from_secs(300),
                on_timeout: OnTimeout::Kill,
                auto_resume: false,
                keep_memory: true,
            },
            network: NetworkPolicy::default(),
            secure: true,
        },
        state: State::Running,
        created_at: Timestamp::from_unix_millis(0),
        started_at: Timestamp::from_unix_millis(0),
        deadline: Timestamp::from_unix_seconds(300),
        since: Timestamp::from_unix_millis(0),
        report: None,
    }
}

/// A clock that stands until it is told to go on.
#[derive(Debug)]
pub struct ManualClock(watch::Sender<Timestamp>);

impl ManualClock {
    /// A clock that stands at the epoch.
    #[must_use]
    pub fn new() -> Arc<Self> {
        Arc::new(Self(watch::channel(Timestamp::from_unix_millis(0)).0))
    }

    /// Goes on by `duration`.
    pub fn advance(&self, duration: Duration) {
        self.0.send_modify(|now| *now = *now + duration);
    }

    /// Goes on to `moment`.
    pub fn advance_to(&self, moment: Timestamp) {
        self.0.send_replace(moment);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        *self.0.borrow()
    }

    fn sleep_until(&self, moment: Timestamp) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        let mut now = self.0.subscribe();
        Box::pin(async move {
            // The sender lives as long as `self` does.
            let _ = now.wait_for(|now| *now >= moment).await;
        })
    }
}

/// A driver that only remembers. Clones share what they remember, as servers share a machine.
#[derive(Clone)]
pub struct FakeDriver {
    state: Arc<FakeState>,
}

struct FakeState {
    capabilities: Capabilities,
    sandboxes: Mutex<HashMap<SandboxId, (CreateOrder, bool)>>,
    refuse_destroy: Mutex<bool>,
    events: mpsc::Sender<DriverEvent>,
    incoming: AsyncMutex<mpsc::Receiver<DriverEvent>>,
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
            isolation: Isolation::None,
            memory_snapshot: false,
            nested_containers: false,
        };
        let capabilities = Capabilities {
            driver: "fake".to_owned(),
            runtimes: vec![runtime],
            disk_limit: "none".to_owned(),
        };
        let state = FakeState {
            capabilities,
            sandboxes: Mutex::default(),
            refuse_destroy: Mutex::new(false),
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
            .map(|(order, _)| order.egress.clone())
    }

    /// Lets a sandbox stop by itself.
    pub async fn fail(&self, id: &SandboxId, reason: FailReason) {
        let execution = {
            let mut sandboxes = self.state.sandboxes.lock();
            let Some((order, alive)) = sandboxes.get_mut(id) else {
                return;
            };
            *alive = false;
            order.execution
        };
        let event = DriverEvent::Failed {
            id: id.clone(),
            execution,
            reason,
        };
        // The receiver lives as long as `self` does.
        let _ = self.state.events.send(event).await;
    }

    /// Whether clearing fails from now on.
    pub fn refuse_destroy(&self, refuse: bool) {
        *self.state.refuse_destroy.lock() = refuse;
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
            let known: &RuntimeName = &self.state.capabilities.runtimes[0].name;
            if let Some(asked) = order.runtime.clone().filter(|asked| asked != known) {
                let available = known.to_string();
                return Err(DriverError::RuntimeNotFound { asked, available });
            }
            if order.image.as_str() == BROKEN_IMAGE {
                return Err(DriverError::ImageNotFound(order.image));
            }
            match self.state.sandboxes.lock().entry(order.id.clone()) {
                Entry::Occupied(_) => {
                    return Err(DriverError::Step {
                        step: "make the sandbox",
                        detail: "the id is taken".to_owned(),
                    });
                }
                Entry::Vacant(free) => free.insert((order, true)),
            };
            Ok(StartReport {
                runtime: known.clone(),
                isolation: Isolation::None,
                origin: Origin::Cold,
                phases: Phases::default(),
                address: IpAddr::V4(Ipv4Addr::LOCALHOST),
                envd_version: String::new(),
            })
        })
    }

    fn destroy(&self, id: &SandboxId) -> BoxFuture<'_, Result<(), DriverError>> {
        let refused = *self.state.refuse_destroy.lock();
        if !refused {
            self.state.sandboxes.lock().remove(id);
        }
        Box::pin(async move {
            let detail = "told to refuse".to_owned();
            if refused {
                Err(DriverError::Step {
                    step: "clear",
                    detail,
                })
            } else {
                Ok(())
            }
        })
    }

    fn set_egress(&self, id: &SandboxId, egress: Egress) -> BoxFuture<'_, Result<(), DriverError>> {
        let known = self
            .state
            .sandboxes
            .lock()
            .get_mut(id)
            .map(|(order, _)| order.egress = egress);
        let known = known.ok_or_else(|| DriverError::NotFound(id.clone()));
        Box::pin(async move { known })
    }

    fn usage(&self, id: &SandboxId) -> BoxFuture<'_, Result<Usage, DriverError>> {
        let known = self.state.sandboxes.lock().contains_key(id);
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
        let found = sandboxes.values().map(|(order, alive)| Found {
            id: order.id.clone(),
            execution: order.execution,
            alive: *alive,
        });
        let found = found.collect();
        Box::pin(async move { Ok(found) })
    }

    fn next_event(&self) -> BoxFuture<'_, Option<DriverEvent>> {
        Box::pin(async { self.state.incoming.lock().await.recv().await })
    }
}

/// A guest that agrees to everything, or to nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct FakeGuest {
    /// Whether it refuses.
    pub refuses: bool,
}

impl Guest for FakeGuest {
    fn init(&self, _: IpAddr, _: InitOrder) -> BoxFuture<'_, Result<String, GuestError>> {
        let refuses = self.refuses;
        Box::pin(async move {
            if refuses {
                Err(GuestError::Refused("told to refuse".to_owned()))
            } else {
                Ok("0".to_owned())
            }
        })
    }
}

/// No images.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoImages;

impl Images for NoImages {
    fn list(&self) -> BoxFuture<'_, Result<Vec<Image>, ImageError>> {
        Box::pin(async { Ok(Vec::new()) })
    }

    fn find(&self, _: &ImageName) -> BoxFuture<'_, Result<Option<Image>, ImageError>> {
        Box::pin(async { Ok(None) })
    }

    fn pull(
        &self,
        name: ImageName,
        _: Option<RegistryAuth>,
        _: Arc<dyn ProgressSink>,
    ) -> BoxFuture<'_, Result<Image, ImageError>> {
        Box::pin(async move { Err(ImageError::NotFound(name)) })
    }

    fn import(
        &self,
        _: std::path::PathBuf,
        name: ImageName,
        _: Arc<dyn ProgressSink>,
    ) -> BoxFuture<'_, Result<Image, ImageError>> {
        Box::pin(async move { Err(ImageError::NotFound(name)) })
    }

    fn remove(&self, _: &ImageName) -> BoxFuture<'_, Result<(), ImageError>> {
        Box::pin(async { Ok(()) })
    }
}
