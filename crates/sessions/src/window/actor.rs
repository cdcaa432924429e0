//! The task of a window: it owns the shell.

mod cancel;
mod held;
mod variables;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use shoal_core::ports::inside::{CommandControl, CommandOutput, InsideError, RunningCommand};
use shoal_core::ports::sessions::ExecEnd;
use shoal_core::session::life::WINDOW_IDLE;
use shoal_core::session::secret::{SecretName, SecretValue};
use tokio::sync::mpsc::{self, OwnedPermit};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use zeroize::Zeroizing;

use self::held::HeldInput;
use super::scrollback::Scrollback;
use super::shell::{Doing, Heard, Shell};
use super::{Exec, Place, Request, State, typed};

/// How long a shell may take to start: it reads the user's settings.
const START: Duration = Duration::from_secs(20);

/// How long one in a container may take, which several programs start first.
const START_IN_CONTAINER: Duration = Duration::from_secs(120);

/// An event with a deadline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wait {
    /// The start of the shell.
    Start,
    /// The variables of the shell.
    Setting,
    /// This step of a cancellation.
    Cancelling(usize),
}

/// The task of a window.
pub(super) struct Actor {
    place: Place,
    output: BoxStream<'static, Result<CommandOutput, InsideError>>,
    control: Arc<dyn CommandControl>,
    shell: Shell,
    scrollback: Arc<Scrollback>,
    state: watch::Sender<State>,
    /// The command that is typed, running or cancelled.
    exec: Option<Exec>,
    /// Room for output of the command.
    room: Option<OwnedPermit<Bytes>>,
    /// The next command, which waits for the end of `exec`.
    next: Option<Exec>,
    /// Whether a person has typed since the shell was last seen at its prompt.
    touched: bool,
    /// The input that arrived while the shell read its variables: the shell would discard it.
    held: HeldInput,
    /// When the command was typed.
    typed_at: Instant,
    /// Whether the command was interrupted while it may have been starting a program.
    interrupted_early: bool,
    /// The expected event and its deadline.
    wait: Option<(Wait, Instant)>,
    /// The secrets that the shell has as variables; those without a value it may have or not.
    set: BTreeMap<SecretName, Option<Arc<SecretValue>>>,
    /// The secrets that it has when it answers.
    asked: BTreeMap<SecretName, Arc<SecretValue>>,
    /// The input by which it gets them.
    lines: Zeroizing<Vec<u8>>,
    /// When it last printed something.
    heard_at: Instant,
    /// Part of the ids of marks. Programs cannot guess it, so they cannot print marks.
    secret: u64,
    /// Number of questions and commands so far.
    count: u64,
}

/// Whether the window stays open.
type Stays = bool;

impl Actor {
    pub(super) fn new(
        place: Place,
        running: RunningCommand,
        scrollback: Arc<Scrollback>,
        state: watch::Sender<State>,
        secret: u64,
    ) -> Self {
        Self {
            place,
            output: running.output,
            control: running.control,
            shell: Shell::new(),
            scrollback,
            state,
            exec: None,
            room: None,
            next: None,
            touched: false,
            held: HeldInput::default(),
            typed_at: Instant::now(),
            interrupted_early: false,
            wait: None,
            set: BTreeMap::new(),
            asked: BTreeMap::new(),
            lines: Zeroizing::default(),
            heard_at: Instant::now(),
            secret,
            count: 0,
        }
    }

    /// Runs until the window closes: it is idle, its shell or machine ends, or its last handle is dropped.
    pub(super) async fn run(mut self, mut requests: mpsc::Receiver<Request>) {
        self.hide();
        self.greet().await;
        while self.turn(&mut requests).await {}
        requests.close();
        self.lost("the window has closed");
        self.kill_shell().await;
        self.state.send_modify(|state| {
            state.closed = true;
            state.running = None;
        });
        self.place.events.closed();
    }

