//! Commands of pools, run inside a member.

use std::time::Duration;

use futures_util::StreamExt;
use shoal_core::clock::{Clock, Timestamp};

use super::Sandboxes;
use super::command::HandOutError;
use shoal_core::ports::inside::{CommandOutput, InsideError, RunningCommand, SandboxCommand};
use shoal_protocol::client::SandboxTarget;

/// How many bytes of a failed command's output the error shows.
const SAID_MAX: usize = 400;

/// The result of `work`; none when `end` comes first.
pub(crate) async fn within<T>(
    clock: &dyn Clock,
    end: Timestamp,
    work: impl Future<Output = T>,
) -> Option<T> {
    tokio::select! {
        biased;
        done = work => Some(done),
        () = clock.sleep_until(end) => None,
    }
}

/// Waits until a command has ended successfully.
pub(crate) async fn ended(
    what: &'static str,
    mut process: RunningCommand,
) -> Result<(), HandOutError> {
    let mut said: Vec<u8> = Vec::new();
    loop {
        match process.output.next().await.transpose()? {
            Some(CommandOutput::Stdout(bytes) | CommandOutput::Stderr(bytes)) => {
                said.extend_from_slice(&bytes);
                let superfluous = said.len().saturating_sub(SAID_MAX);
                said.drain(..superfluous);
            }
            Some(CommandOutput::Exit(exit)) if exit.code == 0 => return Ok(()),
            Some(CommandOutput::Exit(exit)) => {
                let text = String::from_utf8_lossy(&said);
                let said = match text.trim() {
                    "" => String::new(),
                    text => format!(": {text}"),
                };
                let code = exit.code;
                return Err(HandOutError::Failed { what, code, said });
            }
            None => {
                let gone = InsideError::Unreachable("it has stopped".to_owned());
                return Err(gone.into());
            }
        }
    }
}

/// Runs a command of a pool until it has ended successfully.
pub(crate) async fn run_to_end(
    sandboxes: &Sandboxes,
    target: SandboxTarget,
    what: &'static str,
    argv: &[String],
    time: Duration,
) -> Result<(), HandOutError> {
    let Some(command) = command(argv) else {
        return Ok(());
    };
    let end = sandboxes.parts.clock.now() + time;
    let run = async {
        let process = sandboxes
            .parts
            .guest
            .open(target, None)
            .run(command)
            .await?;
        ended(what, process).await
    };
    let outcome = within(&*sandboxes.parts.clock, end, run).await;
    outcome.unwrap_or(Err(HandOutError::Endless {
        what,
        within: time,
        hint: "",
    }))
}

/// The command with these arguments; `None` without a program.
pub(crate) fn command(argv: &[String]) -> Option<SandboxCommand> {
    let (program, arguments) = argv.split_first()?;
    Some(SandboxCommand::new(program, arguments))
}
