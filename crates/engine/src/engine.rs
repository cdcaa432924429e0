//! The engine: its services, put together, and the tasks that run beside them.

mod access;
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

use crate::access::Access;
use crate::build::Turns;
use crate::build_records::BuildRecords;
use crate::catalogue::Catalogues;
use crate::config::{EngineConfig, Limits};
use crate::entropy::{self, NoEntropy};
use crate::guest::Guest;
use crate::images::NodeImages;
use crate::pool::Pools;
use crate::sandboxes::{EngineCatalog, SandboxParts, Sandboxes};
use crate::snapshots::Snapshots;
use crate::stock::Stock;
use crate::tasks::{TaskEnded, Tasks};
use crate::telemetry::Telemetry;
use crate::templates::Templates;
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
    pub(crate) builds: Arc<BuildRecords>,
    pub(crate) snapshots: Arc<Snapshots>,
    pub(crate) sandboxes: Arc<Sandboxes>,
    pub(crate) templates: Templates,
    pub(crate) turns: Turns,
    pub(crate) uploads: Uploads,
    pub(crate) pools: Arc<Pools>,
    pub(crate) stock: Stock,
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

/// Reads keys, teams with their limits, and the secret of the installation.
async fn load_access(
    config: &EngineConfig,
    store: &Arc<dyn Store>,
    driver: &Arc<dyn Driver>,
    clock: &Arc<dyn Clock>,
    work: Work,
) -> Result<Arc<Access>, OpenError> {
    let seed = store.token_seed(entropy::bytes()?).await?;
    let machine = driver.capabilities().clone();
    let (keys, teams) = (store.clone(), store.clone());
    let access = Access::load(keys, teams, clock.clone(), config, machine, seed, work);
    Ok(Arc::new(access.await?))
}

/// Reads the records of snapshots.
async fn load_snapshots(
    store: &Arc<dyn Store>,
    driver: &Arc<dyn Driver>,
    clock: &Arc<dyn Clock>,
    access: &Arc<Access>,
    work: &Work,
) -> Result<Arc<Snapshots>, OpenError> {
    let (store, driver, clock) = (store.clone(), driver.clone(), clock.clone());
    let snapshots = Snapshots::load(store, driver, clock, access.clone(), work.clone());
    Ok(Arc::new(snapshots.await?))
}

impl Engine {
    /// Opens the engine. It serves once [`Engine::recover`] has been called.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub async fn open(parts: EngineParts) -> Result<Self, OpenError> {
        let EngineParts {
            config,
            store,
            driver,
            images,
            guest,
            clock,
        } = parts;
        let work = Work::default();
        let telemetry =
            Telemetry::open(config.logs.clone(), config.logs_per_team).map_err(OpenError::Logs)?;
        let access = load_access(&config, &store, &driver, &clock, work.clone()).await?;
        let catalogues = Catalogues::load(store.clone(), clock.clone(), work.clone()).await?;
        let catalogues = Arc::new(catalogues);
        let images = NodeImages::load(images, store.clone(), work.clone()).await?;
        let builds = BuildRecords::load(store.clone(), driver.clone(), clock.clone()).await?;
        let (telemetry, builds) = (Arc::new(telemetry), Arc::new(builds));
        let snapshots = load_snapshots(&store, &driver, &clock, &access, &work).await?;
        let pools = Arc::new(Pools::default());
        let parts = SandboxParts {
            store: store.clone(),
            driver: driver.clone(),
            guest: guest.clone(),
            clock: clock.clone(),
            telemetry: telemetry.clone(),
            access: access.clone(),
            catalogues: catalogues.clone(),
            builds: builds.clone(),
            snapshots: snapshots.clone(),
            listener: pools.clone(),
            work: work.clone(),
        };
        let sandboxes = Arc::new(Sandboxes::new(&config, parts));
        let templates = Templates::load(store.templates().await?);
        let uploads = Uploads::open(&config).map_err(OpenError::Uploads)?;
        let shared = Shared {
            config,
            store,
            driver,
            guest,
            clock,
            telemetry,
            access,
            catalogues,
            images: Arc::new(images),
            builds,
            snapshots,
            sandboxes,
            templates,
            turns: Turns::default(),
            uploads,
            pools,
            stock: Stock::default(),
            work,
        };
        let shared = Arc::new(shared);
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
