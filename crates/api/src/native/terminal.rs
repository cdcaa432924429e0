//! Shells in sandboxes: a single command line, or a terminal over a WebSocket.

mod messages;
mod socket;

use std::time::Duration;

use axum::Extension;
use axum::extract::{Path, State};
use futures_util::StreamExt;
use shoal_core::auth::Principal;
use shoal_core::ports::inside::{
    CommandExit, CommandOutput, InsideError, RunningCommand, SandboxCommand, run_line,
};
use shoal_protocol::native::{RanCommand, RunCommand};

use super::answer::Answer;
use crate::backend::Backend;
use crate::body::JsonBody;
use crate::error::ApiError;

pub(super) use self::messages::Decoder;
pub(super) use self::socket::{attach, open};

/// The maximum and default duration of a command line, in seconds. The response must arrive while
/// its client still waits.
const SECONDS_MAX: u64 = 60;

/// How much of each output stream is returned, in bytes.
const OUTPUT_MAX: usize = 1 << 20;

/// `POST /terminal/sandbox/{id}`.
pub(super) async fn run(
    State(backend): State<Backend>,
    Extension(principal): Extension<Principal>,
    Path(id): Path<String>,
    body: JsonBody<RunCommand>,
) -> Result<Answer<RanCommand>, ApiError> {
    let (permit, record) = backend.sandboxes.find(&principal, &id).await?;
    let asked = body.value;
    let seconds = asked.timeout.unwrap_or(SECONDS_MAX);
    if !(1..=SECONDS_MAX).contains(&seconds) {
        return Err(ApiError::invalid(format_args!(
            "`timeout`: 1 to {SECONDS_MAX} seconds"
        )));
    }
    if asked.command.trim().is_empty() || asked.command.contains('\0') {
        return Err(ApiError::invalid("`command`: a line, without NUL"));
    }
    if asked
        .workdir
        .as_deref()
        .is_some_and(|dir| dir.contains('\0'))
    {
        return Err(ApiError::invalid("`workdir`: is no path"));
    }
    let user = asked.user.as_deref().filter(|user| !user.is_empty());
    let inside = backend.access.open(&permit, user).await?;
    let executed_at = backend.clock.now().to_string();
    let command = SandboxCommand {
        cwd: asked.workdir,
        timeout: Some(Duration::from_secs(seconds)),
        ..SandboxCommand::default()
    };
    let process = run_line(&*inside, &asked.command, command).await?;
    let heard = hear(process, seconds).await?;
    Ok(Answer::ok(RanCommand {
        sandbox: record.name(),
        command: asked.command,
        output: String::from_utf8_lossy(&heard.output).into_owned(),
        error_output: String::from_utf8_lossy(&heard.errors).into_owned(),
        exit_code: heard.exit.code,
        error: heard.exit.error,
        truncated: heard.truncated,
        executed_at,
    }))
}

/// The output of a command line, and its exit.
struct Heard {
    output: Vec<u8>,
    errors: Vec<u8>,
    exit: CommandExit,
    truncated: bool,
}

/// Reads until the end. Kills the command after too much output or too long a time.
async fn hear(mut process: RunningCommand, seconds: u64) -> Result<Heard, InsideError> {
    let mut heard = Heard {
        output: Vec::new(),
        errors: Vec::new(),
        exit: CommandExit {
            code: -1,
            error: None,
        },
        truncated: false,
    };
    while let Some(output) = process.output.next().await {
        let (kept, bytes) = match output {
            Ok(CommandOutput::Stdout(bytes)) => (&mut heard.output, bytes),
            Ok(CommandOutput::Stderr(bytes)) => (&mut heard.errors, bytes),
            Ok(CommandOutput::Exit(exit)) => {
                heard.exit = exit;
                break;
            }
            Err(InsideError::TimedOut) => {
                heard.exit.error = Some(format!("it was ended after {seconds} s"));
                break;
            }
            Err(error) => return Err(error),
        };
        let room = OUTPUT_MAX - kept.len();
        kept.extend_from_slice(&bytes[..bytes.len().min(room)]);
        if bytes.len() > room {
            heard.truncated = true;
            heard.exit.error = Some(format!("it printed more than {OUTPUT_MAX} bytes"));
            // It may have exited meanwhile.
            let _ = process.control.kill().await;
            break;
        }
    }
    Ok(heard)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::Bytes;
    use futures_util::stream;
    use shoal_core::BoxFuture;
    use shoal_core::ports::inside::{CommandControl, TerminalSize};

    use super::*;

    /// Agrees to everything.
    struct NoControl;

    fn done<'a>() -> BoxFuture<'a, Result<(), InsideError>> {
        Box::pin(std::future::ready(Ok(())))
    }

    impl CommandControl for NoControl {
        fn input(&self, _: Bytes) -> BoxFuture<'_, Result<(), InsideError>> {
            done()
        }

        fn close_input(&self) -> BoxFuture<'_, Result<(), InsideError>> {
            done()
        }

        fn resize(&self, _: TerminalSize) -> BoxFuture<'_, Result<(), InsideError>> {
            done()
        }

        fn kill(&self) -> BoxFuture<'_, Result<(), InsideError>> {
            done()
        }
    }

    async fn heard(output: Vec<CommandOutput>) -> Heard {
        let process = RunningCommand {
            output: stream::iter(output.into_iter().map(Ok)).boxed(),
            control: Arc::new(NoControl),
        };
        hear(process, 1).await.unwrap()
    }

    #[tokio::test]
    async fn both_outputs_and_the_code_are_told() {
        let exit = CommandExit {
            code: 3,
            error: None,
        };
        let said = heard(vec![
            CommandOutput::Stdout("a".into()),
            CommandOutput::Stderr("b".into()),
            CommandOutput::Stdout("c".into()),
            CommandOutput::Exit(exit),
        ])
        .await;
        assert_eq!((said.output, said.errors), (b"ac".to_vec(), b"b".to_vec()));
        assert_eq!((said.exit.code, said.truncated), (3, false));
    }

    #[tokio::test]
    async fn what_prints_without_end_is_cut() {
        let much = CommandOutput::Stdout(vec![b'x'; OUTPUT_MAX].into());
        let said = heard(vec![much.clone(), much]).await;
        assert_eq!(said.output.len(), OUTPUT_MAX);
        assert!(said.truncated && said.exit.error.is_some());
    }
}
