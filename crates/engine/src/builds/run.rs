//! Runs a build: its stages in order, each step on the result of the one before.

use std::sync::Arc;

use shoal_core::auth::Principal;
use shoal_core::build::{
    Action, BuildFailure, BuildLayer, BuildOutput, BuildRecord, BuildState, BuildStatus, LogLevel,
    Part, Plan, Source, Stage, StartCommand, Step,
};
use shoal_core::detail::Chain;
use shoal_core::id::TeamId;
use shoal_core::sandbox::{Purpose, SandboxSpec, SnapshotOrigin};
use shoal_core::snapshot::Contents;
use shoal_core::state::KillReason;
use shoal_core::store::StoreError;

use super::Builds;
use super::keys::LayerKey;
use super::sandbox::{BuildLocation, BuildSandbox};
use crate::build_records::Build;
use crate::sandboxes::Command;
use shoal_core::ports::inside::SandboxCommand;

/// The files that the next step of a stage starts from, with the state that steps inherit.
#[derive(Debug, Clone)]
pub(super) struct StageBase {
    /// The specification of a sandbox with these files.
    pub(super) spec: SandboxSpec,
    /// The digest of everything that led to them.
    pub(super) key: LayerKey,
    /// The user, directory and environment of the next step.
    pub(super) state: BuildState,
    /// The start command that the base itself has.
    pub(super) start: Option<StartCommand>,
}

/// The failure of a build that a stop of the server ends.
pub(super) const INTERRUPTED: &str = "the server was restarted during the build: build it again";

/// One run of a build.
pub(super) struct Run<'a> {
    pub(super) builds: &'a Arc<Builds>,
    pub(super) principal: &'a Principal,
    pub(super) build: &'a Build,
    /// The results of the stages that are finished.
    pub(super) done: Vec<StageBase>,
    /// From here on, cached layers are ignored.
    force: bool,
}

impl Builds {
    /// Runs a build to its end, successful or not. Leaves no sandbox behind.
    #[tracing::instrument(level = "debug", name = "build", skip_all, fields(build.id = %build.record().id))]
    pub(super) async fn run(self: &Arc<Self>, principal: &Principal, build: &Build, plan: Plan) {
        let mut cancelled = build.cancelled.subscribe();
        let outcome = tokio::select! {
            outcome = self.run_in_turn(principal, build, plan) => outcome,
            _ = cancelled.wait_for(|cancelled| *cancelled) => Err(BuildFailure::whole("the build was cancelled")),
            () = self.parts.work.stopping() => Err(BuildFailure::whole(INTERRUPTED)),
        };
        self.end_sandboxes(build).await;
        let outcome = match outcome {
            Ok(made) => self.keep_output(principal, build, made).await.map_err(|e| {
                let at = BuildLocation {
                    part: Part::Finalize,
                    line: None,
                };
                at.failure(format_args!("what was built is not kept: {e}"))
            }),
            Err(failure) => Err(failure),
        };
        if let Err(failure) = outcome {
            let changing = self.parts.records.changing.lock().await;
            let failed = self.fail(build, failure).await;
            drop(changing);
            match failed {
                Ok(dropped) => self.parts.records.release(dropped).await,
                Err(error) => {
                    tracing::error!(build.id = %build.record().id, error = %Chain(&error), "the end of a build is not kept");
                }
            }
        }
        self.parts.records.release_held(build).await;
        build.end();
    }

    async fn run_in_turn(
        self: &Arc<Self>,
        principal: &Principal,
        build: &Build,
        plan: Plan,
    ) -> Result<BuildOutput, BuildFailure> {
        let at = BuildLocation {
            part: Part::Base,
            line: None,
        };
        let _slot = self.queue.acquire(principal.team).await;
        let mut run = Run {
            builds: self,
            principal,
            build,
            done: Vec::new(),
            force: plan.force,
        };
        let last = plan.stages.len().saturating_sub(1);
        for (number, stage) in plan.stages.iter().enumerate() {
            let bare = !plan.is_worked_in(number);
            let result = run.stage(stage, number, number == last, bare).await?;
            run.done.push(result);
        }
        let result = run.done.last().cloned();
        let result = result.ok_or_else(|| at.failure("the build has no stages"))?;
        run.finish(result, &plan).await
    }

