//! Pauses and resumes.

use std::collections::BTreeMap;
use std::sync::Arc;

use shoal_core::detail::Chain;
use shoal_core::driver::{DriverError, PausedNetwork, Start};
use shoal_core::id::ExecutionId;
use shoal_core::sandbox::SandboxRecord;
use shoal_core::snapshot::{Contents, Saved};
use shoal_core::state::{Input, InputKind, Refused, State, StateKind};

use super::Sandbox;
use crate::random;
use crate::sandboxes::command::{PauseRequest, ResumeRequest};
use crate::sandboxes::memory::PATIENCE;
use crate::sandboxes::quota::Load;
use crate::sandboxes::recovery::RecoveryAction;
use crate::telemetry::EventKind;
use shoal_core::ports::inside::InsideError;
use shoal_core::ports::sandboxes::SandboxError;

impl Sandbox {
    /// Saves the sandbox and ends its run. If it cannot be saved it keeps running.
    pub(super) async fn pause(&mut self, request: PauseRequest) -> Result<(), SandboxError> {
        let (state, run) = (self.record.state.kind(), self.record.execution);
        if state == StateKind::Paused && run == request.of {
            return Ok(());
        }
        self.record.state.on(&Input::Pause)?;
        let contents = request.contents.unwrap_or(self.record.spec.persistent);
        if state == StateKind::Parked {
            if contents.has_memory() {
                return self.pause_parked().await;
            }
            // Its memory holds writes that are not in its files.
            self.must_be_awake().await?;
        }
        let driver = self.driver();
        let checkpointer = driver.checkpoints()?;
        self.freeze_guest(contents, request.healthy).await?;
        if let Err(error) = self.advance(&Input::Pause).await {
            self.unfreeze_guest().await;
            return Err(error);
        }
        let paused = checkpointer.pause(&self.record.id, contents);
        // After a power failure the checkpoint is found only if the commit of `Pausing` is on disk.
        let (paused, synced) = tokio::join!(paused, self.sandboxes.parts.store.sync());
        if let Err(error) = synced {
            tracing::error!(sandbox.id = %self.record.id, error = %Chain(&error), "a pause may be lost if the machine fails now");
        }
        match paused {
            Ok(saved) => {
                self.rest(&[Input::Paused(saved)]).await;
                self.unsettled = true;
                self.sandboxes
                    .parts
                    .telemetry
                    .samples
                    .forget(&self.record.id);
                self.emit(EventKind::Paused, BTreeMap::new());
                Ok(())
            }
            Err(error) => {
                self.happened(&Input::PauseFailed).await?;
                self.unfreeze_guest().await;
                Err(error.into())
            }
        }
    }

    /// Commits that it is paused. The checkpoint is on disk, so a failed commit changes nothing: recovery
    /// finds the checkpoint after a restart.
    pub(super) async fn rest(&mut self, inputs: &[Input]) {
        let before = self.record.state.clone();
        let Ok(state) = inputs
            .iter()
            .try_fold(before, |state, input| state.on(input))
        else {
            return;
        };
        if let Some(saved) = state.saved() {
            let is_parked = state.kind() == StateKind::Parked;
            count(saved, if is_parked { "park" } else { "pause" });
        }
        let next = self
            .record
            .with_state(state, self.sandboxes.parts.clock.now());
        if let Err(error) = self.commit(next.clone()).await {
            tracing::error!(sandbox.id = %self.record.id, error = %Chain(&error), "a pause cannot be committed");
            self.show(next);
        }
    }

    /// Resumes a paused sandbox. If that fails it stays paused.
    pub(super) async fn resume(
        &mut self,
        request: ResumeRequest,
    ) -> Result<Arc<SandboxRecord>, SandboxError> {
        if self.record.state.shows_running() {
            if request.found_paused {
                return self.prolong(request.timeout).await;
            }
            // Its users do not know that it is parked.
            return Err(Refused {
                input: InputKind::Resume,
                state: StateKind::Running,
            }
            .into());
        }
        let state = self.record.state.on(&Input::Resume)?;
        let load = Load::kept(&self.record);
        let quota = self.sandboxes.reserve_new(self.record.team, load)?;
        let _admission = self.sandboxes.make_room(PATIENCE).await?;
        let next = SandboxRecord {
            execution: ExecutionId::from_entropy(random::bytes()?),
            ..self
                .record
                .with_state(state, self.sandboxes.parts.clock.now())
        };
        self.commit(next).await?;
        drop(quota);
        let resumed = self.resume_run(request).await;
        if let Err(error) = &resumed {
            tracing::warn!(sandbox.id = %self.record.id, error = %Chain(&error), "cannot thaw a sandbox");
            if let Err(error) = self.roll_back().await {
                tracing::error!(sandbox.id = %self.record.id, error = %Chain(&error), "a run is not cleared yet");
            }
            self.happened(&Input::ResumeFailed).await?;
        }
        resumed
    }

    /// Ends the run of a resume that failed.
    pub(super) async fn roll_back(&self) -> Result<(), DriverError> {
        let driver = self.driver();
        driver.checkpoints()?.rollback_resume(&self.record.id).await
    }

