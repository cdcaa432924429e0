//! The engine: its services, put together, and the tasks that run beside them.

mod access;
mod snapshots;
mod telemetry;
mod templates;

use std::collections::BTreeMap;
use std::sync::Arc;

use shoal_core::auth::{Principal, SandboxPermit};
use shoal_core::clock::{Clock, Timestamp};
use shoal_core::driver::{Capabilities, Driver, DriverEvent};
use shoal_core::id::SandboxId;
use shoal_core::image::Images;
pub use shoal_core::ports::sandboxes::SandboxError;
use shoal_core::sandbox::SandboxRecord;
use shoal_core::state::{Input, StateKind};
use shoal_core::store::{Store, StoreError};
use tokio::sync::oneshot;

use crate::access::Access;
use crate::build::Turns;
use crate::build_records::BuildRecords;
use crate::catalog::{EngineCatalog, Entries};
use crate::catalogue::Catalogues;
use crate::config::{EngineConfig, Limits};
use crate::deadlines::Deadlines;
use crate::entropy::{self, NoEntropy};
use crate::guest::Guest;
use crate::images::NodeImages;
use crate::names::Names;
use crate::pool::Pools;
use crate::room::Coming;
use crate::sandbox::{NotTaken, Order};
use crate::snapshots::Snapshots;
use crate::stock::Stock;
use crate::tasks::{TaskEnded, Tasks};
use crate::telemetry::Telemetry;
use crate::templates::Templates;
use crate::uploads::Uploads;

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
    pub(crate) entries: Entries,
    pub(crate) coming: Coming,
    pub(crate) names: Names,
    pub(crate) deadlines: Deadlines,
    pub(crate) templates: Templates,
    pub(crate) turns: Turns,
    pub(crate) uploads: Uploads,
    pub(crate) pools: Pools,
    pub(crate) stock: Stock,
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
        let telemetry =
            Telemetry::open(config.logs.clone(), config.logs_per_team).map_err(OpenError::Logs)?;
        let seed = store.token_seed(entropy::bytes()?).await?;
        let machine = driver.capabilities().clone();
        let access = Access::load(
            store.clone(),
            store.clone(),
            clock.clone(),
            &config,
            machine,
            seed,
        );
        let access = Arc::new(access.await?);
        let catalogues = Catalogues::load(store.clone(), clock.clone()).await?;
        let images = NodeImages::load(images, store.clone()).await?;
        let builds = BuildRecords::load(store.clone(), driver.clone(), clock.clone()).await?;
        let snapshots =
            Snapshots::load(store.clone(), driver.clone(), clock.clone(), access.clone());
        let snapshots = snapshots.await?;
        let templates = Templates::load(store.templates().await?);
        let uploads = Uploads::open(&config).map_err(OpenError::Uploads)?;
        let shared = Shared {
            config,
            store,
            driver,
            guest,
            clock,
            telemetry: Arc::new(telemetry),
            access,
            catalogues: Arc::new(catalogues),
            images: Arc::new(images),
            builds: Arc::new(builds),
            snapshots: Arc::new(snapshots),
            entries: Entries::default(),
            coming: Coming::default(),
            names: Names::default(),
            deadlines: Deadlines::default(),
            templates,
            turns: Turns::default(),
            uploads,
            pools: Pools::default(),
            stock: Stock::default(),
        };
        Ok(Self {
            shared: Arc::new(shared),
        })
    }

    /// Starts what happens by itself: deadlines, news from the driver, samples, forgetting, pools.
    /// One call. A task that ends must end the server: see [`Tasks`].
    pub fn spawn_tasks(&self, tasks: &mut Tasks) {
        let shared = || self.shared.clone();
        let of = shared();
        tasks.spawn("deadlines", async move { of.watch_deadlines().await });
        let of = shared();
        tasks.spawn("driver events", async move { of.watch_driver().await });
        let of = shared();
        tasks.spawn("samples", async move { of.sample_for_ever().await });
        let of = shared();
        tasks.spawn("retention", async move { of.forget_for_ever().await });
        let of = shared();
        tasks.spawn("snapshot expiry", async move {
            of.snapshots.expire_for_ever().await;
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
        EngineCatalog::new(self.shared.clone())
    }

    /// The right of `principal` to a sandbox that lives, with what is known of it.
    ///
    /// # Errors
    /// [`SandboxError::NotFound`] when there is none, or it is another tenant's.
    pub fn authorize(
        &self,
        principal: &Principal,
        id: &SandboxId,
    ) -> Result<(SandboxPermit, Arc<SandboxRecord>), SandboxError> {
        let record = self
            .shared
            .entries
            .record(id)
            .filter(|record| record.is_anybodys());
        record
            .and_then(|record| Some((SandboxPermit::grant(principal, &record)?, record)))
            .ok_or_else(|| SandboxError::NotFound(id.clone()))
    }

    /// Counts the sandboxes by state, and the pools, for whoever reads the gauges next.
    pub fn count_states(&self) {
        self.count_pools();
        let mut counts: BTreeMap<(String, String), u32> = BTreeMap::new();
        // Also where there is none, or none any more: a gauge keeps what it showed last.
        for runtime in &self.capabilities().runtimes {
            for kind in StateKind::ALL {
                counts.insert((runtime.name.to_string(), kind.to_string()), 0);
            }
        }
        for record in self.shared.entries.records() {
            let runtime = self.shared.runtime_label(&record);
            let state = record.state.kind().to_string();
            *counts.entry((runtime, state)).or_default() += 1;
        }
        for ((runtime, state), count) in counts {
            let labels = [("state", state), ("runtime", runtime)];
            metrics::gauge!("shoal_sandboxes", &labels).set(count);
        }
    }
}

impl Shared {
    /// What a sandbox runs in, for figures: what has run says it, then what was asked for. A name
    /// that nothing here has is anybody's word, of which there are too many for a label.
    pub(crate) fn runtime_label(&self, record: &SandboxRecord) -> String {
        let runtimes = &self.driver.capabilities().runtimes;
        let ran = record.report.as_ref().map(|report| &report.runtime);
        let name = match ran.or(record.spec.runtime.as_ref()) {
            Some(name) => runtimes.iter().any(|r| r.name == *name).then_some(name),
            None => runtimes.first().map(|usual| &usual.name),
        };
        name.map_or_else(|| "unknown".to_owned(), ToString::to_string)
    }

    /// Gives an order to a sandbox's task and waits for its answer.
    pub(crate) async fn order<T>(
        &self,
        id: &SandboxId,
        order: impl FnOnce(oneshot::Sender<Result<T, SandboxError>>) -> Order,
    ) -> Result<T, SandboxError> {
        let gone = || self.gone(id);
        let (reply, answer) = oneshot::channel();
        let mailbox = self.entries.mailbox(id).ok_or_else(gone)?;
        let given = mailbox.give(order(reply)).await;
        given.map_err(|refused| match refused {
            NotTaken::Full => SandboxError::Busy(id.clone()),
            NotTaken::Ended => gone(),
        })?;
        answer.await.map_err(|_| gone())?
    }

    /// Why the task of a sandbox does not answer. The entry of one that has ended is removed before
    /// its mailbox closes.
    pub(crate) fn gone(&self, id: &SandboxId) -> SandboxError {
        match self.entries.record(id) {
            Some(_) => SandboxError::Interrupted(id.clone()),
            None => SandboxError::NotFound(id.clone()),
        }
    }

    /// Forgets a sandbox that has ended.
    pub(crate) fn forget_sandbox(&self, id: &SandboxId) {
        let record = self.entries.record(id);
        self.deadlines.set(id, None);
        self.telemetry.samples.forget(id);
        self.entries.remove(id);
        if let Some(membership) = record.as_deref().and_then(SandboxRecord::membership) {
            self.pools.gone(&membership.entry, id);
        }
    }

    async fn watch_deadlines(&self) {
        loop {
            let id = self.deadlines.due(&self.clock).await;
            if let Some(mailbox) = self.entries.mailbox(&id) {
                // A full mailbox has a task behind it that will look at its deadline anyway.
                let _ = mailbox.try_give(Order::Look);
            }
        }
    }

    async fn watch_driver(&self) {
        while let Some(event) = self.driver.next_event().await {
            match event {
                DriverEvent::Failed {
                    id,
                    execution,
                    reason,
                } => {
                    if let Some(mailbox) = self.entries.mailbox(&id) {
                        // Waits when the mailbox is full: this must not be lost. A task that has
                        // ended needs no news.
                        let news = Order::Observed {
                            execution,
                            input: Input::Failed(reason),
                        };
                        let _ = mailbox.send(news).await;
                    }
                }
                DriverEvent::Output { id, lines } => {
                    // Of one that is gone nobody asks.
                    if let Some(record) = self.entries.record(&id) {
                        let now = self.clock.now();
                        self.telemetry
                            .logs
                            .append(record.team, &id, lines, now)
                            .await;
                    }
                }
            }
        }
    }
}
