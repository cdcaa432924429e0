//! Parks an idle sandbox, and wakes it.

use std::collections::BTreeMap;
use std::time::Duration;

use shoal_core::clock::Timestamp;
use shoal_core::detail::Chain;
use shoal_core::driver::{PausedNetwork, Start, StartReport};
use shoal_core::id::ExecutionId;
use shoal_core::parking::Inside;
use shoal_core::sandbox::SandboxRecord;
use shoal_core::snapshot::{Contents, Saved};
use shoal_core::state::{Input, State, StateKind};
use shoal_protocol::activity::Activity;
use tokio::time::Instant;

use super::Sandbox;
use crate::random;
use crate::sandboxes::parking::may_park;
use crate::telemetry::EventKind;
use shoal_core::ports::sandboxes::SandboxError;

impl Sandbox {
    /// Parks the sandbox, if nothing has used it since `idle_since` and nothing runs in it. If it cannot
    /// be saved it keeps running, and is not tried again for a while.
    pub(super) async fn park(&mut self, idle_since: Timestamp) -> Result<(), SandboxError> {
        let entered = self.record.since;
        let is_idle = may_park(&self.record)
            && self.activity.with(|activity| {
                activity.idle_since(entered) == Some(idle_since) && activity.close()
            });
        if !is_idle {
            return Ok(());
        }
        let parked = self.save_and_stop().await;
        if let Err(error) = &parked {
            self.park_failed(error);
        }
        // Requests that were refused in the meantime wait for the wake.
        self.activity.with(shoal_core::parking::Activity::reopen);
        parked
    }

    fn park_failed(&self, error: &SandboxError) {
        let id = &self.record.id;
        match error {
            // A kill came first, or the daemon is too old to say what runs.
            SandboxError::NotFound(_) | SandboxError::Guest(_) => {
                tracing::debug!(sandbox.id = %id, error = %Chain(error), "an idle sandbox is not parked");
            }
            error => {
                tracing::warn!(sandbox.id = %id, error = %Chain(error), "an idle sandbox cannot be parked");
                self.count_park("failed");
            }
        }
        if let Some(rules) = self.sandboxes.parking_rules(&self.record) {
            let now = self.sandboxes.parts.clock.now();
            self.activity.with(|activity| activity.failed(now, &rules));
        }
    }

    async fn save_and_stop(&mut self) -> Result<(), SandboxError> {
        if !self.is_idle_inside().await? {
            let now = self.sandboxes.parts.clock.now();
            self.activity.with(|activity| activity.touch(now));
            return Ok(());
        }
        self.save_now().await
    }

    /// Saves the sandbox with its memory and ends it. If that fails it keeps running.
    pub(super) async fn save_now(&mut self) -> Result<(), SandboxError> {
        let driver = self.driver();
        let checkpointer = driver.checkpoints()?;
        self.freeze_guest(Contents::Memory, true).await?;
        // No request is under way, and so none that becomes a connection.
        self.network = match self.activity.with(|activity| activity.is_connected()) {
            true => PausedNetwork::Kept,
            false => PausedNetwork::Removed,
        };
        if let Err(error) = self.advance(&Input::Park).await {
            self.unfreeze_guest().await;
            return Err(error);
        }
        let saved = checkpointer.pause(&self.record.id, Contents::Memory);
        // After a power failure the checkpoint is found only if the commit of `Parking` is on disk.
        let (saved, synced) = tokio::join!(saved, self.sandboxes.parts.store.sync());
        if let Err(error) = synced {
            tracing::error!(sandbox.id = %self.record.id, error = %Chain(&error), "a parked sandbox may be lost if the machine fails now");
        }
        match saved {
            Ok(saved) => {
                self.stopped(saved).await;
                Ok(())
            }
            Err(error) => {
                self.happened(&Input::PauseFailed).await?;
                self.unfreeze_guest().await;
                Err(error.into())
            }
        }
    }

    /// Commits that the sandbox is parked as this checkpoint.
    async fn stopped(&mut self, saved: Saved) {
        let bytes = saved.memory_bytes;
        self.rest(&[Input::Paused(saved)]).await;
        self.unsettled = true;
        self.count_park("parked");
        tracing::info!(sandbox.id = %self.record.id, bytes, "parked a sandbox");
        let detail = BTreeMap::from([("bytes", bytes.to_string())]);
        self.emit(EventKind::Parked, detail);
    }

    /// Whether nothing runs in the sandbox that a park would interrupt.
    ///
    /// # Errors
    /// When its daemon does not say.
    async fn is_idle_inside(&self) -> Result<bool, SandboxError> {
        Ok(self.look_inside().await?.is_some_and(Inside::is_idle))
    }

    /// The daemon's view of the sandbox; none if it has no run.
    ///
    /// # Errors
    /// When its daemon does not say.
    pub(super) async fn look_inside(&self) -> Result<Option<Inside>, SandboxError> {
        let Some(report) = &self.record.report else {
            return Ok(None);
        };
        let parts = &self.sandboxes.parts;
        let token = Some(parts.access.guest_token(&self.record));
        let activity = parts.guest.activity(report.address, token).await?;
        Ok(Some(self.inside(&activity)))
    }

