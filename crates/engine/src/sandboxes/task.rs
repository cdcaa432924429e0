//! The task of a sandbox: it reads the mailbox, and alone writes the record.

mod change;
mod copy;
mod end_log;
mod member;
mod park;
mod resize;
mod rest;
mod serve;
mod start;
mod start_command;
mod supervise;
mod tokens;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use shoal_core::detail::Chain;
use shoal_core::driver::{PausedNetwork, StartReport};
use shoal_core::id::ExecutionId;
use shoal_core::routes::Route;
use shoal_core::sandbox::{OnTimeout, SandboxRecord};
use shoal_core::snapshot::Contents;
use shoal_core::state::{FailReason, Input, KillReason, StateKind};
use shoal_core::store::Version;
use tokio::sync::{oneshot, watch};
use tracing::{Instrument, Span};

use super::Sandboxes;
use super::activity::SharedActivity;
use super::connect::Connected;
use super::recovery::RecoveryAction;
use super::registry::Published;
use crate::drivers::SandboxDriver;
use crate::telemetry::EventKind;
use shoal_core::ports::create::CreateError;
use shoal_core::ports::sandboxes::SandboxError;

use super::command::{PauseRequest, ResumeRequest};
use super::mailbox::{Commands, mailbox};

/// The delay before a failed removal or pause is retried.
const AGAIN: Duration = Duration::from_secs(10);

/// The task's state.
pub(crate) struct Sandbox {
    sandboxes: Arc<Sandboxes>,
    record: Arc<SandboxRecord>,
    version: Version,
    published: watch::Sender<Published>,
    commands: Commands,
    activity: Arc<SharedActivity>,
    /// Whether [`Sandbox::settle`] must run: a pause or a resume has just been committed.
    unsettled: bool,
    /// What becomes of its network while it is parked. Set by each park.
    network: PausedNetwork,
    /// The run since which it has its network.
    network_since: ExecutionId,
}

impl Sandbox {
    /// Starts the task of a new sandbox, which first starts the sandbox.
    pub(crate) fn spawn_new(
        sandboxes: Arc<Sandboxes>,
        record: SandboxRecord,
        version: Version,
        started: oneshot::Sender<Result<Arc<SandboxRecord>, CreateError>>,
    ) {
        let (owner, id) = (sandboxes.clone(), record.id.clone());
        let mut sandbox = Self::enter(sandboxes, record, version);
        let (under_way, span) = (owner.parts.work.begin(), Span::current());
        supervise::spawn(owner, id, 0, async move {
            let outcome = sandbox.start().instrument(span).await;
            drop(under_way);
            // The caller may have disconnected. The sandbox lives until its deadline.
            let _ = started.send(outcome);
            sandbox.serve().await;
        });
    }

    /// Starts the task of a recovered sandbox, which first carries out `action`.
    pub(crate) fn spawn_found(
        sandboxes: Arc<Sandboxes>,
        record: SandboxRecord,
        version: Version,
        action: RecoveryAction,
    ) {
        Self::spawn_recovered(sandboxes, record, version, action, 0);
    }

    /// Restarts the task of a sandbox after `panics` panics of earlier tasks.
    fn spawn_recovered(
        sandboxes: Arc<Sandboxes>,
        record: SandboxRecord,
        version: Version,
        action: RecoveryAction,
        panics: u32,
    ) {
        let (owner, id) = (sandboxes.clone(), record.id.clone());
        let mut sandbox = Self::enter(sandboxes, record, version);
        supervise::spawn(owner, id, panics, async move {
            sandbox.recover(action).await;
            sandbox.settle_resize().await;
            sandbox.settle_rotation().await;
            sandbox.on_timer().await;
            sandbox.serve().await;
        });
    }

    /// Registers the sandbox with a mailbox.
    fn enter(sandboxes: Arc<Sandboxes>, record: SandboxRecord, version: Version) -> Self {
        let record = Arc::new(record);
        let (mailbox, commands) = mailbox();
        let (network, since) = (PausedNetwork::default(), record.execution);
        let (published, view) = watch::channel(published(&sandboxes, &record, network, since));
        let activity = sandboxes.registry.insert(record.id.clone(), view, mailbox);
        sandboxes.names.note(&record);
        sandboxes.deadlines.set(&record.id, record.wakes_at());
        Self {
            sandboxes,
            record,
            version,
            published,
            commands,
            activity,
            unsettled: false,
            network,
            network_since: since,
        }
    }

