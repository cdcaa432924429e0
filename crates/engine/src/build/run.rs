//! Carry out a build: its stages one after another, each step on top of the one before.

use shoal_core::auth::Principal;
use shoal_core::build::{
    Action, BuildFailure, BuildRecord, BuildState, BuildStatus, Layer, LogLevel, Made, Part, Plan,
    Source, Stage, StartCommand, Step,
};
use shoal_core::detail::Chain;
use shoal_core::id::TeamId;
use shoal_core::sandbox::{Purpose, SandboxSpec, SnapshotOrigin};
use shoal_core::snapshot::Contents;
use shoal_core::state::KillReason;
use shoal_core::store::StoreError;

use super::keys::Key;
use super::workshop::{Place, Workshop};
use crate::build_records::Build;
use crate::engine::Engine;
use crate::guest::GuestCommand;
use crate::sandboxes::Order;

/// What the steps of a stage stand on, and what they carry on.
#[derive(Debug, Clone)]
pub(super) struct Ground {
    /// A sandbox of it.
    pub(super) spec: SandboxSpec,
    /// What was done to come here.
    pub(super) key: Key,
    /// What steps carry on.
    pub(super) state: BuildState,
    /// What runs in it from its start on, inherited.
    pub(super) start: Option<StartCommand>,
}

/// The failure of a build that a stop of the server ends.
pub(crate) const INTERRUPTED: &str = "the server was restarted during the build: build it again";

/// A build that is carried out.
pub(super) struct Run<'a> {
    pub(super) engine: &'a Engine,
    pub(super) principal: &'a Principal,
    pub(super) build: &'a Build,
    /// What the stages before have become.
    pub(super) done: Vec<Ground>,
    /// Nothing that was done before is taken over from here on.
    force: bool,
}

impl Engine {
    /// Carries out a build to its end, whichever that is. Nothing is left running.
    #[tracing::instrument(level = "debug", name = "build", skip_all, fields(build.id = %build.record().id))]
    pub(crate) async fn carry_out(&self, principal: &Principal, build: &Build, plan: Plan) {
        let mut cancelled = build.cancelled.subscribe();
        let outcome = tokio::select! {
            outcome = self.build_in_turn(principal, build, plan) => outcome,
            _ = cancelled.wait_for(|cancelled| *cancelled) => Err(BuildFailure::whole("the build was cancelled")),
            () = self.shared.work.stopping() => Err(BuildFailure::whole(INTERRUPTED)),
        };
        self.close_workshops(build).await;
        let outcome = match outcome {
            Ok(made) => self.keep_build(principal, build, made).await.map_err(|e| {
                let place = Place {
                    part: Part::Finalize,
                    line: None,
                };
                place.failure(format_args!("what was built is not kept: {e}"))
            }),
            Err(failure) => Err(failure),
        };
        if let Err(failure) = outcome {
            let changing = self.shared.builds.changing.lock().await;
            let failed = self.fail_build(build, failure).await;
            drop(changing);
            match failed {
                Ok(dropped) => self.shared.builds.release(dropped).await,
                Err(error) => {
                    tracing::error!(build.id = %build.record().id, error = %Chain(&error), "the end of a build is not kept");
                }
            }
        }
        self.shared.builds.release_held(build).await;
        build.end();
    }

    async fn build_in_turn(
        &self,
        principal: &Principal,
        build: &Build,
        plan: Plan,
    ) -> Result<Made, BuildFailure> {
        let place = Place {
            part: Part::Base,
            line: None,
        };
        let _turn = self.shared.turns.acquire(principal.team).await;
        let mut run = Run {
            engine: self,
            principal,
            build,
            done: Vec::new(),
            force: plan.force,
        };
        let last = plan.stages.len().saturating_sub(1);
        for (number, stage) in plan.stages.iter().enumerate() {
            let bare = !plan.is_worked_in(number);
            let ground = run.stage(stage, number, number == last, bare).await?;
            run.done.push(ground);
        }
        let ground = run.done.last().cloned();
        let ground = ground.ok_or_else(|| place.failure("the build has no stages"))?;
        run.finish(ground, &plan).await
    }

    /// Ends the sandboxes of a build.
    pub(super) async fn close_workshops(&self, build: &Build) {
        let purpose = Purpose::Build(build.record().id);
        for record in self.shared.sandboxes.records() {
            if record.spec.purpose != purpose {
                continue;
            }
            let end = |reply| Order::Kill(KillReason::Requested, reply);
            if let Err(error) = self.shared.sandboxes.order(&record.id, end).await {
                tracing::warn!(sandbox.id = %record.id, error = %Chain(&error), "the sandbox of a build stays until its deadline");
            }
        }
    }

    /// Notes what a build has made, and lets its tags mean it. Whoever sees that it is ready finds it
    /// by its tags; a crash in between loses nothing, see [`Engine::end_builds`].
    async fn keep_build(
        &self,
        principal: &Principal,
        build: &Build,
        made: Made,
    ) -> Result<(), StoreError> {
        let changing = self.shared.builds.changing.lock().await;
        let with = BuildRecord {
            made: Some(made),
            updated_at: self.shared.clock.now(),
            ..build.record().as_ref().clone()
        };
        self.shared.builds.put(build, with).await?;
        drop(changing);
        self.complete_build(principal.team, build).await
    }

