//! Sandboxes: the registry, a task for each sandbox with its mailbox, deadlines and quotas.
//!
//! Other parts of the engine hear of an ended sandbox through [`Listener`]: nothing here depends on
//! templates, builds or pools.

mod activity;
mod command;
mod connect;
mod copy;
mod deadlines;
mod find;
mod fork;
mod kill;
mod launch;
mod list;
mod mailbox;
mod member_command;
mod memory;
mod names;
mod open;
mod parking;
mod pause;
mod quota;
mod recovery;
mod registry;
mod reserve;
mod resize;
mod retention;
mod rotate_tokens;
mod routes;
mod sampling;
mod set_network;
mod set_timeout;
mod task;
mod team_views;
mod usage;
mod wake;
mod waking;
mod watch;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use shoal_core::auth::{Principal, SandboxPermit};
use shoal_core::clock::Clock;
use shoal_core::id::SandboxId;
use shoal_core::parking::ParkingSettings;
use shoal_core::sandbox::SandboxRecord;
use shoal_core::state::{State, StateKind};
use shoal_core::store::SandboxStore;
use tokio::sync::{Semaphore, oneshot};

pub use self::connect::Connected;
pub use self::list::{ListFilter, ListOrder, Page, PageToken};
pub use self::names::NameError;
pub use self::quota::QuotaExceeded;
pub use self::resize::{Infeasible, Resize};
pub(crate) use self::routes::EngineRoutes;
pub use self::set_timeout::TimeoutTooLong;
pub use self::usage::Use;

pub(crate) use self::command::{
    ClaimRequest, Claiming, Command, HandOutError, SnapshotNote, SnapshotRequest,
};
pub(crate) use self::member_command::{command, ended, within};
pub(crate) use self::quota::{Load, QuotaReservation};
pub(crate) use self::recovery::{RecoveryAction, resolve};

use self::deadlines::Deadlines;
use self::mailbox::{Mailbox, NotTaken};
use self::memory::Starts;
use self::names::Names;
use self::quota::SharedReservations;
use self::registry::SandboxRegistry;
use crate::access::Access;
use crate::catalogue::Catalogues;
use crate::config::{EngineConfig, Limits};
use crate::drivers::Drivers;
use crate::guest::Guest;
use crate::snapshots::Snapshots;
use crate::telemetry::Telemetry;
use crate::work::Work;
use shoal_core::ports::sandboxes::SandboxError;

/// Receives the facts about sandboxes for the services that depend on them.
pub(crate) trait Listener: Send + Sync {
    /// A sandbox has ended, and is in the registry no longer.
    fn ended(&self, record: &SandboxRecord);
}

/// The dependencies of [`Sandboxes`].
pub(crate) struct SandboxParts {
    pub(crate) store: Arc<dyn SandboxStore>,
    pub(crate) drivers: Arc<Drivers>,
    pub(crate) guest: Arc<dyn Guest>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) telemetry: Arc<Telemetry>,
    pub(crate) access: Arc<Access>,
    pub(crate) catalogues: Arc<Catalogues>,
    pub(crate) snapshots: Arc<Snapshots>,
    pub(crate) listener: Arc<dyn Listener>,
    pub(crate) work: Work,
}

/// The sandboxes of this machine.
pub(crate) struct Sandboxes {
    parts: SandboxParts,
    limits: Limits,
    sample_every: Duration,
    keep_ended: Duration,
    registry: SandboxRegistry,
    reservations: SharedReservations,
    names: Names,
    deadlines: Deadlines,
    parking: Option<ParkingSettings>,
    parks: Arc<Semaphore>,
    starts: Arc<Starts>,
}

impl Sandboxes {
    pub(crate) fn new(config: &EngineConfig, parts: SandboxParts) -> Self {
        Self {
            parts,
            limits: config.limits.clone(),
            sample_every: config.sample_every,
            keep_ended: config.keep_ended,
            registry: SandboxRegistry::default(),
            reservations: SharedReservations::default(),
            names: Names::default(),
            deadlines: Deadlines::default(),
            parking: config.parking,
            parks: Arc::new(Semaphore::new(parking::AT_ONCE)),
            starts: Arc::default(),
        }
    }

    /// All records, in no order.
    pub(crate) fn records(&self) -> Vec<Arc<SandboxRecord>> {
        self.registry.records()
    }