    /// Starts a run from the checkpoint.
    async fn resume_run(
        &mut self,
        request: ResumeRequest,
    ) -> Result<Arc<SandboxRecord>, SandboxError> {
        let start = Start::Paused {
            memory: request.memory,
            network: PausedNetwork::Removed,
        };
        let known = self.sandboxes.parts.access.guest_token(&self.record);
        let started = self.bring_up(start, Some(known)).await;
        let report = started.map_err(|error| match error {
            SandboxError::Guest(inside) => SandboxError::NotResumed(inside),
            error => error,
        })?;
        if let Err(error) = self.run_start_command(&report).await {
            // The user's changes to the files may break the start command. The files matter more.
            tracing::warn!(sandbox.id = %self.record.id, error = %Chain(&error), "a sandbox resumes without the start command of its template");
        }
        self.network_since = self.record.execution;
        let now = self.sandboxes.parts.clock.now();
        let next = SandboxRecord {
            tokens: self.record.tokens.settled(),
            report: Some(report),
            started_at: now,
            deadline: now + request.timeout.min(self.sandboxes.limits.max_timeout),
            ..self.record.with_state(State::Running, now)
        };
        self.commit(next).await?;
        self.unsettled = true;
        self.emit(EventKind::Resumed, BTreeMap::new());
        Ok(self.record.clone())
    }

    /// Prepares the next run after a pause or a park, or deletes the checkpoint after a resume. The caller has
    /// its answer already. Runs before any other command: the next pause needs the place.
    pub(super) async fn settle(&mut self) {
        if !std::mem::take(&mut self.unsettled) {
            return;
        }
        let (driver, id) = (self.driver(), &self.record.id);
        let settled = match (self.record.state.kind(), driver.checkpointer()) {
            (StateKind::Paused, Some(checkpointer)) => {
                checkpointer
                    .prepare_resume(id, PausedNetwork::Removed)
                    .await
            }
            (StateKind::Parked, Some(checkpointer)) => {
                checkpointer.prepare_resume(id, self.network).await
            }
            (StateKind::Running, Some(checkpointer)) => checkpointer.delete_checkpoint(id).await,
            _ => Ok(()),
        };
        if let Err(error) = settled {
            // The next resume prepares itself. A restart or the end of the sandbox deletes the rest.
            tracing::warn!(sandbox.id = %id, error = %Chain(&error), "a sandbox has not settled");
        }
    }

    /// Carries out what recovery decided.
    pub(super) async fn recover(&mut self, action: RecoveryAction) {
        let id = self.record.id.clone();
        let cleared = match action {
            // Its last run may have left something.
            RecoveryAction::Keep
                if matches!(
                    self.record.state.kind(),
                    StateKind::Paused | StateKind::Parked
                ) =>
            {
                self.roll_back().await
            }
            RecoveryAction::Keep => Ok(()),
            RecoveryAction::End(input) => {
                self.observe(input).await;
                Ok(())
            }
            RecoveryAction::KeepRunning(input) => {
                if let Some(input) = input {
                    self.observe(input).await;
                    self.unfreeze_guest().await;
                }
                match self.driver().checkpointer() {
                    Some(checkpointer) => checkpointer.delete_checkpoint(&id).await,
                    None => Ok(()),
                }
            }
            RecoveryAction::KeepPaused(inputs) => {
                let cleared = self.roll_back().await;
                self.rest(&inputs).await;
                cleared
            }
        };
        if let Err(error) = cleared {
            tracing::error!(sandbox.id = %id, error = %Chain(&error), "the leftovers of the previous server are not removed yet");
        }
    }

    /// Announces the checkpoint to the daemon inside. A sandbox whose daemon does not answer is saved
    /// anyway, unless only files are saved: writes that are not synced would be lost.
    pub(super) async fn freeze_guest(
        &mut self,
        contents: Contents,
        healthy: bool,
    ) -> Result<(), SandboxError> {
        let Some(report) = &self.record.report else {
            return Ok(());
        };
        if self.record.spec.privileged && contents.has_memory() {
            // gVisor cannot save the networks of containers, and programs would keep their capabilities.
            let unsupported = DriverError::Unsupported {
                runtime: report.runtime.clone(),
                operation: "save the memory of a privileged sandbox",
                instead: "a pause or a snapshot of the files alone",
            };
            return Err(unsupported.into());
        }
        let token = Some(self.sandboxes.parts.access.guest_token(&self.record));
        let sync = !contents.has_memory();
        let frozen = self
            .sandboxes
            .parts
            .guest
            .freeze(report.address, token, sync);
        let frozen = tokio::select! {
            frozen = frozen => frozen,
            // A kill does not wait for the sync.
            () = self.commands.kill_asked() => {
                self.unfreeze_guest().await;
                return Err(SandboxError::NotFound(self.record.id.clone()));
            }
        };
        match frozen {
            Err(error @ InsideError::Unreachable(_)) if healthy => {
                Err(SandboxError::Unresponsive(error))
            }
            Err(error) if sync && !report.isolation.shares_files() => {
                // It may have frozen its deadlines, and answered too late.
                self.unfreeze_guest().await;
                Err(SandboxError::NotSynced(error))
            }
            Err(error) => {
                tracing::debug!(sandbox.id = %self.record.id, error = %Chain(&error), "saved without its daemon");
                Ok(())
            }
            Ok(()) => Ok(()),
        }
    }

    pub(super) async fn unfreeze_guest(&self) {
        let Some(report) = &self.record.report else {
            return;
        };
        let token = Some(self.sandboxes.parts.access.guest_token(&self.record));
        if let Err(error) = self
            .sandboxes
            .parts
            .guest
            .unfreeze(report.address, token)
            .await
        {
            tracing::debug!(sandbox.id = %self.record.id, error = %Chain(&error), "resumes without its daemon");
        }
    }
}

pub(super) fn count(saved: &Saved, why: &'static str) {
    let labels = [
        ("why", why.to_owned()),
        ("contents", saved.contents.to_string()),
        ("runtime", saved.runtime.to_string()),
    ];
    metrics::counter!("shoal_sandbox_saves_total", &labels).increment(1);
    metrics::histogram!("shoal_sandbox_freeze_seconds", &labels).record(saved.freeze);
}
