//! Supervision of a process: spawn, output, deadline, exit.

use std::io;
use std::sync::Arc;

use rustix::process::Signal;
use shoal_protocol::process::StartRequest;
use tokio::sync::{OwnedSemaphorePermit, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::children::Child;
use super::command::{Command, InvalidCommand};
use super::exit::Status;
use super::feed::{Event, Feed, Subscription};
use super::input::Input;
use super::output::{Reader, Stream};
use super::streams::{self, Ours, Theirs};
use super::table::{MAX_PROCESSES, Processes};
use super::{Process, raw};
use crate::active_time::ActiveDeadline;
use crate::hardening::Original;
use crate::log::lines::Lines;
use crate::polled::Polled;
use crate::settings::{Defaults, Variables};
use crate::user::User;

/// Why a process did not start.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StartError {
    /// Invalid request.
    #[error(transparent)]
    Invalid(#[from] InvalidCommand),
    /// Creating pipes or a terminal failed.
    #[error("cannot create the streams of process '{0}': {1}")]
    Streams(String, #[source] io::Error),
    /// The working directory is inaccessible.
    #[error("cannot enter cwd '{0}': {1}")]
    Directory(String, #[source] io::Error),
    /// The program is missing or not executable.
    #[error("error starting process '{0}': {1}")]
    Program(String, #[source] io::Error),
    /// The process limit is reached.
    #[error("more than {MAX_PROCESSES} processes")]
    Full,
    /// The daemon is shutting down.
    #[error("the daemon is shutting down")]
    Ending,
}

/// Start parameters of a process.
pub(super) struct Order {
    /// The request.
    pub(super) request: StartRequest,
    /// User.
    pub(super) user: User,
    /// All groups of the user.
    pub(super) groups: Vec<u32>,
    /// Default working directory.
    pub(super) defaults: Defaults,
    /// The environment of every process.
    pub(super) environment: Arc<Variables>,
    /// When the process is killed.
    pub(super) deadline: Option<Instant>,
    /// Limits to restore.
    pub(super) original: Original,
}

/// A process and its first subscriber.
pub(super) type Started = (Arc<Process>, Subscription);

/// Starts a process. It keeps running if the caller disconnects.
pub(super) async fn start(processes: &Arc<Processes>, order: Order) -> Result<Started, StartError> {
    let room = processes.room().ok_or(StartError::Full)?;
    let (tx, rx) = oneshot::channel();
    let processes = Arc::clone(processes);
    tokio::spawn(async move {
        match make(&processes, order).await {
            Ok((process, life)) => {
                // Subscribed before output is read, so that nothing is missed.
                if let Ok(subscription) = process.feed.subscribe() {
                    let _ = tx.send(Ok((Arc::clone(&process), subscription)));
                }
                life.run(&processes, process, room).await;
            }
            Err(error) => drop(tx.send(Err(error))),
        }
    });
    rx.await.unwrap_or(Err(StartError::Ending))
}

/// What supervision needs.
struct Life {
    child: Child,
    readers: Vec<Reader>,
    leave: watch::Sender<bool>,
    deadline: Option<ActiveDeadline>,
}

async fn make(
    processes: &Arc<Processes>,
    order: Order,
) -> Result<(Arc<Process>, Life), StartError> {
    let Order {
        request, deadline, ..
    } = &order;
    let (mut request, deadline) = (request.clone(), *deadline);
    let config = request.process.take().unwrap_or_default();
    let shown = shown(&config.cmd, &config.args);
    let command = Command::new(&config, &order.user, &order.defaults, &order.environment)?;
    let streams = match request.pty.as_option() {
        Some(pty) => {
            let size = streams::size(pty.size.cols, pty.size.rows);
            streams::terminal(size, &order.user)
        }
        None => streams::pipes(request.stdin.unwrap_or(true)),
    };
    let stream_error = |error| StartError::Streams(shown.clone(), error);
    let (ours, theirs) = streams.map_err(stream_error)?;

    let user = order.user.name.clone();
    let child = spawn(processes, command, theirs, order).await;
    let child = child.map_err(|failure| explain(failure, &shown, config.cwd.as_deref()))?;
    let pid = child.pid.cast_unsigned();
    let (input, readings) = attach(ours).map_err(stream_error)?;

    let feed = Arc::<Feed>::default();
    let (leave, leaves) = watch::channel(false);
    let readers = readings.into_iter().map(|(stream, fd)| Reader {
        stream,
        fd,
        feed: Arc::clone(&feed),
        leave: leaves.clone(),
        lines: (!matches!(stream, Stream::Terminal))
            .then(|| Lines::new(processes.log.clone(), stream.name(), pid)),
    });
    let life = Life {
        child,
        readers: readers.collect(),
        leave,
        deadline: deadline.map(|at| processes.time.deadline(at)),
    };
    let process = Arc::new(Process {
        pid,
        config,
        tag: request.tag.take(),
        input,
        feed,
        hurry: watch::Sender::new(false),
    });
    processes.add(&process);
    let entry = processes.log.info("process", "start").with("pid", pid);
    entry.with("cmd", shown).with("user", user).send();
    Ok((process, life))
}

/// Spawns on the blocking pool. Another process of the same user can stop the child before its
/// `exec`, which blocks the spawning thread.
async fn spawn(
    processes: &Arc<Processes>,
    command: Command,
    theirs: Theirs,
    order: Order,
) -> Result<Child, raw::Failure> {
    let children = Arc::clone(&processes.children);
    let spawned = tokio::task::spawn_blocking(move || {
        children.spawn(&raw::Image {
            candidates: &command.candidates,
            arguments: &command.arguments,
            script_arguments: &command.script_arguments,
            environment: &command.environment,
            cwd: &command.cwd,
            stdio: theirs.stdio(),
            terminal: theirs.is_terminal(),
            uid: order.user.uid,
            gid: order.user.gid,
            groups: &order.groups,
            descriptors: order.original.descriptors,
            reset_nice: order.original.niced,
        })
    });
    spawned.await.unwrap_or_else(|_| {
        Err(raw::Failure {
            step: raw::Step::Clone,
            error: io::ErrorKind::Interrupted.into(),
        })
    })
}

type Readings = Vec<(Stream, Arc<Polled>)>;

fn attach(ours: Ours) -> io::Result<(Input, Readings)> {
    match ours {
        Ours::Pipes {
            stdin,
            stdout,
            stderr,
        } => {
            let readings = vec![
                (Stream::Stdout, Arc::new(Polled::new(stdout)?)),
                (Stream::Stderr, Arc::new(Polled::new(stderr)?)),
            ];
            Ok((Input::pipe(stdin)?, readings))
        }
        Ours::Terminal(terminal) => {
            let terminal = Arc::new(Polled::new(terminal)?);
            let readings = vec![(Stream::Terminal, Arc::clone(&terminal))];
            Ok((Input::Terminal(terminal, Default::default()), readings))
        }
    }
}

impl Life {
    async fn run(
        mut self,
        processes: &Arc<Processes>,
        process: Arc<Process>,
        room: OwnedSemaphorePermit,
    ) {
        let _busy = processes.want.busy();
        let mut reading = JoinSet::new();
        for reader in std::mem::take(&mut self.readers) {
            let scratch = Arc::clone(&processes.scratch);
            reading.spawn(reader.run(scratch, Arc::clone(&processes.rate)));
        }
        let status = self.wait(processes, &process).await;
        // At once, before the process id is reused.
        let reason = processes.want.reason(process.pid.cast_signed(), status);
        self.read_rest(processes, &process, &mut reading).await;

        let mut event = status.to_event();
        let entry = processes.log.info("process", "end");
        let entry = entry.with("pid", process.pid).with("exit", event.exit_code);
        let mut entry = entry.with("status", event.status.clone());
        if let Some(reason) = reason {
            // Some clients show standard error only.
            process.feed.publish(process.remark(&reason)).await;
            event.error = Some(format!("{}: {reason}", event.status));
            entry = entry.with("reason", reason);
        }
        entry.send();
        let event = Arc::new(event);
        processes.end(&process, Arc::clone(&event));
        drop(room);
        process.feed.close(Event::End(event)).await;
    }

    /// Waits for the exit, and kills the process at its deadline.
    async fn wait(&mut self, processes: &Processes, process: &Process) -> Status {
        loop {
            let deadline = self.deadline;
            tokio::select! {
                status = &mut self.child.exit => {
                    // The registry never drops the sender without a status.
                    return status.unwrap_or(Status::Killed(0));
                }
                () = processes.time.sleep_until(deadline) => {
                    self.deadline = None;
                    let _ = process.signal(&processes.children, Signal::KILL);
                }
            }
        }
    }

    /// Reads remaining output. The process has exited, so its own output is buffered by now; its
    /// children may still print. Waits for them until a signal was sent or the deadline passes.
    async fn read_rest(&self, processes: &Processes, process: &Process, reading: &mut JoinSet<()>) {
        let mut hurry = process.hurry.subscribe();
        tokio::select! {
            () = all(reading) => return,
            _ = hurry.wait_for(|hurry| *hurry) => {}
            () = processes.time.sleep_until(self.deadline) => {}
        }
        self.leave.send_replace(true);
        all(reading).await;
    }
}

async fn all(reading: &mut JoinSet<()>) {
    while reading.join_next().await.is_some() {}
}

/// A command line for display.
pub(super) fn shown(cmd: &str, args: &[String]) -> String {
    let words: Vec<&str> = std::iter::once(cmd)
        .chain(args.iter().map(String::as_str))
        .collect();
    words.join(" ")
}

pub(super) fn explain(failure: raw::Failure, shown: &str, cwd: Option<&str>) -> StartError {
    match failure.step {
        raw::Step::Directory => StartError::Directory(cwd.unwrap_or("~").to_owned(), failure.error),
        raw::Step::Clone | raw::Step::Streams | raw::Step::User | raw::Step::Execute => {
            StartError::Program(shown.to_owned(), failure.error)
        }
    }
}