    /// The programs and connections inside. The start command of the template is no program of the user's.
    fn inside(&self, activity: &Activity) -> Inside {
        let start = self.record.spec.start.as_ref();
        let is_start = |line: &Vec<String>| {
            let line = line.iter().map(String::as_str);
            start.is_some_and(|start| line.eq(["/bin/bash", "-l", "-c", start.command.as_str()]))
        };
        let started = activity.commands.iter().filter(|line| is_start(line));
        let own = activity.commands.len() - started.count().min(1);
        Inside {
            programs: own + activity.orphans,
            connections: activity.connections,
        }
    }

    /// Makes a parked sandbox a paused one: its checkpoint is that of a pause.
    pub(super) async fn pause_parked(&mut self) -> Result<(), SandboxError> {
        self.advance(&Input::Pause).await?;
        // Its connections have ended with that, and its network goes.
        self.unsettled |= self.network == PausedNetwork::Kept;
        let samples = &self.sandboxes.parts.telemetry.samples;
        samples.forget(&self.record.id);
        self.emit(EventKind::Paused, BTreeMap::new());
        Ok(())
    }

    /// Wakes the sandbox if it is parked, and completes that, so that it can be saved again.
    pub(super) async fn must_be_awake(&mut self) -> Result<(), SandboxError> {
        self.awake().await?;
        self.settle().await;
        Ok(())
    }

    /// Wakes the sandbox if it is parked, and counts a use of it. If that fails it stays parked, and the
    /// next use tries again.
    pub(super) async fn awake(&mut self) -> Result<(), SandboxError> {
        if self.record.state.kind() == StateKind::Parked {
            // Its users see it running, so it is not refused.
            let admission = self.sandboxes.make_room(Duration::ZERO).await;
            if let Err(short) = &admission {
                tracing::warn!(sandbox.id = %self.record.id, error = %Chain(short), "a parked sandbox wakes nevertheless");
            }
            let began = Instant::now();
            let parked_at = self.record.since;
            let state = self.record.state.on(&Input::Wake)?;
            let now = self.sandboxes.parts.clock.now();
            let next = SandboxRecord {
                execution: ExecutionId::from_entropy(random::bytes()?),
                ..self.record.with_state(state, now)
            };
            self.commit(next).await?;
            let woken = self.wake_run().await;
            self.count_wake(woken.is_ok(), began.elapsed());
            if let Err(error) = woken {
                return Err(self.stays_parked(error).await);
            }
            if let Some(rules) = self.sandboxes.parking_rules(&self.record) {
                let parked = now.since(parked_at);
                self.activity
                    .with(|activity| activity.woken(parked, &rules));
            }
            tracing::info!(sandbox.id = %self.record.id, seconds = began.elapsed().as_secs_f64(), "woke a parked sandbox");
            self.emit(EventKind::Woken, BTreeMap::new());
        }
        let now = self.sandboxes.parts.clock.now();
        self.activity.with(|activity| activity.touch(now));
        Ok(())
    }

    /// Ends the run of a wake that failed.
    async fn stays_parked(&mut self, error: SandboxError) -> SandboxError {
        tracing::warn!(sandbox.id = %self.record.id, error = %Chain(&error), "cannot wake a sandbox");
        if let Err(error) = self.roll_back().await {
            tracing::error!(sandbox.id = %self.record.id, error = %Chain(&error), "a run is not cleared yet");
        }
        self.network = PausedNetwork::Removed;
        match self.happened(&Input::ResumeFailed).await {
            Ok(()) => SandboxError::NotWoken(Box::new(error)),
            Err(refused) => refused,
        }
    }

    /// Starts a run from the checkpoint. The deadline and the reported start stay as they are.
    async fn wake_run(&mut self) -> Result<(), SandboxError> {
        let known = self.sandboxes.parts.access.guest_token(&self.record);
        let start = Start::Paused {
            memory: true,
            network: self.network,
        };
        let report = self.bring_up(start, Some(known)).await?;
        let before = self.record.report.as_ref().map(|before| before.address);
        if self.network == PausedNetwork::Removed || before != Some(report.address) {
            self.network_since = self.record.execution;
        }
        let report = match &self.record.report {
            Some(before) => StartReport {
                origin: before.origin,
                phases: before.phases,
                ..report
            },
            None => report,
        };
        let now = self.sandboxes.parts.clock.now();
        let next = SandboxRecord {
            tokens: self.record.tokens.settled(),
            report: Some(report),
            ..self.record.with_state(State::Running, now)
        };
        self.commit(next).await?;
        self.unsettled = true;
        Ok(())
    }

    pub(super) fn count_park(&self, outcome: &'static str) {
        let labels = [
            ("outcome", outcome.to_owned()),
            ("runtime", self.sandboxes.runtime_label(&self.record)),
        ];
        metrics::counter!("shoal_sandbox_parks_total", &labels).increment(1);
    }

    fn count_wake(&self, succeeded: bool, took: Duration) {
        let outcome = if succeeded { "woken" } else { "failed" };
        let labels = [
            ("outcome", outcome.to_owned()),
            ("runtime", self.sandboxes.runtime_label(&self.record)),
        ];
        metrics::counter!("shoal_sandbox_wakes_total", &labels).increment(1);
        metrics::histogram!("shoal_sandbox_wake_seconds", &labels).record(took);
    }
}
