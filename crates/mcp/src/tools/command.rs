//! `run_command`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use shoal_core::ports::inside::{
    CommandExit, CommandOutput, InsideError, RunningCommand, SandboxCommand, run_line,
};
use tokio::time::{MissedTickBehavior, interval};

use super::{About, Call, Effect, Reply, Spec, spec};
use crate::error::ToolError;
use crate::text::{Bounded, beginning, without_nul};

/// The default timeout, in seconds.
const SECONDS: u64 = 120;

/// The longest timeout, in seconds.
pub(super) const SECONDS_MAX: u64 = 3600;

/// How much of each end of an output stream is returned, in bytes.
pub(super) const END: usize = 16 << 10;

/// How often progress is reported, and how much of the output with it.
const PROGRESS_EVERY: Duration = Duration::from_millis(200);
const PROGRESS_TEXT: usize = 4 << 10;

/// Arguments of `run_command`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Arguments {
    /// A command line for a login shell (bash if there is one): `cd app && npm test`.
    command: String,
    /// The working directory; the sandbox's default when absent.
    cwd: Option<String>,
    /// Environment variables, over those of the sandbox.
    #[serde(default)]
    env: BTreeMap<String, String>,
    /// The user that runs it; the sandbox's default user when absent.
    user: Option<String>,
    /// Seconds after which it is killed: 120 when absent, at most 3600.
    timeout: Option<u64>,
    /// The id or name of another sandbox of your team; that of this session when absent.
    sandbox: Option<String>,
}

/// A command that has ended.
#[derive(Debug, Serialize, JsonSchema)]
struct Ran {
    /// The sandbox.
    sandbox: String,
    /// The exit code; -1 when a signal or the timeout ended it.
    exit_code: i32,
    /// Standard output. A note stands for what is left out of the middle.
    stdout: String,
    /// Standard error, in the same way.
    stderr: String,
    /// Bytes of both that are left out.
    left_out: usize,
    /// The cause of its end, if it did not exit by itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

pub(super) fn run_command() -> Spec {
    let about = About(
        "run_command",
        "Run a command",
        "Runs a command line in a shell of the sandbox, and answers with its output and exit code when it has ended. \
         Cancelling the call kills it. For a server that keeps running, end the line with `&` and redirect its output.",
    );
    spec::<_, Ran, _>(&about, Effect::Runs, Some("command.run"), run)
}

/// A timeout in seconds within limits.
pub(super) fn seconds(asked: Option<u64>, standard: u64) -> Result<u64, ToolError> {
    let seconds = asked.unwrap_or(standard);
    if (1..=SECONDS_MAX).contains(&seconds) {
        Ok(seconds)
    } else {
        Err(ToolError::invalid(format_args!(
            "`timeout`: 1 to {SECONDS_MAX} seconds"
        )))
    }
}

/// Checks a command line and its surroundings.
pub(super) fn check_command(
    command: &str,
    cwd: Option<&str>,
    env: &BTreeMap<String, String>,
) -> Result<(), ToolError> {
    without_nul("command", command)?;
    if command.trim().is_empty() {
        return Err(ToolError::invalid("`command` is empty"));
    }
    without_nul("cwd", cwd.unwrap_or_default())?;
    let bad = |(name, value): (&String, &String)| {
        name.is_empty() || name.contains(['=', '\0']) || value.contains('\0')
    };
    if env.iter().any(bad) {
        return Err(ToolError::invalid(
            "`env` has a name or value that no environment can have",
        ));
    }
    Ok(())
}

async fn run(call: Arc<Call>, arguments: Arguments) -> Result<Reply, ToolError> {
    let seconds = seconds(arguments.timeout, SECONDS)?;
    check_command(&arguments.command, arguments.cwd.as_deref(), &arguments.env)?;
    let timeout = Duration::from_secs(seconds);
    let user = arguments.user.as_deref().filter(|user| !user.is_empty());
    let (held, client) = call
        .inside(arguments.sandbox.as_deref(), user, timeout)
        .await?;
    let command = SandboxCommand {
        cwd: arguments.cwd,
        env: arguments.env,
        timeout: Some(timeout),
        ..SandboxCommand::default()
    };
    let process = run_line(&*client, &arguments.command, command).await?;
    let heard = hear(&call, process, seconds).await?;
    Ok(reply(held.1.id.to_string(), &heard))
}

/// The collected results of a command.
#[derive(Debug)]
struct Heard {
    stdout: Bounded,
    stderr: Bounded,
    exit: CommandExit,
}

/// Reads until the end, reports progress, and kills the command when the call is cancelled.
async fn hear(call: &Call, mut process: RunningCommand, seconds: u64) -> Result<Heard, ToolError> {
    let mut heard = Heard {
        stdout: Bounded::new(END),
        stderr: Bounded::new(END),
        exit: CommandExit {
            code: -1,
            error: None,
        },
    };
    let mut news = News::default();
    let mut ticks = interval(PROGRESS_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let output = tokio::select! {
            biased;
            () = call.cancelled() => {
                // It may have exited meanwhile.
                let _ = process.control.kill().await;
                return Err(ToolError::cancelled());
            }
            _ = ticks.tick(), if !news.text.is_empty() => {
                call.tell(news.total, &news.take()).await;
                continue;
            }
            output = process.output.next() => output,
        };
        let (kept, bytes) = match output {
            Some(Ok(CommandOutput::Stdout(bytes))) => (&mut heard.stdout, bytes),
            Some(Ok(CommandOutput::Stderr(bytes))) => (&mut heard.stderr, bytes),
            Some(Ok(CommandOutput::Exit(exit))) => {
                heard.exit = exit;
                return Ok(heard);
            }
            Some(Err(InsideError::TimedOut)) => {
                let late = format!("killed: it ran longer than its timeout of {seconds} s");
                heard.exit.error = Some(late);
                return Ok(heard);
            }
            Some(Err(error)) => return Err(error.into()),
            None => {
                return Err(ToolError::refused(
                    "unreachable",
                    "the connection to the sandbox broke before the command ended",
                ));
            }
        };
        kept.push(&bytes);
        if call.progress.is_some() {
            news.add(&bytes);
        }
    }
}

/// Output that was not reported yet.
#[derive(Debug, Default)]
struct News {
    text: Vec<u8>,
    /// Bytes in all, reported or not.
    total: usize,
}

impl News {
    fn add(&mut self, bytes: &[u8]) {
        self.total += bytes.len();
        let room = PROGRESS_TEXT.saturating_sub(self.text.len());
        self.text.extend_from_slice(&bytes[..bytes.len().min(room)]);
    }