    /// Commits the state after `input`, and publishes it.
    async fn advance(&mut self, input: &Input) -> Result<(), SandboxError> {
        let state = self.record.state.on(input)?;
        if state == self.record.state {
            return Ok(());
        }
        let next = self
            .record
            .with_state(state, self.sandboxes.parts.clock.now());
        self.commit(next).await
    }

    /// Commits the state after an input that describes a fact. It is published even if the commit fails:
    /// recovery finds the same fact after a restart.
    async fn happened(&mut self, input: &Input) -> Result<(), SandboxError> {
        let state = self.record.state.on(input)?;
        if let Err(error) = self.advance(input).await {
            tracing::error!(sandbox.id = %self.record.id, error = %Chain(&error), "a change cannot be committed");
            let next = self
                .record
                .with_state(state, self.sandboxes.parts.clock.now());
            self.show(next);
        }
        Ok(())
    }

    async fn commit(&mut self, next: SandboxRecord) -> Result<(), SandboxError> {
        self.version = self
            .sandboxes
            .parts
            .store
            .commit(next.clone(), Some(self.version))
            .await?;
        self.show(next);
        Ok(())
    }

    fn show(&mut self, next: SandboxRecord) {
        self.record = Arc::new(next);
        self.sandboxes.names.note(&self.record);
        self.sandboxes
            .deadlines
            .set(&self.record.id, self.record.wakes_at());
        let now = published(
            &self.sandboxes,
            &self.record,
            self.network,
            self.network_since,
        );
        self.published.send_replace(now);
    }

    /// Whether an event of this run still matters: the run of a paused or parked sandbox has ended already.
    fn is_news(&self, execution: ExecutionId) -> bool {
        let rests = matches!(
            self.record.state.kind(),
            StateKind::Paused | StateKind::Parked
        );
        execution == self.record.execution && !rests
    }

    /// Handles an event of the sandbox. A failed sandbox is removed.
    async fn observe(&mut self, input: Input) {
        if let Input::Failed(reason) = &input {
            tracing::warn!(sandbox.id = %self.record.id, %reason, "a sandbox has stopped");
            self.sandboxes
                .registry
                .note_failure(&self.record.id, reason);
        }
        if let Err(error) = self.advance(&input).await {
            tracing::error!(sandbox.id = %self.record.id, error = %Chain(&error), "a change cannot be committed");
        }
        if self.record.state.kind() == StateKind::Failed {
            self.end(KillReason::Failed).await;
        }
    }

    /// Ends the sandbox, and logs a failure instead of returning it: no caller waits.
    async fn end(&mut self, reason: KillReason) {
        if let Err(error) = self.kill(reason).await {
            tracing::error!(sandbox.id = %self.record.id, error = %Chain(&error), "a sandbox is not cleared yet");
        }
    }

    async fn kill(&mut self, reason: KillReason) -> Result<(), SandboxError> {
        // Even if the commit fails: when the disk is full, ending sandboxes frees space.
        self.happened(&Input::Kill(reason)).await?;
        if let Err(error) = self.driver().destroy(&self.record.id).await {
            let again = self.sandboxes.parts.clock.now() + AGAIN;
            self.sandboxes.deadlines.set(&self.record.id, Some(again));
            return Err(error.into());
        }
        let labels = [
            ("reason", format!("{reason:?}")),
            ("runtime", self.sandboxes.runtime_label(&self.record)),
        ];
        metrics::counter!("shoal_sandbox_kills_total", &labels).increment(1);
        let detail = BTreeMap::from([("reason", format!("{reason:?}"))]);
        self.emit(EventKind::Killed, detail);
        self.happened(&Input::Cleared).await
    }

    /// Handles the deadline, or the timer of a transient state.
    async fn on_timer(&mut self) {
        let due = self
            .record
            .wakes_at()
            .is_some_and(|at| at <= self.sandboxes.parts.clock.now());
        match self.record.state.kind() {
            StateKind::Terminating => self.end(KillReason::Requested).await,
            _ if let Some(ready) = self.ready_since() => self.freeze_idle(ready).await,
            _ if !due => self
                .sandboxes
                .deadlines
                .set(&self.record.id, self.record.wakes_at()),
            StateKind::Running | StateKind::Parked => match self.record.spec.lifecycle.on_timeout {
                OnTimeout::Kill => {
                    // While it is still listed, so that a client that follows the log gets the last line.
                    self.log_the_timeout().await;
                    self.end(KillReason::TimedOut).await;
                }
                OnTimeout::Pause => self.pause_by_itself().await,
            },
            _ => self.observe(Input::Failed(FailReason::Stuck)).await,
        }
    }

