//! `shoal sandbox exec`.

use std::io::{self, IsTerminal, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use clap::Args;
use shoal_protocol::client::{ClientError, Command, EnvdClient, Exit, Output, Process, Selector};
use shoal_protocol::process::Signal;

use super::interruptions::Interruptions;
use super::session;
use crate::connection::Connection;
use crate::failure::{Failure, Kind};
use crate::{parse, stdin};

/// The offset of a signal number in an exit code, as in shells.
const BY_SIGNAL: u8 = 128;

/// The exit code of a command that SIGTERM ended.
const TERMINATED: u8 = BY_SIGNAL + 15;

/// The exit code of an interrupted command.
const INTERRUPTED: u8 = BY_SIGNAL + 2;

#[derive(Debug, Args)]
#[command(after_help = "\
Standard input is passed on when it is no terminal; in a loop that reads a list, say --no-stdin.
The first Ctrl-C asks the command to end (SIGTERM), the second kills it, the third lets it be.

Examples:
  shoal sandbox exec ID -- uname -a
  echo 'print(6 * 7)' | shoal sandbox exec ID -- python3 -
  shoal sandbox exec --tty ID -- top")]
pub(crate) struct ExecArgs {
    #[command(flatten)]
    how: How,
    /// Run the command in a terminal.
    #[arg(long, short)]
    tty: bool,
    /// Forward standard input; the default when it is not a terminal.
    #[arg(long, short)]
    interactive: bool,
    /// Do not read standard input.
    #[arg(long, short, conflicts_with_all = ["tty", "interactive"])]
    no_stdin: bool,
    /// Kill the command after this time [default: no limit].
    #[arg(long, value_name = "TIME", value_parser = parse::duration)]
    timeout: Option<Duration>,
    /// The sandbox.
    #[arg(value_name = "ID")]
    id: String,
    /// The program and its arguments.
    #[arg(required = true, trailing_var_arg = true, value_name = "COMMAND")]
    command: Vec<String>,
}

/// User, directory and environment of a command.
#[derive(Debug, Default, Args)]
pub(super) struct How {
    /// The user [default: the template's].
    #[arg(long, short, value_name = "NAME")]
    pub(super) user: Option<String>,
    /// The working directory [default: the template's, else the user's home].
    #[arg(long, short = 'w', value_name = "DIR")]
    cwd: Option<String>,
    /// An environment variable; repeatable.
    #[arg(long, short, value_name = "NAME=VALUE", value_parser = parse::pair)]
    env: Vec<(String, String)>,
}

impl How {
    /// Sets up a command.
    pub(super) fn of(&self, mut command: Command) -> Command {
        if let Some(cwd) = &self.cwd {
            command = command.with_cwd(cwd);
        }
        for (name, value) in &self.env {
            command = command.with_env(name, value);
        }
        command
    }
}

impl ExecArgs {
    pub(crate) async fn run(self, server: &Connection) -> Result<u8, Failure> {
        let feeds = !self.no_stdin;
        let one = One {
            how: &self.how,
            timeout: self.timeout,
            tty: self.tty,
            feeds,
        };
        one.run(server, &self.id, &self.command).await
    }
}

/// Runs a command without a deadline.
pub(super) async fn run(
    server: &Connection,
    id: &str,
    how: &How,
    command: &[String],
    tty: bool,
) -> Result<u8, Failure> {
    let one = One {
        how,
        timeout: None,
        tty,
        feeds: true,
    };
    one.run(server, id, command).await
}

/// How a command runs.
struct One<'a> {
    how: &'a How,
    timeout: Option<Duration>,
    tty: bool,
    /// Whether to forward standard input that is not a terminal.
    feeds: bool,
}

impl One<'_> {
    async fn run(&self, server: &Connection, id: &str, command: &[String]) -> Result<u8, Failure> {
        let envd = server.inside(id, self.how.user.as_deref()).await?;
        let (program, args) = command
            .split_first()
            .ok_or_else(|| Failure::usage("no command given"))?;
        let mut command = self.how.of(Command::new(program, args));
        if let Some(timeout) = self.timeout {
            command = command.with_timeout(timeout);
        }
        let ended = if self.tty {
            session::run(&envd, command).await
        } else {
            let feeds = self.feeds && !io::stdin().is_terminal();
            stream(&envd, command, feeds).await
        };
        match ended {
            Err(failure) if matches!(failure.kind(), Kind::Unreachable | Kind::Server) => {
                Err(why_broken(server, id, failure).await)
            }
            ended => ended,
        }
    }
}

/// Reports the end of the sandbox as the cause of a broken connection.
pub(super) async fn why_broken(server: &Connection, id: &str, failure: Failure) -> Failure {
    match server.sandbox::<serde_json::Value>(id).await {
        Err(gone) if gone.kind() == Kind::NotFound => {
            Failure::not_found(format!("sandbox {id} ended before the command did"))
        }
        _ => failure,
    }
}

/// Starts a command; reports errors like a shell.
pub(super) async fn start(envd: &EnvdClient, command: Command) -> Result<Process, Failure> {
    envd.start(command).await.map_err(|error| {
        let failure = Failure::from(error);
        match failure.kind() {
            Kind::Usage => Failure::new(Kind::NotStarted, failure.to_string()),
            _ => failure,
        }
    })
}