    /// Lets the tags of a build mean what it has made.
    pub(crate) async fn complete_build(
        &self,
        team: TeamId,
        build: &Build,
    ) -> Result<(), StoreError> {
        let changing = self.shared.builds.changing.lock().await;
        let record = build.record();
        let dropped = self
            .shared
            .templates
            .assign_tags(team, &record, &record.tags)
            .await?;
        let now = self.shared.clock.now();
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
        self.shared.builds.put(build, ready).await?;
        drop(changing);
        self.shared.builds.release(dropped).await;
        Ok(())
    }
}

impl Run<'_> {
    pub(super) fn say(&self, level: LogLevel, part: Part, message: &str) {
        let now = self.engine.shared.clock.now();
        self.build.say(now, level, Some(part), message);
    }

    async fn stage(
        &mut self,
        stage: &Stage,
        number: usize,
        last: bool,
        bare: bool,
    ) -> Result<Ground, BuildFailure> {
        let mut workshop = None;
        let part = if last {
            Part::Base
        } else {
            Part::Earlier {
                stage: number,
                step: 0,
            }
        };
        let mut ground = self.base(&stage.base, bare, &mut workshop, part).await?;
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
            let place = Place {
                part,
                line: step.line,
            };
            let of = if last {
                format!("builder {}/{total}", index + 1)
            } else {
                format!("stage {number} {}/{total}", index + 1)
            };
            ground = self.step(ground, step, &of, place, &mut workshop).await?;
        }
        self.engine.close_workshops(self.build).await;
        Ok(ground)
    }

    /// Does a step, or takes over what it did the last time.
    async fn step(
        &mut self,
        ground: Ground,
        step: &Step,
        of: &str,
        place: Place,
        workshop: &mut Option<Workshop>,
    ) -> Result<Ground, BuildFailure> {
        let action = &step.action;
        self.force |= step.force;
        let from = match action {
            Action::Copy {
                source: Source::Stage(stage),
                ..
            } => self.done.get(*stage).cloned(),
            _ => None,
        };
        let key = ground
            .key
            .after(action, from.as_ref().map(|from| &from.key));
        let next = Ground {
            state: ground.state.after(action, &ground.spec.env),
            key: key.clone(),
            ..ground.clone()
        };
        if matches!(action, Action::Env(_)) {
            self.say(LogLevel::Info, place.part, &format!("[{of}] {action}"));
            return Ok(next);
        }
        if workshop.is_none()
            && let Some(layer) = self.layer(&key).await
        {
            self.say(
                LogLevel::Info,
                place.part,
                &format!("CACHED [{of}] {action}"),
            );
            return Ok(next.on(layer.snapshot));
        }
        self.say(LogLevel::Info, place.part, &format!("[{of}] {action}"));
        // Another sandbox is opened while this one is: what it is copied from.
        let archive = match &from {
            Some(from) => Some(self.pack(from, action, place).await?),
            None => None,
        };
        let workshop = self.open(workshop, &ground, place).await?;
        self.perform(workshop, &next.state, &ground.state, action, archive, place)
            .await?;
        let layer = self.keep(workshop, &key, &ground, place).await?;
        Ok(next.on(layer))
    }

    /// The sandbox that steps are done in; opened when the first is.
    pub(super) async fn open<'w>(
        &self,
        workshop: &'w mut Option<Workshop>,
        ground: &Ground,
        place: Place,
    ) -> Result<&'w Workshop, BuildFailure> {
        if workshop.is_none() {
            let spec = ground.spec.clone();
            *workshop = Some(Workshop::open(self.engine, self.principal, spec, place).await?);
        }
        workshop
            .as_ref()
            .ok_or_else(|| place.failure("the sandbox of the build is not there"))
    }

    /// What an earlier build has left under this key, unless all is to be done again.
    pub(super) async fn layer(&self, key: &Key) -> Option<Layer> {
        if self.force {
            return None;
        }
        let shared = &self.engine.shared;
        shared
            .builds
            .layer_for(self.build, self.principal.team, &key.hex())
            .await
    }

    pub(super) async fn keep(
        &self,
        workshop: &Workshop,
        key: &Key,
        ground: &Ground,
        place: Place,
    ) -> Result<SnapshotOrigin, BuildFailure> {
        let snapshot = workshop
            .save(self.build, place, Contents::Filesystem)
            .await?;
        self.note(self.layer_of(key, snapshot.clone(), ground), place)
            .await?;
        Ok(snapshot)
    }

    /// What is noted of files that were saved.
    pub(super) fn layer_of(&self, key: &Key, snapshot: SnapshotOrigin, ground: &Ground) -> Layer {
        Layer {
            key: key.hex(),
            team: self.principal.team,
            snapshot,
            image: ground.spec.image.clone(),
            workdir: None,
            used_at: self.engine.shared.clock.now(),
        }
    }

    pub(super) async fn note(&self, layer: Layer, place: Place) -> Result<(), BuildFailure> {
        let kept = self.engine.shared.builds.keep_layer(layer).await;
        kept.map_err(|e| place.failure(e))
    }
}

impl Ground {
    /// The same, with what was done since.
    pub(super) fn on(mut self, layer: SnapshotOrigin) -> Self {
        self.spec.snapshot = Some(layer);
        self
    }
}

/// A line for a login shell.
pub(super) fn command_of(line: &str, state: &BuildState) -> GuestCommand {
    GuestCommand {
        cwd: Some(state.workdir.clone()),
        env: state.env.clone(),
        ..GuestCommand::new("/bin/bash", ["-l", "-c", line])
    }
}
