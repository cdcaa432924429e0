//! Carries messages between a program in a sandbox and the client that talks to it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::StreamExt;
use parking_lot::Mutex;
use shoal_core::ports::inside::{CommandExit, CommandOutput, InsideError, RunningCommand};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, split};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::filter::{Filter, Lines, Message, TooLong};
use crate::text::Bounded;

/// How much is read from the client at once.
const CHUNK: usize = 16 << 10;

/// How long the exit of a program may come after its input is closed.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// How much of each end of the standard error is kept.
const STDERR: usize = 1 << 10;

/// The end of a connection.
enum End {
    /// This side has ended it.
    Stopped,
    /// The program or its connection has, for this reason.
    Itself(String),
}

/// The program's side of a connection.
pub(super) struct Link {
    filter: Mutex<Filter>,
    stderr: Mutex<Bounded>,
    end: Mutex<Option<End>>,
    /// Runs when the program says that its tools have changed.
    changed: Box<dyn Fn() + Send + Sync>,
}

impl Link {
    pub(super) fn new(changed: impl Fn() + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(Self {
            filter: Mutex::default(),
            stderr: Mutex::new(Bounded::new(STDERR)),
            end: Mutex::default(),
            changed: Box::new(changed),
        })
    }

    /// Whether the program has ended.
    pub(super) fn has_ended(&self) -> bool {
        self.end.lock().is_some()
    }

    /// Why the program has ended, with its last words on standard error. `otherwise` is the reason if
    /// this side ended it, or it still runs.
    pub(super) fn reason(&self, otherwise: &str) -> String {
        let reason = match &*self.end.lock() {
            Some(End::Itself(reason)) => reason.clone(),
            Some(End::Stopped) | None => otherwise.to_owned(),
        };
        match self.stderr.lock().text().trim() {
            "" => reason,
            words => format!("{reason}\n[stderr]\n{words}"),
        }
    }

    /// Carries messages until either side ends, or `stop` is cancelled. The program is killed then.
    pub(super) async fn carry(
        &self,
        process: RunningCommand,
        client: DuplexStream,
        stop: &CancellationToken,
    ) {
        let RunningCommand { output, control } = process;
        let (mut from_client, mut to_client) = split(client);
        let send = async {
            let mut chunk = vec![0; CHUNK];
            let mut lines = Lines::default();
            loop {
                let read = from_client.read(&mut chunk).await.unwrap_or(0);
                let Some(bytes) = chunk.get(..read).filter(|bytes| !bytes.is_empty()) else {
                    return End::Stopped;
                };
                let Ok(lines) = lines.push(bytes) else {
                    return End::Itself(TooLong.to_string());
                };
                for line in lines {
                    self.filter.lock().sent(&line);
                }
                if let Err(error) = control.input(Bytes::copy_from_slice(bytes)).await {
                    // A program that has ended says why.
                    sleep(LAST_WORDS).await;
                    return End::Itself(error.to_string());
                }
            }
        };
        let receive = self.receive(output, &mut to_client);
        let end = tokio::select! {
            biased;
            end = receive => end,
            end = send => end,
            () = stop.cancelled() => End::Stopped,
        };
        *self.end.lock() = Some(end);
        // It may have ended by itself.
        let _ = control.kill().await;
    }

    async fn receive(
        &self,
        mut output: impl futures_util::Stream<Item = Result<CommandOutput, InsideError>> + Unpin,
        to_client: &mut (impl AsyncWriteExt + Unpin),
    ) -> End {
        let mut lines = Lines::default();
        loop {
            let bytes = match output.next().await {
                Some(Ok(CommandOutput::Stdout(bytes))) => bytes,
                Some(Ok(CommandOutput::Stderr(bytes))) => {
                    self.stderr.lock().push(&bytes);
                    continue;
                }
                Some(Ok(CommandOutput::Exit(exit))) => return End::Itself(told(exit)),
                Some(Err(error)) => return End::Itself(error.to_string()),
                None => return End::Itself("the connection to the sandbox broke".to_owned()),
            };
            let Ok(lines) = lines.push(&bytes) else {
                return End::Itself(TooLong.to_string());
            };
            for line in lines {
                let message = self.filter.lock().received(&line, Instant::now());
                match message {
                    Message::Expected if to_client.write_all(&line).await.is_err() => {
                        return End::Stopped;
                    }
                    Message::ToolsChanged => (self.changed)(),
                    Message::Expected | Message::Ignored => {}
                }
            }
        }
    }
}

fn told(exit: CommandExit) -> String {
    exit.error
        .unwrap_or_else(|| format!("exit code {}", exit.code))
}
