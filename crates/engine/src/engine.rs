//! The engine: its services, put together, and the tasks that run beside them.

mod access;
mod planner;
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

use self::planner::EnginePlanner;
use crate::access::Access;
use crate::build_records::BuildRecords;
use crate::builds::{BuildParts, Builds};
use crate::catalogue::Catalogues;
use crate::config::{EngineConfig, Limits};
use crate::entropy::{self, NoEntropy};
use crate::guest::Guest;
use crate::images::NodeImages;
use crate::pool::Pools;
use crate::sandboxes::{EngineCatalog, SandboxParts, Sandboxes};
use crate::snapshots::Snapshots;
use crate::snapshotter::{Snapshotter, SnapshotterParts};
use crate::tasks::{TaskEnded, Tasks};
use crate::telemetry::Telemetry;
use crate::templates::{TemplateParts, Templates};
use crate::uploads::Uploads;
use crate::work::Work;

/// What an engine is made of.
pub struct EngineParts {
    /// What an operator decided.
    pub config: EngineConfig,
    /// Where the truth is kept.
    pub store: Arc<dyn Store>,
    /// What runs sandboxes.
    pub driver: Arc<dyn Driver>,
    /// The images on this node.
    pub images: Arc<dyn Images>,
    /// What talks to the daemons inside.
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
    pub(crate) driver: Arc<dyn Driver>,
    pub(crate) guest: Arc<dyn Guest>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) telemetry: Arc<Telemetry>,
    pub(crate) access: Arc<Access>,
    pub(crate) catalogues: Arc<Catalogues>,
    pub(crate) images: Arc<NodeImages>,
    pub(crate) build_records: Arc<BuildRecords>,
    pub(crate) snapshots: Arc<Snapshots>,
    pub(crate) sandboxes: Arc<Sandboxes>,
    pub(crate) templates: Arc<Templates>,
    pub(crate) snapshotter: Arc<Snapshotter>,
    pub(crate) uploads: Arc<Uploads>,
    pub(crate) builds: Arc<Builds>,
    pub(crate) pools: Arc<Pools>,
    pub(crate) work: Work,
}

