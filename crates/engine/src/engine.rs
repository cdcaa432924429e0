//! The engine: its services, put together, and the tasks that run beside them.

mod access;
mod assemble;
mod pools;
mod sandboxes;
mod snapshots;
mod telemetry;
mod templates;

use std::sync::Arc;

use shoal_core::clock::{Clock, Timestamp};
use shoal_core::driver::{Capabilities, Driver};
use shoal_core::image::Images;
pub use shoal_core::ports::sandboxes::SandboxError;
use shoal_core::store::{Store, StoreError};
use shoal_tasks::{TaskEnded, Tasks};

use crate::access::Access;
use crate::build_records::BuildRecords;
use crate::builds::Builds;
use crate::catalogue::Catalogues;
use crate::config::{EngineConfig, Limits};
use crate::create::Creator;
use crate::drivers::{Drivers, InvalidDrivers};
use crate::guest::Guest;
use crate::images::NodeImages;
use crate::pool::Pools;
use crate::random::NoEntropy;
use crate::resolve::Resolver;
use crate::sandboxes::{EngineRoutes, Sandboxes};
use crate::snapshots::Snapshots;
use crate::snapshotter::Snapshotter;
use crate::telemetry::Telemetry;
use crate::templates::Templates;
use crate::uploads::Uploads;
use crate::work::Work;

/// The parts of an engine.
pub struct EngineParts {
    /// The operator's settings.
    pub config: EngineConfig,
    /// The store, which has the truth.
    pub store: Arc<dyn Store>,
    /// The drivers of this node. The first runtime of the first one is the default.
    pub drivers: Vec<Arc<dyn Driver>>,
    /// The images on this node.
    pub images: Arc<dyn Images>,
    /// The client of the daemons inside.
    pub guest: Arc<dyn Guest>,
    /// The time.
    pub clock: Arc<dyn Clock>,
}

/// The use cases. Cheap to clone.
#[derive(Clone)]
pub struct Engine {
    pub(crate) shared: Arc<Shared>,
}

pub(crate) struct Shared {
    pub(crate) config: EngineConfig,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) drivers: Arc<Drivers>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) telemetry: Arc<Telemetry>,
    pub(crate) access: Arc<Access>,
    pub(crate) catalogues: Arc<Catalogues>,
    pub(crate) images: Arc<NodeImages>,
    pub(crate) build_records: Arc<BuildRecords>,
    pub(crate) snapshots: Arc<Snapshots>,
    pub(crate) uploads: Arc<Uploads>,
    pub(crate) sandboxes: Arc<Sandboxes>,
    pub(crate) templates: Arc<Templates>,
    pub(crate) resolver: Arc<Resolver>,
    pub(crate) builds: Arc<Builds>,
    pub(crate) creator: Arc<Creator>,
    pub(crate) snapshotter: Arc<Snapshotter>,
    pub(crate) pools: Arc<Pools>,
    pub(crate) work: Work,
}

/// Why the engine cannot start.
#[derive(Debug, thiserror::Error)]
pub enum OpenEngineError {
    /// The drivers cannot be used together.
    #[error(transparent)]
    Drivers(#[from] InvalidDrivers),
    /// The store cannot be read or written.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The directory of logs cannot be made.
    #[error("cannot make the directory of logs")]
    Logs(#[source] std::io::Error),
    /// The directory of uploads cannot be made.
    #[error("cannot make the directory of uploads")]
    Uploads(#[source] std::io::Error),
    /// The system has no randomness.
    #[error(transparent)]
    Entropy(#[from] NoEntropy),
}

impl Engine {
    /// Opens the engine. It serves once [`Engine::recover`] has been called.
    ///
    /// # Errors
    /// See [`OpenEngineError`].
    pub async fn open(parts: EngineParts) -> Result<Self, OpenEngineError> {
        let shared = Arc::new(assemble::assemble(parts).await?);
        Ok(Self { shared })
    }

    /// Starts what happens by itself: deadlines, news from the driver, samples, forgetting, pools.
    /// One call. A task that ends must end the server: see [`Tasks`].
    pub fn spawn_tasks(&self, tasks: &mut Tasks) {
        let sandboxes = || self.shared.sandboxes.clone();
        let of = sandboxes();
        tasks.spawn("deadlines", async move { of.watch_deadlines().await });
        for driver in self.shared.drivers.all().iter().cloned() {
            let of = sandboxes();
            tasks.spawn(
                "driver events",
                async move { of.watch_driver(&*driver).await },
            );
        }
        let of = sandboxes();
        tasks.spawn("samples", async move { of.sample_for_ever().await });
        let of = sandboxes();
        tasks.spawn("parking", async move { of.park_for_ever().await });
        let of = sandboxes();
        tasks.spawn("retention", async move { of.forget_for_ever().await });
        let snapshots = self.shared.snapshots.clone();
        tasks.spawn("snapshot expiry", async move {
            snapshots.expire_for_ever().await;
        });
        let pools = self.shared.pools.clone();
        tasks.spawn("pools", async move { pools.keep_filled().await });
    }

    /// Runs these tasks until one of them ends, and says which one and how.
    pub async fn run(&self) -> TaskEnded {
        let mut tasks = Tasks::default();
        self.spawn_tasks(&mut tasks);
        tasks.ended().await
    }

    /// Begins to stop: builds end as failed, and pools make no more members. Requests that were
    /// accepted before are still carried out.
    pub fn stop(&self) {
        self.shared.work.stop();
    }

    /// Waits until nothing is under way any more: no sandbox changes its state, and no build, fetch or
    /// removal runs. The next start finds a removal that was interrupted.
    pub async fn drained(&self) {
        self.shared.work.drained().await;
    }

    /// The limits of all requests.
    #[must_use]
    pub fn limits(&self) -> &Limits {
        &self.shared.config.limits
    }

    /// The capabilities of this machine.
    #[must_use]
    pub fn capabilities(&self) -> &Capabilities {
        self.shared.drivers.capabilities()
    }

    /// The clock.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.shared.clock.now()
    }

    /// The routing table of the data path.
    #[must_use]
    pub fn routes(&self) -> EngineRoutes {
        EngineRoutes::new(self.shared.sandboxes.clone())
    }

    /// Counts the sandboxes by state, and the pools, for the next reading of the gauges.
    pub fn count_states(&self) {
        self.shared.pools.count();
        self.shared.sandboxes.count_states();
    }
}