    fn take(&mut self) -> String {
        let text = std::mem::take(&mut self.text);
        String::from_utf8_lossy(&text).into_owned()
    }
}

fn reply(sandbox: String, heard: &Heard) -> Reply {
    let ran = Ran {
        sandbox,
        exit_code: heard.exit.code,
        stdout: heard.stdout.text(),
        stderr: heard.stderr.text(),
        left_out: heard.stdout.left_out() + heard.stderr.left_out(),
        error: heard
            .exit
            .error
            .as_deref()
            .map(|error| beginning(error, END).to_owned()),
    };
    let mut text = ran.stdout.clone();
    if !ran.stderr.is_empty() {
        if !text.is_empty() && !text.ends_with('\n') {
            text.push('\n');
        }
        text += &format!("[stderr]\n{}", ran.stderr);
    }
    match &ran.error {
        Some(error) => text += &format!("\n[{error}]"),
        None if ran.exit_code != 0 => text += &format!("\n[exit code {}]", ran.exit_code),
        None if text.is_empty() => text.push_str("[no output]"),
        None => {}
    }
    Reply::new(text, &ran)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heard(stdout: &str, stderr: &str, code: i32, error: Option<&str>) -> String {
        let mut heard = Heard {
            stdout: Bounded::new(END),
            stderr: Bounded::new(END),
            exit: CommandExit {
                code,
                error: error.map(str::to_owned),
            },
        };
        heard.stdout.push(stdout.as_bytes());
        heard.stderr.push(stderr.as_bytes());
        let reply = reply("i1".to_owned(), &heard);
        assert_eq!(reply.structured["exit_code"], code);
        reply.content[0].as_text().unwrap().text.clone()
    }

    #[test]
    fn the_model_reads_outputs_and_what_went_wrong() {
        assert_eq!(heard("a\n", "", 0, None), "a\n");
        assert_eq!(heard("", "", 0, None), "[no output]");
        assert_eq!(
            heard("a", "b\n", 3, None),
            "a\n[stderr]\nb\n\n[exit code 3]"
        );
        assert_eq!(
            heard("", "", -1, Some("signal: killed")),
            "\n[signal: killed]"
        );
    }

    #[test]
    fn a_timeout_has_limits() {
        assert_eq!(seconds(None, 5), Ok(5));
        assert_eq!(seconds(Some(3600), 5), Ok(3600));
        assert!(seconds(Some(0), 5).is_err() && seconds(Some(3601), 5).is_err());
    }

    #[test]
    fn progress_has_a_part_of_much_output_and_all_of_its_length() {
        let mut news = News::default();
        news.add(&[b'x'; PROGRESS_TEXT]);
        news.add(b"more");
        assert_eq!(
            (news.take().len(), news.total),
            (PROGRESS_TEXT, PROGRESS_TEXT + 4)
        );
        assert!(news.text.is_empty());
    }
}