/// Why the engine cannot start.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The store cannot be read or written.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The directory of logs cannot be made.
    #[error("cannot make the directory of logs")]
    Logs(#[source] std::io::Error),
    /// The directory of what is sent for builds cannot be made.
    #[error("cannot make the directory of uploads")]
    Uploads(#[source] std::io::Error),
    /// The system has no randomness.
    #[error(transparent)]
    Entropy(#[from] NoEntropy),
}

/// The services that only load records.
struct Records {
    telemetry: Arc<Telemetry>,
    access: Arc<Access>,
    catalogues: Arc<Catalogues>,
    images: Arc<NodeImages>,
    build_records: Arc<BuildRecords>,
    snapshots: Arc<Snapshots>,
    work: Work,
}

impl Records {
    async fn load(parts: &EngineParts) -> Result<Self, OpenError> {
        let (config, store, clock) = (&parts.config, &parts.store, &parts.clock);
        let (driver, work) = (&parts.driver, Work::default());
        let telemetry =
            Telemetry::open(config.logs.clone(), config.logs_per_team).map_err(OpenError::Logs)?;
        let seed = store.token_seed(entropy::bytes()?).await?;
        let machine = driver.capabilities().clone();
        let (keys, teams) = (store.clone(), store.clone());
        let access = Access::load(
            keys,
            teams,
            clock.clone(),
            config,
            machine,
            seed,
            work.clone(),
        );
        let access = Arc::new(access.await?);
        let catalogues = Catalogues::load(store.clone(), clock.clone(), work.clone()).await?;
        let images = NodeImages::load(parts.images.clone(), store.clone(), work.clone()).await?;
        let build_records =
            BuildRecords::load(store.clone(), driver.clone(), clock.clone()).await?;
        let snapshots = Snapshots::load(
            store.clone(),
            driver.clone(),
            clock.clone(),
            access.clone(),
            work.clone(),
        );
        let snapshots = snapshots.await?;
        Ok(Self {
            telemetry: Arc::new(telemetry),
            access,
            catalogues: Arc::new(catalogues),
            images: Arc::new(images),
            build_records: Arc::new(build_records),
            snapshots: Arc::new(snapshots),
            work,
        })
    }

    fn sandboxes(&self, parts: &EngineParts, pools: &Arc<Pools>) -> Sandboxes {
        let services = SandboxParts {
            store: parts.store.clone(),
            driver: parts.driver.clone(),
            guest: parts.guest.clone(),
            clock: parts.clock.clone(),
            telemetry: self.telemetry.clone(),
            access: self.access.clone(),
            catalogues: self.catalogues.clone(),
            builds: self.build_records.clone(),
            snapshots: self.snapshots.clone(),
            listener: pools.clone(),
            work: self.work.clone(),
        };
        Sandboxes::new(&parts.config, services)
    }

    async fn templates(
        &self,
        parts: &EngineParts,
        sandboxes: &Arc<Sandboxes>,
    ) -> Result<Templates, StoreError> {
        let services = TemplateParts {
            store: parts.store.clone(),
            clock: parts.clock.clone(),
            machine: parts.driver.capabilities().clone(),
            access: self.access.clone(),
            build_records: self.build_records.clone(),
            images: self.images.clone(),
            snapshots: self.snapshots.clone(),
            sandboxes: sandboxes.clone(),
        };
        Templates::load(services).await
    }

    fn snapshotter(
        &self,
        parts: &EngineParts,
        sandboxes: &Arc<Sandboxes>,
        templates: &Arc<Templates>,
    ) -> Snapshotter {
        let services = SnapshotterParts {
            driver: parts.driver.clone(),
            clock: parts.clock.clone(),
            access: self.access.clone(),
            snapshots: self.snapshots.clone(),
            sandboxes: sandboxes.clone(),
            templates: templates.clone(),
            work: self.work.clone(),
        };
        Snapshotter::new(&parts.config, services)
    }
}

impl Engine {
    /// Opens the engine. It serves once [`Engine::recover`] has been called.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub async fn open(parts: EngineParts) -> Result<Self, OpenError> {
        let records = Records::load(&parts).await?;
        let pools = Arc::new(Pools::default());
        let sandboxes = Arc::new(records.sandboxes(&parts, &pools));
        let templates = Arc::new(records.templates(&parts, &sandboxes).await?);
        let snapshotter = records.snapshotter(&parts, &sandboxes, &templates);
        let snapshotter = Arc::new(snapshotter);
        let (access, build_records) = (records.access.clone(), records.build_records.clone());
        let uploads = Uploads::open(&parts.config, access, build_records);
        let uploads = Arc::new(uploads.map_err(OpenError::Uploads)?);
        let shared = Arc::new_cyclic(|shared| {
            let services = BuildParts {
                clock: parts.clock.clone(),
                guest: parts.guest.clone(),
                machine: parts.driver.capabilities().clone(),
                access: records.access.clone(),
                records: records.build_records.clone(),
                images: records.images.clone(),
                sandboxes: sandboxes.clone(),
                templates: templates.clone(),
                uploads: uploads.clone(),
                planner: EnginePlanner::new(shared.clone()),
                work: records.work.clone(),
            };
            let builds = Arc::new(Builds::new(&parts.config, services));
            Shared {
                config: parts.config,
                store: parts.store,
                driver: parts.driver,
                guest: parts.guest,
                clock: parts.clock,
                telemetry: records.telemetry,
                access: records.access,
                catalogues: records.catalogues,
                images: records.images,
                build_records: records.build_records,
                snapshots: records.snapshots,
                sandboxes,
                templates,
                snapshotter,
                uploads,
                builds,
                pools,
                work: records.work,
            }
        });
        Ok(Self { shared })
    }

    /// Starts what happens by itself: deadlines, news from the driver, samples, forgetting, pools.
    /// One call. A task that ends must end the server: see [`Tasks`].
    pub fn spawn_tasks(&self, tasks: &mut Tasks) {
        let sandboxes = || self.shared.sandboxes.clone();
        let of = sandboxes();
        tasks.spawn("deadlines", async move { of.watch_deadlines().await });
        let of = sandboxes();
        tasks.spawn("driver events", async move { of.watch_driver().await });
        let of = sandboxes();
        tasks.spawn("samples", async move { of.sample_for_ever().await });
        let of = sandboxes();
        tasks.spawn("retention", async move { of.forget_for_ever().await });
        let snapshots = self.shared.snapshots.clone();
        tasks.spawn("snapshot expiry", async move {
            snapshots.expire_for_ever().await;
        });
        let engine = self.clone();
        tasks.spawn("pools", async move { engine.keep_pools().await });
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
    /// removal runs. What is cut off earlier is found by the next start.
    pub async fn drained(&self) {
        self.shared.work.drained().await;
    }

    /// What no request may exceed.
    #[must_use]
    pub fn limits(&self) -> &Limits {
        &self.shared.config.limits
    }

    /// What can be run here.
    #[must_use]
    pub fn capabilities(&self) -> &Capabilities {
        self.shared.driver.capabilities()
    }

    /// What time it is.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.shared.clock.now()
    }

    /// What the data path asks.
    #[must_use]
    pub fn catalog(&self) -> EngineCatalog {
        EngineCatalog::new(self.shared.sandboxes.clone())
    }

    /// Counts the sandboxes by state, and the pools, for the next reading of the gauges.
    pub fn count_states(&self) {
        self.count_pools();
        self.shared.sandboxes.count_states();
    }
}
