//! `shoal mcp`: the server's `/mcp` for agents that start a program and speak over its standard input and output.
//!
//! It forwards messages and knows no tools. Each line of the input is one message. Answers come as events and are written as
//! lines. The session at the server ends with this program.

mod events;
mod session;

use std::io::{Write, stdout};
use std::time::Duration;

use bytes::Bytes;
use clap::Args;
use serde_json::Value;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

use self::session::Session;
use crate::connection::ConnectionArgs;
use crate::failure::{EXIT_CODES, Failure, Kind};
use crate::stdin;

/// The largest message, in bytes.
const MESSAGE_MAX: usize = 64 << 20;

/// How long the last messages may take, if the client does not read.
const WRITE_TIMEOUT: Duration = Duration::from_secs(2);

/// How many messages wait to be written.
const WAITING: usize = 64;

/// Serve sandboxes to an agent over standard input and output.
///
/// Agents start it by themselves: docs/mcp.md has their configurations.
#[derive(Debug, Args)]
#[command(after_help = EXIT_CODES)]
pub struct McpArgs {
    /// The template of this session's sandbox [default: the server's].
    #[arg(long, value_name = "NAME")]
    template: Option<String>,
    #[command(flatten)]
    connection: ConnectionArgs,
}

/// Forwards messages until the input ends, a signal comes, or the output is closed.
pub(crate) async fn run(args: McpArgs) -> Result<u8, Failure> {
    let server = args.connection.resolve()?;
    let (lines, written) = mpsc::channel(WAITING);
    let mut session = Session::new(server, args.template, lines);
    let mut writer = tokio::task::spawn_blocking(move || write(written));
    let forwarded = tokio::select! {
        forwarded = forward(&mut session) => forwarded,
        () = stopped() => Ok(()),
        _ = &mut writer => Err(Failure::new(Kind::NobodyReads, "nobody reads the answers")),
    };
    session.end().await;
    // All senders are gone, so the writer ends when everything is written.
    drop(session);
    if !writer.is_finished() {
        let _ = tokio::time::timeout(WRITE_TIMEOUT, writer).await;
    }
    forwarded.map(|()| 0)
}

/// Resolves on SIGTERM or SIGINT.
async fn stopped() {
    let hear = |kind| signal(kind).ok();
    let (terminate, interrupt) = (hear(SignalKind::terminate()), hear(SignalKind::interrupt()));
    let wait = async |heard: Option<tokio::signal::unix::Signal>| match heard {
        Some(mut heard) => {
            heard.recv().await;
        }
        None => std::future::pending().await,
    };
    tokio::select! {
        () = wait(terminate) => {}
        () = wait(interrupt) => {}
    }
}

/// Forwards each line of the input, then waits for the answers.
async fn forward(session: &mut Session) -> Result<(), Failure> {
    let mut input = stdin::read();
    let mut waiting: Vec<u8> = Vec::new();
    while let Some(bytes) = input.recv().await {
        let bytes: Bytes =
            bytes.map_err(|error| Failure::other(format!("cannot read the input: {error}")))?;
        waiting.extend_from_slice(&bytes);
        while let Some(end) = waiting.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = waiting.drain(..=end).collect();
            forward_line(session, &line).await?;
        }
        if waiting.len() > MESSAGE_MAX {
            return Err(Failure::usage(format!(
                "a message has more than {MESSAGE_MAX} bytes"
            )));
        }
    }
    forward_line(session, &waiting).await?;
    session.answered().await;
    Ok(())
}

async fn forward_line(session: &mut Session, line: &[u8]) -> Result<(), Failure> {
    if line.trim_ascii().is_empty() {
        return Ok(());
    }
    match serde_json::from_slice::<Value>(line) {
        Ok(message) => session.forward(message).await,
        Err(error) => {
            session
                .tell_error(&Value::Null, -32700, &format!("Parse error: {error}"))
                .await;
            Ok(())
        }
    }
}

/// Writes each message as a line, until all senders are gone or the output is closed.
fn write(mut messages: mpsc::Receiver<Bytes>) {
    let mut out = stdout().lock();
    while let Some(message) = messages.blocking_recv() {
        let written = out.write_all(&message).and_then(|()| out.write_all(b"\n"));
        if written.and_then(|()| out.flush()).is_err() {
            return;
        }
    }
}