    /// Pauses the sandbox at its deadline. If that fails it keeps running, and the pause is retried.
    async fn pause_by_itself(&mut self) {
        let of = self.record.execution;
        let request = |memory| PauseRequest {
            contents: Some(Contents::with_memory(memory)),
            healthy: false,
            of,
        };
        let keep_memory = self.record.spec.lifecycle.keep_memory;
        let mut paused = self.pause(request(keep_memory)).await;
        if let Err(SandboxError::NotSynced(error)) = &paused {
            // Its deadline has passed anyway, and its memory holds the unsynced writes.
            tracing::warn!(sandbox.id = %self.record.id, error = %Chain(&error), "a sandbox is paused with its memory, as its files alone would not be all");
            paused = self.pause(request(true)).await;
        }
        self.settle().await;
        if let Err(error) = paused {
            tracing::error!(sandbox.id = %self.record.id, error = %Chain(&error), "a sandbox cannot be paused");
            let again = self.sandboxes.parts.clock.now() + AGAIN;
            self.sandboxes.deadlines.set(&self.record.id, Some(again));
        }
    }

    async fn connect(&mut self, request: ResumeRequest) -> Result<Connected, SandboxError> {
        if self.record.state.kind() == StateKind::Paused {
            let record = self.resume(request).await?;
            return Ok(Connected {
                record,
                resumed: true,
            });
        }
        self.awake().await?;
        Ok(Connected {
            record: self.prolong(request.timeout).await?,
            resumed: false,
        })
    }

    async fn wake(&mut self, request: ResumeRequest) -> Result<(), SandboxError> {
        let saved = self.record.state.saved();
        let has_memory = saved.is_some_and(|saved| saved.contents.has_memory());
        if self.record.state.kind() == StateKind::Paused && has_memory {
            self.resume(request).await?;
        }
        self.awake().await?;
        self.must_run()
    }

    /// The driver of the sandbox.
    fn driver(&self) -> SandboxDriver {
        self.sandboxes.parts.drivers.of(&self.record)
    }

    fn must_run(&self) -> Result<(), SandboxError> {
        let runs = self.record.state.is_running();
        runs.then_some(())
            .ok_or_else(|| SandboxError::NotFound(self.record.id.clone()))
    }

    /// As [`Sandbox::must_run`], for operations that a parked sandbox allows too.
    fn must_show_running(&self) -> Result<(), SandboxError> {
        let shows = self.record.state.shows_running();
        shows
            .then_some(())
            .ok_or_else(|| SandboxError::NotFound(self.record.id.clone()))
    }

    fn emit(&self, kind: EventKind, detail: BTreeMap<&'static str, String>) {
        // It has no user yet. For its user its life begins with the claim.
        if self.record.pool_member().is_some() {
            return;
        }
        if kind == EventKind::Created && self.record.is_user_visible() {
            let now = self.sandboxes.parts.clock.now();
            self.sandboxes
                .parts
                .telemetry
                .teams
                .note_start(self.record.team, now);
        }
        self.sandboxes.parts.telemetry.events.emit(
            kind,
            self.sandboxes.parts.clock.now(),
            &self.record,
            detail,
        );
    }
}

/// The public view of a sandbox with this record.
fn published(
    sandboxes: &Sandboxes,
    record: &Arc<SandboxRecord>,
    network: PausedNetwork,
    since: ExecutionId,
) -> Published {
    let route = || route_of(sandboxes, record, since);
    Published {
        record: record.clone(),
        route: record.state.is_running().then(route).flatten(),
        parked: record.state.is_parked().then(route).flatten(),
        network,
    }
}

/// The route of the last run of a sandbox. An unclaimed pool member has none.
fn route_of(
    sandboxes: &Sandboxes,
    record: &SandboxRecord,
    network: ExecutionId,
) -> Option<Arc<Route>> {
    let StartReport {
        address,
        runtime,
        keeps_connections,
        ..
    } = record
        .report
        .as_ref()
        .filter(|_| record.pool_member().is_none())?;
    let is_parkable = sandboxes.parking_rules(record).is_some();
    Some(Arc::new(Route {
        sandbox: record.id.clone(),
        team: record.team,
        execution: record.execution,
        runtime: runtime.clone(),
        address: *address,
        guest_token: sandboxes.parts.access.guest_token(record),
        envd_access_token: sandboxes.parts.access.envd_access_token(record),
        traffic_access_token: sandboxes.parts.access.traffic_access_token(record),
        mask_request_host: record.spec.network.mask_request_host.clone(),
        is_parkable,
        keeps_connections: is_parkable && *keeps_connections,
        network,
    }))
}
