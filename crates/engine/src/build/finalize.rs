//! The end of a build: what was built is started and saved, so that sandboxes go on from there.

use std::time::Duration;

use shoal_core::build::{BuildFailure, BuildState, LogLevel, Made, Part, Plan, StartCommand};
use shoal_core::sandbox::{SandboxSpec, SnapshotOrigin};
use shoal_core::snapshot::Contents;

use super::run::{Ground, Run, command_of};
use super::workshop::{Place, Workshop};

/// What says that a start command is ready when nothing else does (as E2B has it).
const READY_DEFAULT: &str = "sleep 20";

/// How long a template may take to be ready.
const READY_WITHIN: Duration = Duration::from_secs(600);

/// How long after a ready command has failed it is tried again: at first, and at most.
const AGAIN: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(2));

impl Run<'_> {
    /// Makes a template of what the last stage has become.
    pub(super) async fn finish(&self, ground: Ground, plan: &Plan) -> Result<Made, BuildFailure> {
        let place = Place {
            part: Part::Finalize,
            line: None,
        };
        let start = match (&plan.start, &plan.ready) {
            (Some(command), ready) => Some(StartCommand::new(command.clone(), ready.clone())),
            (None, Some(ready)) => Some(match ground.start.clone() {
                Some(inherited) => inherited.with_ready(ready.clone()),
                None => StartCommand::new(String::new(), Some(ready.clone())),
            }),
            (None, None) => ground.start.clone(),
        };
        let spec = SandboxSpec {
            user: ground.state.user.clone(),
            workdir: Some(ground.state.workdir.clone()),
            ..ground.spec.clone()
        };
        let runtime = self.engine.memory_runtime(&spec);
        let daemon = &self.engine.capabilities().daemon;
        let key = ground.key.finished(
            start.as_ref().map(|s| s.command.as_str()),
            start.as_ref().and_then(|s| s.ready.as_deref()),
            &spec.resources,
            &ground.state,
            runtime.as_ref().map(|runtime| (runtime, daemon.as_str())),
        );
        let snapshot = match self.layer(&key).await {
            Some(layer) => {
                self.say(LogLevel::Info, Part::Finalize, "CACHED [finalize]");
                layer.snapshot
            }
            None => {
                let contents = Contents::with_memory(runtime.is_some());
                let made = self.start_and_save(&ground, &spec, start.as_ref(), contents, place);
                let made = made.await?;
                self.note(self.layer_of(&key, made.clone(), &ground), place)
                    .await?;
                made
            }
        };
        let set_by_steps = &ground.state.env;
        let kept = plan
            .keep_env
            .iter()
            .filter_map(|name| Some((name.clone(), set_by_steps.get(name)?.clone())));
        let mut env = spec.env;
        env.extend(kept);
        Ok(Made {
            image: spec.image,
            runtime: runtime.map(|info| info.name),
            user: spec.user,
            workdir: spec.workdir,
            env,
            build_env: ground.state.env,
            snapshot,
            start,
        })
    }

    async fn start_and_save(
        &self,
        ground: &Ground,
        spec: &SandboxSpec,
        start: Option<&StartCommand>,
        contents: Contents,
        place: Place,
    ) -> Result<SnapshotOrigin, BuildFailure> {
        self.say(
            LogLevel::Info,
            Part::Finalize,
            "[finalize] starting what was built",
        );
        let workshop = Workshop::open(self.engine, self.principal, spec.clone(), place).await?;
        if let Some(start) = start {
            self.start(&workshop, ground, start, place).await?;
        }
        self.say(
            LogLevel::Info,
            Part::Finalize,
            &format!("[finalize] saving {contents}"),
        );
        workshop.save(self.build, place, contents).await
    }

    /// Runs the start command, and waits until the ready command says that it is.
    async fn start(
        &self,
        workshop: &Workshop,
        ground: &Ground,
        start: &StartCommand,
        place: Place,
    ) -> Result<(), BuildFailure> {
        let state = start.command_in.as_ref().unwrap_or(&ground.state);
        let ready_in = start.ready_in.as_ref().unwrap_or(&ground.state);
        if start.command.is_empty() {
            return self.until_ready(workshop, start, ready_in, place).await;
        }
        self.say(
            LogLevel::Info,
            Part::Finalize,
            &format!("[finalize] start: {}", start.command),
        );
        let command = command_of(&start.command, state);
        // Before anything asks whether it is ready.
        let begun = workshop.begin(place, &state.user, command).await?;
        let runs = async {
            match workshop.follow(self.build, place, begun).await? {
                // It has put itself into the background.
                0 => std::future::pending().await,
                code => {
                    Err(place.failure(format_args!("the start command ended with status {code}")))
                }
            }
        };
        // Whoever is not listened to any more runs on.
        tokio::select! {
            failed = runs => failed,
            ready = self.until_ready(workshop, start, ready_in, place) => ready,
        }
    }

    async fn until_ready(
        &self,
        workshop: &Workshop,
        start: &StartCommand,
        state: &BuildState,
        place: Place,
    ) -> Result<(), BuildFailure> {
        let line = start.ready.as_deref().unwrap_or(READY_DEFAULT);
        self.say(
            LogLevel::Info,
            Part::Finalize,
            &format!("[finalize] ready: {line}"),
        );
        let clock = &self.engine.shared.clock;
        let end = clock.now() + READY_WITHIN;
        let (mut again, most) = AGAIN;
        loop {
            let asked = workshop.run(self.build, place, &state.user, command_of(line, state));
            let code = tokio::select! {
                code = asked => code?,
                () = clock.sleep_until(end) => return Err(too_long(place)),
            };
            if code == 0 {
                return Ok(());
            }
            if clock.now() >= end {
                return Err(too_long(place));
            }
            clock.sleep_until(clock.now() + again).await;
            again = (again * 2).min(most);
        }
    }
}

fn too_long(place: Place) -> BuildFailure {
    let seconds = READY_WITHIN.as_secs();
    place.failure(format_args!(
        "the template was not ready within {seconds} s"
    ))
}
