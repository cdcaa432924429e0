//! Supervision of a process: spawn, output, deadline, exit.

use std::io;
use std::sync::Arc;

use rustix::process::Signal;
use shoal_protocol::process::StartRequest;
use tokio::sync::{OwnedSemaphorePermit, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::InheritedLimits;
use super::children::Child;
use super::command::{Command, InvalidCommand};
use super::exit::Status;
use super::input::Input;
use super::output::{Reader, Stream};
use super::output_channel::{Event, OutputChannel, Subscription};
use super::streams::{self, DaemonEnds, ProcessEnds};
use super::table::{MAX_PROCESSES, Processes};
use super::{Process, raw};
use crate::active_time::ActiveDeadline;
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
pub(super) struct StartSpec {
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
    pub(super) inherited_limits: InheritedLimits,
}

/// A process and its first subscriber.
pub(super) type Started = (Arc<Process>, Subscription);

/// Starts a process. It keeps running if the caller disconnects.
pub(super) async fn start(
    processes: &Arc<Processes>,
    spec: StartSpec,
) -> Result<Started, StartError> {
    let slot = processes.reserve_slot().ok_or(StartError::Full)?;
    let (tx, rx) = oneshot::channel();
    let processes = Arc::clone(processes);
    tokio::spawn(async move {
        match spawn_process(&processes, spec).await {
            Ok((process, supervisor)) => {
                // Subscribed before output is read, so that nothing is missed.
                if let Ok(subscription) = process.output.subscribe() {
                    let _ = tx.send(Ok((Arc::clone(&process), subscription)));
                }
                supervisor.run(&processes, process, slot).await;
            }
            Err(error) => drop(tx.send(Err(error))),
        }
    });
    rx.await.unwrap_or(Err(StartError::Ending))
}

/// The inputs of supervision.
struct Supervisor {
    child: Child,
    readers: Vec<Reader>,
    drain_only: watch::Sender<bool>,
    deadline: Option<ActiveDeadline>,
}

async fn spawn_process(
    processes: &Arc<Processes>,
    spec: StartSpec,
) -> Result<(Arc<Process>, Supervisor), StartError> {
    let StartSpec {
        request, deadline, ..
    } = &spec;
    let (mut request, deadline) = (request.clone(), *deadline);
    let config = request.process.take().unwrap_or_default();
    let command_line = command_line(&config.cmd, &config.args);
    let command = Command::new(&config, &spec.user, &spec.defaults, &spec.environment)?;
    let streams = match request.pty.as_option() {
        Some(pty) => {
            let size = streams::size(pty.size.cols, pty.size.rows);
            streams::terminal(size, &spec.user)
        }
        None => streams::pipes(request.stdin.unwrap_or(true)),
    };
    let stream_error = |error| StartError::Streams(command_line.clone(), error);
    let (daemon_ends, process_ends) = streams.map_err(stream_error)?;

    let user = spec.user.name.clone();
    let child = spawn(processes, command, process_ends, spec).await;
    let child =
        child.map_err(|failure| start_error(failure, &command_line, config.cwd.as_deref()))?;
    let pid = child.pid.cast_unsigned();
    let (input, output_streams) = attach(daemon_ends).map_err(stream_error)?;

    let output = Arc::<OutputChannel>::default();
    let (drain_only, drain_only_rx) = watch::channel(false);
    let readers = output_streams.into_iter().map(|(stream, fd)| Reader {
        stream,
        fd,
        output: Arc::clone(&output),
        drain_only: drain_only_rx.clone(),
        lines: (!matches!(stream, Stream::Terminal))
            .then(|| Lines::new(processes.log.clone(), stream.name(), pid)),
    });
    let supervisor = Supervisor {
        child,
        readers: readers.collect(),
        drain_only,
        deadline: deadline.map(|at| processes.time.deadline(at)),
    };
    let process = Arc::new(Process {
        pid,
        config,
        tag: request.tag.take(),
        input,
        output,
        signalled: watch::Sender::new(false),
    });
    processes.add(&process);
    let entry = processes.log.info("process", "start").with("pid", pid);
    entry.with("cmd", command_line).with("user", user).send();
    Ok((process, supervisor))
}

/// Spawns on the blocking pool. Another process of the same user can stop the child before its
/// `exec`, which blocks the spawning thread.
async fn spawn(
    processes: &Arc<Processes>,
    command: Command,
    process_ends: ProcessEnds,
    spec: StartSpec,
) -> Result<Child, raw::Failure> {
    let children = Arc::clone(&processes.children);
    let spawned = tokio::task::spawn_blocking(move || {
        children.spawn(&raw::ExecSpec {
            candidates: &command.candidates,
            arguments: &command.arguments,
            script_arguments: &command.script_arguments,
            environment: &command.environment,
            cwd: &command.cwd,
            stdio: process_ends.stdio(),
            terminal: process_ends.is_terminal(),
            uid: spec.user.uid,
            gid: spec.user.gid,
            groups: &spec.groups,
            descriptors: spec.inherited_limits.descriptors,
            reset_nice: spec.inherited_limits.niced,
        })
    });
    spawned.await.unwrap_or_else(|_| {
        Err(raw::Failure {
            step: raw::Step::Clone,
            error: io::ErrorKind::Interrupted.into(),
        })
    })
}

type OutputStreams = Vec<(Stream, Arc<Polled>)>;

fn attach(daemon_ends: DaemonEnds) -> io::Result<(Input, OutputStreams)> {
    match daemon_ends {
        DaemonEnds::Pipes {
            stdin,
            stdout,
            stderr,
        } => {
            let output_streams = vec![
                (Stream::Stdout, Arc::new(Polled::new(stdout)?)),
                (Stream::Stderr, Arc::new(Polled::new(stderr)?)),
            ];
            Ok((Input::pipe(stdin)?, output_streams))
        }
        DaemonEnds::Terminal(terminal) => {
            let terminal = Arc::new(Polled::new(terminal)?);
            let output_streams = vec![(Stream::Terminal, Arc::clone(&terminal))];
            Ok((
                Input::Terminal(terminal, Default::default()),
                output_streams,
            ))
        }
    }
}

impl Supervisor {
    async fn run(
        mut self,
        processes: &Arc<Processes>,
        process: Arc<Process>,
        slot: OwnedSemaphorePermit,
    ) {
        let _busy = processes.oom_killer.track_active();
        let mut reading = JoinSet::new();
        for reader in std::mem::take(&mut self.readers) {
            let scratch = Arc::clone(&processes.scratch);
            reading.spawn(reader.run(scratch, Arc::clone(&processes.rate)));
        }
        let status = self.wait(processes, &process).await;
        // At once, before the process id is reused.
        let reason = processes
            .oom_killer
            .take_reason(process.pid.cast_signed(), status);
        self.read_rest(processes, &process, &mut reading).await;

        let mut event = status.to_event();
        let entry = processes.log.info("process", "end");
        let entry = entry.with("pid", process.pid).with("exit", event.exit_code);
        let mut entry = entry.with("status", event.status.clone());
        if let Some(reason) = reason {
            // Some clients show standard error only.
            process
                .output
                .publish(process.daemon_message(&reason))
                .await;
            event.error = Some(format!("{}: {reason}", event.status));
            entry = entry.with("reason", reason);
        }
        entry.send();
        let event = Arc::new(event);
        processes.end(&process, Arc::clone(&event));
        drop(slot);
        process.output.close(Event::End(event)).await;
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
        let mut signalled = process.signalled.subscribe();
        tokio::select! {
            () = join_all(reading) => return,
            _ = signalled.wait_for(|signalled| *signalled) => {}
            () = processes.time.sleep_until(self.deadline) => {}
        }
        self.drain_only.send_replace(true);
        join_all(reading).await;
    }
}

async fn join_all(reading: &mut JoinSet<()>) {
    while reading.join_next().await.is_some() {}
}

/// A command line for display.
pub(super) fn command_line(cmd: &str, args: &[String]) -> String {
    let words: Vec<&str> = std::iter::once(cmd)
        .chain(args.iter().map(String::as_str))
        .collect();
    words.join(" ")
}

pub(super) fn start_error(
    failure: raw::Failure,
    command_line: &str,
    cwd: Option<&str>,
) -> StartError {
    match failure.step {
        raw::Step::Directory => StartError::Directory(cwd.unwrap_or("~").to_owned(), failure.error),
        raw::Step::Clone | raw::Step::Streams | raw::Step::User | raw::Step::Execute => {
            StartError::Program(command_line.to_owned(), failure.error)
        }
    }
}