    /// Handles the next event.
    async fn turn(&mut self, requests: &mut mpsc::Receiver<Request>) -> Stays {
        let hears = match &self.exec {
            Some(exec) => self.room.is_some() || exec.output.is_closed(),
            None => true,
        };
        let sender = self.exec.as_ref().map(|exec| exec.output.clone());
        let overdue = self.wait.map(|(_, until)| until);
        let unused = self.exec.is_none() && self.next.is_none();
        let clock = self.place.clock.clone();
        let closes = self.state.borrow().active + WINDOW_IDLE;
        let quiet = self.quiet_at();
        tokio::select! {
            biased;
            request = requests.recv() => match request {
                Some(request) => self.request(request).await,
                None => return false,
            },
            room = room(sender), if !hears => self.room = room,
            () = variables::changed(&mut self.place.secrets) => self.secrets_changed().await,
            output = self.output.next(), if hears => return self.output(output).await,
            () = until(quiet), if hears && quiet.is_some() => {
                let heard = self.shell.quiet(&self.scrollback);
                self.heard(heard.into_iter().collect()).await;
            }
            () = until(overdue), if overdue.is_some() => return self.overdue().await,
            () = clock.sleep_until(closes), if unused => return false,
        }
        true
    }

    async fn request(&mut self, request: Request) {
        self.used();
        match request {
            Request::Run(exec) => {
                if let Some(waiting) = self.next.replace(exec) {
                    waiting.ends(ExecEnd::Cancelled);
                }
                match self.shell.doing {
                    Doing::Idle if !self.touched => self.begin().await,
                    Doing::Starting | Doing::Setting(_) | Doing::Cancelled(_) => {}
                    _ => self.interrupt().await,
                }
            }
            Request::Cancel => {
                if let Some(waiting) = self.next.take() {
                    waiting.ends(ExecEnd::Cancelled);
                }
                if self.exec.is_some() && !matches!(self.shell.doing, Doing::Cancelled(_)) {
                    self.interrupt().await;
                }
            }
            Request::Input(bytes) => self.input(bytes).await,
            // A shell that has exited has no size. Its exit is handled as output.
            Request::Resize(size) => drop(self.control.resize(size).await),
        }
    }

    /// Handles output of the shell, or its exit.
    async fn output(&mut self, output: Option<Result<CommandOutput, InsideError>>) -> Stays {
        match output {
            Some(Ok(CommandOutput::Stdout(bytes) | CommandOutput::Stderr(bytes))) => {
                self.heard_at = Instant::now();
                let heard = self.shell.hear(&bytes, &self.scrollback);
                self.heard(heard).await;
                true
            }
            Some(Ok(CommandOutput::Exit(exit))) => {
                let heard = self.shell.finish(&self.scrollback);
                self.heard(heard).await;
                let end = match self.shell.doing {
                    Doing::Running(_) => ExecEnd::Exited(exit.code),
                    Doing::Cancelled(_) => {
                        self.end_leftover().await;
                        ExecEnd::Cancelled
                    }
                    _ => ExecEnd::Lost("the shell of the window has ended".to_owned()),
                };
                self.ended(end);
                self.reopen().await
            }
            Some(Err(error)) => {
                self.lost(&error.to_string());
                false
            }
            None => false,
        }
    }

    async fn heard(&mut self, heard: Vec<Heard>) {
        let mut output = BytesMut::new();
        let mut end = None;
        let mut started = false;
        for event in heard {
            match event {
                Heard::Started => started = true,
                Heard::Reading => self.type_variables().await,
                Heard::Set => {
                    self.variables_are_set().await;
                    started = true;
                }
                Heard::Output(bytes) => output.extend(bytes),
                Heard::Ended(ended) => end = Some(ended),
            }
        }
        if !output.is_empty()
            && let Some(room) = self.room.take()
        {
            room.send(output.freeze());
        }
        if let Some(end) = end {
            if end == ExecEnd::Cancelled && self.interrupted_early {
                self.end_leftover().await;
            }
            // The end of a cancelled command shows that the shell is at its prompt.
            self.touched &= end != ExecEnd::Cancelled;
            self.ended(end);
        } else if started {
            self.wait = None;
        } else {
            return;
        }
        if !self.touched {
            self.begin().await;
        } else if self.next.is_some() {
            self.interrupt().await;
        }
    }

