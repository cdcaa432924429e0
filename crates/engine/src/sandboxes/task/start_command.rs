//! The start command of a template. Restored memory already runs it.

use std::time::Duration;

use futures_util::StreamExt;
use shoal_core::build::BuildState;
use shoal_core::driver::{StartKind, StartReport};

use super::Sandbox;
use shoal_core::ports::create::CreateError;
use shoal_core::ports::inside::{CommandOutput, RunningCommand, SandboxCommand};
use shoal_protocol::client::SandboxTarget;

/// How long a sandbox may take to be ready: less than the timeout of a call.
const READY_WITHIN: Duration = Duration::from_secs(55);

/// The delays between attempts of a ready command: the first one, and the longest.
const AGAIN: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));

/// How many bytes of a failed command's output the error shows.
const SAID_MAX: usize = 1 << 10;

impl Sandbox {
    /// Runs the start command, and waits until the ready command, if there is one, succeeds.
    #[tracing::instrument(level = "debug", name = "start_command", skip_all)]
    pub(super) async fn run_start_command(&self, report: &StartReport) -> Result<(), CreateError> {
        let spec = &self.record.spec;
        let restored = report.origin == StartKind::Restored;
        let Some(start) = spec.start.as_ref().filter(|_| !restored) else {
            return Ok(());
        };
        // Before the first ready command.
        let begun = match start.command.as_str() {
            "" => None,
            line => {
                let (target, command) = self.command(report, line, start.command_in.as_ref());
                Some(
                    self.sandboxes
                        .parts
                        .guest
                        .open(target, None)
                        .run(command)
                        .await?,
                )
            }
        };
        let Some(ready) = &start.ready else {
            // The command keeps running without a reader of its output.
            return Ok(());
        };
        let runs = async {
            if let Some(process) = begun {
                until_background(process).await?;
            }
            std::future::pending().await
        };
        let end = self.sandboxes.parts.clock.now() + READY_WITHIN;
        tokio::select! {
            failed = runs => failed,
            ready = self.until_ready(report, ready, start.ready_in.as_ref()) => ready,
            () = self.sandboxes.parts.clock.sleep_until(end) => Err(CreateError::Start(format!(
                "it was not ready within {} s", READY_WITHIN.as_secs()
            ))),
        }
    }

    async fn until_ready(
        &self,
        report: &StartReport,
        ready: &str,
        state: Option<&BuildState>,
    ) -> Result<(), CreateError> {
        let (mut again, most) = AGAIN;
        loop {
            let (target, command) = self.command(report, ready, state);
            let mut process = self
                .sandboxes
                .parts
                .guest
                .open(target, None)
                .run(command)
                .await?;
            while let Some(output) = process.output.next().await {
                if let CommandOutput::Exit(exit) = output?
                    && exit.code == 0
                {
                    return Ok(());
                }
            }
            let clock = &self.sandboxes.parts.clock;
            clock.sleep_until(clock.now() + again).await;
            again = (again * 2).min(most);
        }
    }

    /// The command for a line. `state` is that of the template that the line is inherited from; without
    /// one, the sandbox's own user, directory and variables apply.
    fn command(
        &self,
        report: &StartReport,
        line: &str,
        state: Option<&BuildState>,
    ) -> (SandboxTarget, SandboxCommand) {
        let spec = &self.record.spec;
        let own = || (&spec.user, spec.workdir.clone(), &spec.start_env);
        let (user, cwd, env) = state.map_or_else(own, |state| {
            (&state.user, Some(state.workdir.clone()), &state.env)
        });
        let target = SandboxTarget {
            address: report.address,
            token: Some(self.sandboxes.parts.access.guest_token(&self.record)),
            user: Some(user.clone()),
        };
        let command = SandboxCommand {
            cwd,
            env: env.clone(),
            ..SandboxCommand::new("/bin/bash", ["-l", "-c", line])
        };
        (target, command)
    }
}

/// Waits until a command ends: with success when it has forked into the background.
async fn until_background(mut process: RunningCommand) -> Result<(), CreateError> {
    let mut said = Vec::new();
    while let Some(output) = process.output.next().await {
        match output? {
            CommandOutput::Stdout(bytes) | CommandOutput::Stderr(bytes) => {
                let room = SAID_MAX.saturating_sub(said.len());
                said.extend_from_slice(&bytes[..bytes.len().min(room)]);
            }
            CommandOutput::Exit(exit) if exit.code == 0 => break,
            CommandOutput::Exit(exit) => {
                let said = String::from_utf8_lossy(&said);
                let code = exit.code;
                return Err(CreateError::Start(format!(
                    "it ended with status {code}: {}",
                    said.trim()
                )));
            }
        }
    }
    Ok(())
}