/// Runs a command with its three streams.
async fn stream(envd: &EnvdClient, command: Command, feeds: bool) -> Result<u8, Failure> {
    let command = if feeds { command.with_stdin() } else { command };
    let heard = Interruptions::hear();
    let mut process = start(envd, command).await?;
    let selector = Selector::Pid(process.pid());
    let mut beside = tokio::task::JoinSet::new();
    if feeds {
        beside.spawn(feed(envd.clone(), selector.clone()));
    }
    let interrupted = Arc::new(AtomicBool::new(false));
    let forward = forward_signals(envd.clone(), selector.clone(), heard, interrupted.clone());
    let mut signals = tokio::spawn(forward);
    let shown = tokio::select! {
        shown = show(&mut process) => shown,
        _ = &mut signals => Err(Failure::new(Kind::Interrupted, "interrupted; the command continues")),
    };
    signals.abort();
    if let Err(failure) = &shown
        && failure.kind() == Kind::NobodyReads
    {
        // As SIGPIPE would.
        let _ = envd.signal(selector, Signal::SIGNAL_SIGTERM).await;
    }
    match shown {
        // Ctrl-C ended it, by SIGTERM.
        Ok(TERMINATED) if interrupted.load(Ordering::Relaxed) => Ok(INTERRUPTED),
        shown => shown,
    }
}

/// Prints the output of a process and returns its end.
async fn show(process: &mut Process) -> Result<u8, Failure> {
    while let Some(output) = process.next().await.map_err(ended)? {
        match output {
            Output::Stdout(bytes) | Output::Terminal(bytes) => write(io::stdout().lock(), &bytes)?,
            Output::Stderr(bytes) => write(io::stderr().lock(), &bytes)?,
            Output::Exit(exit) => return Ok(code(&exit)),
        }
    }
    Err(Failure::new(
        Kind::Unreachable,
        "the connection to the sandbox broke",
    ))
}

/// Translates a timeout of the command.
pub(super) fn ended(error: ClientError) -> Failure {
    match error.code() {
        Some(connectrpc::ErrorCode::DeadlineExceeded) => {
            Failure::other("the command was killed: it timed out")
        }
        _ => error.into(),
    }
}

pub(super) fn write(mut to: impl Write, bytes: &Bytes) -> Result<(), Failure> {
    to.write_all(bytes)?;
    Ok(to.flush()?)
}

/// Forwards standard input and its end.
async fn feed(envd: EnvdClient, process: Selector) {
    let mut input = stdin::read();
    while let Some(Ok(bytes)) = input.recv().await {
        // The process closed its input.
        if envd.send_stdin(process.clone(), bytes).await.is_err() {
            return;
        }
    }
    let _ = envd.close_stdin(process).await;
}

/// Forwards signals. Ends after the third.
async fn forward_signals(
    envd: EnvdClient,
    process: Selector,
    mut heard: Interruptions,
    interrupted: Arc<AtomicBool>,
) {
    for signal in [Signal::SIGNAL_SIGTERM, Signal::SIGNAL_SIGKILL] {
        interrupted.fetch_or(heard.next().await, Ordering::Relaxed);
        let (envd, process) = (envd.clone(), process.clone());
        // Not awaited, so that the next signal is handled; the process may have ended.
        tokio::spawn(async move { envd.signal(process, signal).await });
    }
    heard.next().await;
}

/// The exit code, as in a shell.
pub(super) fn code(exit: &Exit) -> u8 {
    if exit.exited {
        return u8::try_from(exit.code & 0xff).unwrap_or(u8::MAX);
    }
    let name = exit.status.strip_prefix("signal: ").unwrap_or_default();
    let number = match name {
        "hangup" => 1,
        "interrupt" => 2,
        "quit" => 3,
        "illegal instruction" => 4,
        "trace/breakpoint trap" => 5,
        "aborted" => 6,
        "bus error" => 7,
        "floating point exception" => 8,
        "killed" => 9,
        "user defined signal 1" => 10,
        "segmentation fault" => 11,
        "user defined signal 2" => 12,
        "broken pipe" => 13,
        "alarm clock" => 14,
        "terminated" => 15,
        "CPU time limit exceeded" => 24,
        "file size limit exceeded" => 25,
        "bad system call" => 31,
        other => match other.strip_prefix("signal ").map(str::parse) {
            Some(Ok(number)) if number < BY_SIGNAL => number,
            _ => 0,
        },
    };
    BY_SIGNAL + number
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_ends_with_its_own_code_or_with_its_signals() {
        let by_itself = |code| Exit {
            code,
            exited: true,
            status: format!("exit status {code}"),
        };
        let killed = |status: &str| Exit {
            code: -1,
            exited: false,
            status: status.to_owned(),
        };
        assert_eq!(code(&by_itself(0)), 0);
        assert_eq!(code(&by_itself(255)), 255);
        assert_eq!(code(&killed("signal: killed")), 137);
        assert_eq!(code(&killed("signal: terminated")), 143);
        assert_eq!(code(&killed("signal: segmentation fault")), 139);
        assert_eq!(code(&killed("signal: signal 34")), 162);
        assert_eq!(code(&killed("signal: signal 900")), 128);
        assert_eq!(code(&killed("")), 128);
    }
}