    /// Ends the sandboxes of a build.
    pub(super) async fn end_sandboxes(&self, build: &Build) {
        let purpose = Purpose::Build(build.record().id);
        for record in self.parts.sandboxes.records() {
            if record.spec.purpose != purpose {
                continue;
            }
            let end = |reply| Command::Kill(KillReason::Requested, reply);
            if let Err(error) = self.parts.sandboxes.call(&record.id, end).await {
                tracing::warn!(sandbox.id = %record.id, error = %Chain(&error), "the sandbox of a build stays until its deadline");
            }
        }
    }

    /// Commits the output of a build, then points its tags to it. A client that sees the build ready
    /// finds it by its tags. A crash in between loses nothing: see [`Builds::recover`].
    async fn keep_output(
        &self,
        principal: &Principal,
        build: &Build,
        made: BuildOutput,
    ) -> Result<(), StoreError> {
        let changing = self.parts.records.changing.lock().await;
        let with = BuildRecord {
            made: Some(made),
            updated_at: self.parts.clock.now(),
            ..build.record().as_ref().clone()
        };
        self.parts.records.put(build, with).await?;
        drop(changing);
        self.complete(principal.team, build).await
    }

    /// Points the tags of a build to its output, and marks the build as ready.
    pub(super) async fn complete(&self, team: TeamId, build: &Build) -> Result<(), StoreError> {
        let changing = self.parts.records.changing.lock().await;
        let record = build.record();
        let assigned = self
            .parts
            .templates
            .assign_tags(team, &record, &record.tags);
        let dropped = assigned.await?;
        let now = self.parts.clock.now();
        build.say(
            now,
            LogLevel::Info,
            Some(Part::Finalize),
            "the template is ready",
        );
        let ready = BuildRecord {
            status: BuildStatus::Ready,
            updated_at: now,
            finished_at: Some(now),
            ..record.as_ref().clone()
        };
        self.parts.records.put(build, ready).await?;
        drop(changing);
        self.parts.records.release(dropped).await;
        Ok(())
    }
}

