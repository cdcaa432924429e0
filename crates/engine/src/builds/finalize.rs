//! The end of a build: starts a sandbox with its files, runs the start command and saves the result.

use std::time::Duration;

use shoal_core::build::{
    BuildFailure, BuildOutput, BuildState, LogLevel, Part, Plan, StartCommand,
};
use shoal_core::sandbox::{SandboxSpec, SnapshotOrigin};
use shoal_core::snapshot::Contents;

use super::run::{Run, StageBase, command_of};
use super::sandbox::{BuildLocation, BuildSandbox};

/// The default ready command, as in E2B.
const READY_DEFAULT: &str = "sleep 20";

/// How long a template may take to become ready.
const READY_TIMEOUT: Duration = Duration::from_secs(600);

/// The delay before the ready command is retried for the first time. It doubles with each retry.
const RETRY_DELAY: Duration = Duration::from_millis(100);

/// The maximum delay between two runs of the ready command.
const RETRY_DELAY_MAX: Duration = Duration::from_secs(2);

impl Run<'_> {
    /// Turns the result of the last stage into the output of the build.
    pub(super) async fn finish(
        &self,
        base: StageBase,
        plan: &Plan,
    ) -> Result<BuildOutput, BuildFailure> {
        let at = BuildLocation {
            part: Part::Finalize,
            line: None,
        };
        let start = match (&plan.start, &plan.ready) {
            (Some(command), ready) => Some(StartCommand::new(command.clone(), ready.clone())),
            (None, Some(ready)) => Some(match base.start.clone() {
                Some(inherited) => inherited.with_ready(ready.clone()),
                None => StartCommand::new(String::new(), Some(ready.clone())),
            }),
            (None, None) => base.start.clone(),
        };
        let spec = SandboxSpec {
            user: base.state.user.clone(),
            workdir: Some(base.state.workdir.clone()),
            ..base.spec.clone()
        };
        let runtime = self.builds.parts.planner.memory_runtime(&spec);
        let daemon = &self.builds.parts.machine.daemon;
        let key = base.key.finished(
            start.as_ref().map(|s| s.command.as_str()),
            start.as_ref().and_then(|s| s.ready.as_deref()),
            &spec.resources,
            &base.state,
            runtime.as_ref().map(|runtime| (runtime, daemon.as_str())),
        );
        let snapshot = match self.layer(&key).await {
            Some(layer) => {
                self.say(LogLevel::Info, Part::Finalize, "CACHED [finalize]");
                layer.snapshot
            }
            None => {
                let contents = Contents::with_memory(runtime.is_some());
                let made = self.start_and_save(&base, &spec, start.as_ref(), contents, at);
                let made = made.await?;
                self.keep_layer(self.layer_of(&key, made.clone(), &base), at)
                    .await?;
                made
            }
        };
        let set_by_steps = &base.state.env;
        let kept = plan
            .keep_env
            .iter()
            .filter_map(|name| Some((name.clone(), set_by_steps.get(name)?.clone())));
        let mut env = spec.env;
        env.extend(kept);
        Ok(BuildOutput {
            image: spec.image,
            runtime: runtime.map(|info| info.name),
            user: spec.user,
            workdir: spec.workdir,
            env,
            build_env: base.state.env,
            snapshot,
            start,
        })
    }

    async fn start_and_save(
        &self,
        base: &StageBase,
        spec: &SandboxSpec,
        start: Option<&StartCommand>,
        contents: Contents,
        at: BuildLocation,
    ) -> Result<SnapshotOrigin, BuildFailure> {
        self.say(
            LogLevel::Info,
            Part::Finalize,
            "[finalize] starting what was built",
        );
        let sandbox = self.start_sandbox(spec.clone(), at).await?;
        if let Some(start) = start {
            self.start(&sandbox, base, start, at).await?;
        }
        self.say(
            LogLevel::Info,
            Part::Finalize,
            &format!("[finalize] saving {contents}"),
        );
        sandbox.save(self.build, at, contents).await
    }

    /// Runs the start command, and waits until the ready command succeeds.
    async fn start(
        &self,
        sandbox: &BuildSandbox,
        base: &StageBase,
        start: &StartCommand,
        at: BuildLocation,
    ) -> Result<(), BuildFailure> {
        let state = start.command_in.as_ref().unwrap_or(&base.state);
        let ready_in = start.ready_in.as_ref().unwrap_or(&base.state);
        if start.command.is_empty() {
            return self.until_ready(sandbox, start, ready_in, at).await;
        }
        self.say(
            LogLevel::Info,
            Part::Finalize,
            &format!("[finalize] start: {}", start.command),
        );
        let command = command_of(&start.command, state);
        // Started before the first ready command runs.
        let begun = sandbox.begin(at, &state.user, command).await?;
        let runs = async {
            match sandbox.follow(self.build, at, begun).await? {
                // The command has moved to the background.
                0 => std::future::pending().await,
                code => Err(at.failure(format_args!("the start command ended with status {code}"))),
            }
        };
        // The command keeps running after its output is no longer read.
        tokio::select! {
            failed = runs => failed,
            ready = self.until_ready(sandbox, start, ready_in, at) => ready,
        }
    }

    async fn until_ready(
        &self,
        sandbox: &BuildSandbox,
        start: &StartCommand,
        state: &BuildState,
        at: BuildLocation,
    ) -> Result<(), BuildFailure> {
        let line = start.ready.as_deref().unwrap_or(READY_DEFAULT);
        self.say(
            LogLevel::Info,
            Part::Finalize,
            &format!("[finalize] ready: {line}"),
        );
        let clock = &self.builds.parts.clock;
        let end = clock.now() + READY_TIMEOUT;
        let mut delay = RETRY_DELAY;
        loop {
            let asked = sandbox.run(self.build, at, &state.user, command_of(line, state));
            let code = tokio::select! {
                code = asked => code?,
                () = clock.sleep_until(end) => return Err(too_long(at)),
            };
            if code == 0 {
                return Ok(());
            }
            if clock.now() >= end {
                return Err(too_long(at));
            }
            clock.sleep_until(clock.now() + delay).await;
            delay = (delay * 2).min(RETRY_DELAY_MAX);
        }
    }
}

fn too_long(at: BuildLocation) -> BuildFailure {
    let seconds = READY_TIMEOUT.as_secs();
    at.failure(format_args!(
        "the template was not ready within {seconds} s"
    ))
}
