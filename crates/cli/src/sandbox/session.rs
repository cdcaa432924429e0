//! A command in a terminal.

use std::io::{self, IsTerminal};

use bytes::Bytes;
use shoal_protocol::client::{Command, EnvdClient, Output, Process, Selector};
use shoal_protocol::process::Signal;
use tokio::signal::unix::{SignalKind, signal};

use super::exec::{code, ended, start, write};
use super::interruptions::Interruptions;
use crate::failure::{Failure, Kind};
use crate::{stdin, terminal};

/// End of input for a terminal.
const END_OF_INPUT: &[u8] = b"\x04";

/// Runs a command in a terminal until it ends. Always restores the local terminal.
pub(super) async fn run(envd: &EnvdClient, command: Command) -> Result<u8, Failure> {
    let (cols, rows) = terminal::size();
    let command = match std::env::var("TERM") {
        Ok(kind) if !kind.is_empty() => command.with_env("TERM", &kind),
        _ => command,
    };
    let mut heard = Interruptions::hear();
    let mut process = start(envd, command.with_terminal(cols, rows)).await?;
    let selector = Selector::Pid(process.pid());
    let raw = terminal::RawMode::enter()
        .map_err(|error| Failure::other(format!("cannot use this terminal: {error}")))?;
    let mut beside = tokio::task::JoinSet::new();
    beside.spawn(feed(envd.clone(), selector.clone()));
    beside.spawn(follow_size(envd.clone(), selector.clone()));
    let shown = tokio::select! {
        shown = show(&mut process) => shown,
        _ = heard.next() => {
            // Shells ignore SIGTERM.
            let _ = envd.signal(selector, Signal::SIGNAL_SIGKILL).await;
            Err(Failure::new(Kind::Interrupted, "terminated"))
        }
    };
    drop(raw);
    shown
}

async fn show(process: &mut Process) -> Result<u8, Failure> {
    while let Some(output) = process.next().await.map_err(ended)? {
        match output {
            Output::Terminal(bytes) | Output::Stdout(bytes) | Output::Stderr(bytes) => {
                write(io::stdout().lock(), &bytes)?;
            }
            Output::Exit(exit) => return Ok(code(&exit)),
        }
    }
    Err(Failure::new(
        Kind::Unreachable,
        "the connection to the sandbox broke",
    ))
}

/// Forwards input.
async fn feed(envd: EnvdClient, process: Selector) {
    let mut input = stdin::read();
    while let Some(Ok(bytes)) = input.recv().await {
        if envd.send_terminal(process.clone(), bytes).await.is_err() {
            return;
        }
    }
    if !io::stdin().is_terminal() {
        let end = Bytes::from_static(END_OF_INPUT);
        let _ = envd.send_terminal(process, end).await;
    }
}

/// Forwards window sizes.
async fn follow_size(envd: EnvdClient, process: Selector) {
    let Ok(mut changes) = signal(SignalKind::window_change()) else {
        return;
    };
    while changes.recv().await.is_some() {
        let (cols, rows) = terminal::size();
        // The next change will update it.
        let _ = envd.resize(process.clone(), cols, rows).await;
    }
}