    /// The record of a sandbox.
    pub(crate) fn record(&self, id: &SandboxId) -> Option<Arc<SandboxRecord>> {
        self.registry.record(id)
    }

    /// The mailbox of a sandbox's task.
    pub(crate) fn mailbox(&self, id: &SandboxId) -> Option<Mailbox> {
        self.registry.mailbox(id)
    }

    /// Resolves when the sandbox has ended; at once if there is none.
    pub(crate) fn ended(&self, id: &SandboxId) -> impl Future<Output = ()> + use<> {
        self.registry.ended(id)
    }

    /// The permit of `principal` for a live sandbox, with its record.
    ///
    /// # Errors
    /// [`SandboxError::NotFound`] when there is none, or it is another tenant's.
    pub(crate) fn authorize(
        &self,
        principal: &Principal,
        id: &SandboxId,
    ) -> Result<(SandboxPermit, Arc<SandboxRecord>), SandboxError> {
        let record = self
            .registry
            .record(id)
            .filter(|record| record.is_user_visible());
        record
            .and_then(|record| Some((SandboxPermit::grant(principal, &record)?, record)))
            .ok_or_else(|| SandboxError::NotFound(id.clone()))
    }

    /// Sends a message to a sandbox's task and waits for the answer.
    pub(crate) async fn call<T>(
        &self,
        id: &SandboxId,
        command: impl FnOnce(oneshot::Sender<Result<T, SandboxError>>) -> Command,
    ) -> Result<T, SandboxError> {
        let gone = || self.gone(id);
        let (reply, answer) = oneshot::channel();
        let mailbox = self.registry.mailbox(id).ok_or_else(gone)?;
        let sent = mailbox.send(command(reply)).await;
        sent.map_err(|refused| match refused {
            NotTaken::Full => SandboxError::Busy(id.clone()),
            NotTaken::Ended => gone(),
        })?;
        answer.await.map_err(|_| gone())?
    }

    /// Why the task of a sandbox does not answer. The entry of one that has ended is removed before
    /// its mailbox closes.
    pub(crate) fn gone(&self, id: &SandboxId) -> SandboxError {
        match self.registry.record(id) {
            Some(_) => SandboxError::Interrupted(id.clone()),
            None => SandboxError::NotFound(id.clone()),
        }
    }

    /// Forgets a sandbox that has ended.
    fn forget(&self, id: &SandboxId) {
        let record = self.registry.record(id);
        self.deadlines.set(id, None);
        self.parts.telemetry.samples.forget(id);
        self.registry.remove(id);
        if let Some(record) = record {
            self.parts.listener.ended(&record);
        }
    }

    /// Counts the sandboxes by state, for the next reading of the gauges.
    pub(crate) fn count_states(&self) {
        let mut counts: BTreeMap<(String, String), u32> = BTreeMap::new();
        // Zero counts too: a gauge keeps its last value.
        for runtime in &self.parts.drivers.capabilities().runtimes {
            for kind in StateKind::ALL {
                counts.insert((runtime.name.to_string(), kind.to_string()), 0);
            }
        }
        let mut parked = 0;
        for record in self.registry.records() {
            if let State::Parked(saved) = &record.state {
                parked += saved.memory_bytes;
            }
            let runtime = self.runtime_label(&record);
            let state = record.state.kind().to_string();
            *counts.entry((runtime, state)).or_default() += 1;
        }
        for ((runtime, state), count) in counts {
            let labels = [("state", state), ("runtime", runtime)];
            metrics::gauge!("shoal_sandboxes", &labels).set(count);
        }
        #[expect(clippy::cast_precision_loss, reason = "a gauge needs few digits")]
        metrics::gauge!("shoal_sandbox_parked_bytes").set(parked as f64);
    }

    /// The runtime of a sandbox as a label of metrics: the one that ran it, or else the requested one.
    /// Unknown names come from callers, and would be too many labels.
    pub(crate) fn runtime_label(&self, record: &SandboxRecord) -> String {
        let runtimes = &self.parts.drivers.capabilities().runtimes;
        let ran = record.report.as_ref().map(|report| &report.runtime);
        let name = match ran.or(record.spec.runtime.as_ref()) {
            Some(name) => runtimes.iter().any(|r| r.name == *name).then_some(name),
            None => runtimes.first().map(|usual| &usual.name),
        };
        name.map_or_else(|| "unknown".to_owned(), ToString::to_string)
    }
}