impl Run<'_> {
    /// Adds a line to the log of the build.
    pub(super) fn say(&self, level: LogLevel, part: Part, message: &str) {
        let now = self.builds.parts.clock.now();
        self.build.say(now, level, Some(part), message);
    }

    async fn stage(
        &mut self,
        stage: &Stage,
        number: usize,
        last: bool,
        bare: bool,
    ) -> Result<StageBase, BuildFailure> {
        let mut sandbox = None;
        let part = if last {
            Part::Base
        } else {
            Part::Earlier {
                stage: number,
                step: 0,
            }
        };
        let mut base = self.base(&stage.base, bare, &mut sandbox, part).await?;
        let total = stage.steps.len();
        for (index, step) in stage.steps.iter().enumerate() {
            let step_number = index + 1;
            let part = if last {
                Part::Step(step_number)
            } else {
                Part::Earlier {
                    stage: number,
                    step: step_number,
                }
            };
            let at = BuildLocation {
                part,
                line: step.line,
            };
            let label = if last {
                format!("builder {}/{total}", index + 1)
            } else {
                format!("stage {number} {}/{total}", index + 1)
            };
            base = self.step(base, step, &label, at, &mut sandbox).await?;
        }
        self.builds.end_sandboxes(self.build).await;
        Ok(base)
    }

    /// Runs a step, or uses the cached layer of an earlier run.
    async fn step(
        &mut self,
        base: StageBase,
        step: &Step,
        label: &str,
        at: BuildLocation,
        sandbox: &mut Option<BuildSandbox>,
    ) -> Result<StageBase, BuildFailure> {
        let action = &step.action;
        self.force |= step.force;
        let from = match action {
            Action::Copy {
                source: Source::Stage(stage),
                ..
            } => self.done.get(*stage).cloned(),
            _ => None,
        };
        let key = base.key.after(action, from.as_ref().map(|from| &from.key));
        let next = StageBase {
            state: base.state.after(action, &base.spec.env),
            key: key.clone(),
            ..base.clone()
        };
        if matches!(action, Action::Env(_)) {
            self.say(LogLevel::Info, at.part, &format!("[{label}] {action}"));
            return Ok(next);
        }
        if sandbox.is_none()
            && let Some(layer) = self.layer(&key).await
        {
            let line = format!("CACHED [{label}] {action}");
            self.say(LogLevel::Info, at.part, &line);
            return Ok(next.on(layer.snapshot));
        }
        self.say(LogLevel::Info, at.part, &format!("[{label}] {action}"));
        // The stage that is copied from has a sandbox of its own.
        let archive = match &from {
            Some(from) => Some(self.pack(from, action, at).await?),
            None => None,
        };
        let sandbox = self.open(sandbox, &base, at).await?;
        self.perform(sandbox, &next.state, &base.state, action, archive, at)
            .await?;
        let layer = self.keep(sandbox, &key, &base, at).await?;
        Ok(next.on(layer))
    }

    /// The sandbox in which the steps of a stage run, started when the first step needs it.
    pub(super) async fn open<'s>(
        &self,
        sandbox: &'s mut Option<BuildSandbox>,
        base: &StageBase,
        at: BuildLocation,
    ) -> Result<&'s BuildSandbox, BuildFailure> {
        if sandbox.is_none() {
            *sandbox = Some(self.start_sandbox(base.spec.clone(), at).await?);
        }
        sandbox
            .as_ref()
            .ok_or_else(|| at.failure("the sandbox of the build is not there"))
    }

    /// Starts a sandbox of this build.
    pub(super) async fn start_sandbox(
        &self,
        spec: SandboxSpec,
        at: BuildLocation,
    ) -> Result<BuildSandbox, BuildFailure> {
        BuildSandbox::start(self.builds.clone(), self.principal, spec, at).await
    }

    /// The cached layer with this key, unless the cache is ignored.
    pub(super) async fn layer(&self, key: &LayerKey) -> Option<BuildLayer> {
        if self.force {
            return None;
        }
        let (records, team) = (&self.builds.parts.records, self.principal.team);
        records.layer_for(self.build, team, &key.hex()).await
    }

    /// Saves the files of a sandbox as a layer.
    async fn keep(
        &self,
        sandbox: &BuildSandbox,
        key: &LayerKey,
        base: &StageBase,
        at: BuildLocation,
    ) -> Result<SnapshotOrigin, BuildFailure> {
        let saved = sandbox.save(self.build, at, Contents::Filesystem).await?;
        self.keep_layer(self.layer_of(key, saved.clone(), base), at)
            .await?;
        Ok(saved)
    }

    /// The record of a layer.
    pub(super) fn layer_of(
        &self,
        key: &LayerKey,
        snapshot: SnapshotOrigin,
        base: &StageBase,
    ) -> BuildLayer {
        BuildLayer {
            key: key.hex(),
            team: self.principal.team,
            snapshot,
            image: base.spec.image.clone(),
            workdir: None,
            used_at: self.builds.parts.clock.now(),
        }
    }

    /// Stores the record of a layer.
    pub(super) async fn keep_layer(
        &self,
        layer: BuildLayer,
        at: BuildLocation,
    ) -> Result<(), BuildFailure> {
        let kept = self.builds.parts.records.keep_layer(layer).await;
        kept.map_err(|e| at.failure(e))
    }
}

impl StageBase {
    /// The same, starting from the files of a layer.
    pub(super) fn on(mut self, layer: SnapshotOrigin) -> Self {
        self.spec.snapshot = Some(layer);
        self
    }
}

/// A command line for a login shell.
pub(super) fn command_of(line: &str, state: &BuildState) -> SandboxCommand {
    SandboxCommand {
        cwd: Some(state.workdir.clone()),
        env: state.env.clone(),
        ..SandboxCommand::new("/bin/bash", ["-l", "-c", line])
    }
}