    /// The secrets have changed. A shell that does something else, or that a person uses, gets them before its next command.
    async fn secrets_changed(&mut self) {
        self.hide();
        if self.shell.doing == Doing::Idle && !self.touched {
            self.begin().await;
        }
    }

    /// Types the next command, when the shell has its variables.
    async fn begin(&mut self) {
        if self.set_variables().await {
            return;
        }
        let Some(exec) = self.next.take() else {
            return;
        };
        let id = self.id();
        let line = typed::run(&id, &exec.command);
        self.shell.typing(id, &exec.command, &self.scrollback);
        let command = self.shell.masks.text(&exec.command);
        self.place.events.started(command.clone());
        self.state
            .send_modify(|state| state.running = Some(command));
        self.exec = Some(exec);
        self.typed_at = Instant::now();
        self.write(line.into()).await;
    }

    /// Handles a missed deadline.
    async fn overdue(&mut self) -> Stays {
        match self.wait.take() {
            Some((Wait::Start, _)) => {
                self.lost(
                    "the shell does not start: check the settings of bash in the home directory",
                );
                return false;
            }
            Some((Wait::Setting, _)) => {
                self.lost("the shell does not set the variables of the session's secrets");
                return false;
            }
            Some((Wait::Cancelling(number), _)) => self.cancel(number).await,
            None => {}
        }
        true
    }

    /// Starts another shell if a command waits.
    async fn reopen(&mut self) -> Stays {
        if self.next.is_none() {
            return false;
        }
        match self.place.client.run(self.place.shell()).await {
            Ok(running) => {
                self.output = running.output;
                self.control = running.control;
                // Masked values stay masked.
                let masks = std::mem::take(&mut self.shell.masks);
                self.shell = Shell::new();
                self.shell.masks = masks;
                self.forget_variables();
                self.touched = false;
                self.greet().await;
                true
            }
            Err(error) => {
                self.lost(&error.to_string());
                false
            }
        }
    }

    async fn greet(&mut self) {
        let id = self.id();
        let time = if self.place.in_container {
            START_IN_CONTAINER
        } else {
            START
        };
        self.wait = Some((Wait::Start, Instant::now() + time));
        self.write(typed::hello(&id).into()).await;
    }

    async fn write(&mut self, bytes: Bytes) {
        // The exit of the shell is handled as output.
        let _ = self.control.input(bytes).await;
    }

    /// Ends the current command.
    fn ended(&mut self, end: ExecEnd) {
        self.wait = None;
        self.room = None;
        self.used();
        self.state.send_modify(|state| state.running = None);
        if let Some(exec) = self.exec.take() {
            self.place.events.ended(end.clone());
            exec.ends(end);
        }
    }

    /// Ends all commands with the window, and says why.
    fn lost(&mut self, why: &str) {
        if self.exec.is_some() {
            self.place.events.ended(ExecEnd::Lost(why.to_owned()));
        }
        for exec in [self.exec.take(), self.next.take()].into_iter().flatten() {
            exec.ends(ExecEnd::Lost(why.to_owned()));
        }
    }

    fn used(&self) {
        let now = self.place.clock.now();
        self.state.send_modify(|state| state.active = now);
    }

    fn id(&mut self) -> String {
        self.count += 1;
        format!("{:x}-{}", self.secret, self.count)
    }
}

/// Room for one piece of output; `None` when the reader has gone or no command runs.
async fn room(sender: Option<mpsc::Sender<Bytes>>) -> Option<OwnedPermit<Bytes>> {
    sender?.reserve_owned().await.ok()
}

async fn until(moment: Option<Instant>) {
    match moment {
        Some(moment) => sleep_until(moment).await,
        None => std::future::pending().await,
    }
}
