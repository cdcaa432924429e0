//! The task of a window: it owns the shell.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use shoal_core::ports::inside::{
    CommandControl, CommandOutput, InsideError, RunningCommand, SandboxCommand,
};
use shoal_core::ports::sessions::ExecEnd;
use shoal_core::session::life::WINDOW_IDLE;
use tokio::sync::mpsc::{self, OwnedPermit};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use super::scrollback::Scrollback;
use super::shell::{Doing, Heard, Shell};
use super::{Exec, Place, Request, State, typed};

/// How long a shell may take to start: it reads the user's settings.
const START: Duration = Duration::from_secs(20);

/// What is done about a command that is cancelled, and how long after what was done before, in milliseconds. It begins with
/// an interrupt and ends when the shell answers.
///
/// The shell is asked again and again, because an interrupt throws away what was typed around it, and a program may read
/// it. Later questions wait longer: the answer to an earlier one is not taken.
const CANCELLING: &[(u64, Step)] = &[
    (30, Step::Ask),
    (100, Step::Ask),
    (300, Step::Ask),
    (900, Step::KillPrograms),
    (100, Step::Ask),
    (400, Step::Ask),
    (1600, Step::Ask),
    (3000, Step::KillShell),
];

/// How long killing may take.
const KILLING: Duration = Duration::from_secs(5);

/// The key that interrupts.
const INTERRUPT: &[u8] = b"\x03";

/// Kills the processes of the session of shell `$1`, but for the shell and the process groups that follow.
const KILL: &str = r#"
shell=$1; shift; kept=" $shell $* "
for stat in /proc/[0-9]*/stat; do
    read -r line 2>/dev/null <"$stat" || continue
    set -- ${line##*) }
    [ "$4" = "$shell" ] || continue
    case $kept in *" $3 "*) ;; *) kill -9 "-$3" 2>/dev/null ;; esac
done
:
"#;

/// What is done about a command that is cancelled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    /// The shell is asked whether it is at its prompt.
    Ask,
    /// The programs of the command are killed.
    KillPrograms,
    /// The shell is killed too.
    KillShell,
}

/// What is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wait {
    /// The start of the shell.
    Start,
    /// The next of the steps of [`CANCELLING`].
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
    /// The command that is typed, that runs, or that is cancelled.
    exec: Option<Exec>,
    /// Room for output of the command.
    room: Option<OwnedPermit<Bytes>>,
    /// The command that waits for the end of the other.
    next: Option<Exec>,
    /// Whether a person has typed since the shell was known to be at its prompt.
    touched: bool,
    /// What is waited for, and until when.
    wait: Option<(Wait, Instant)>,
    /// What programs cannot guess, so that their output is not taken for a mark.
    secret: u64,
    /// How many questions and commands were typed.
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
            wait: None,
            secret,
            count: 0,
        }
    }

    /// Runs until the window closes: it was not used, its shell or machine has ended, or nobody has it any more.
    pub(super) async fn run(mut self, mut requests: mpsc::Receiver<Request>) {
        self.greet().await;
        while self.turn(&mut requests).await {}
        requests.close();
        for exec in [self.exec.take(), self.next.take()].into_iter().flatten() {
            exec.ends(ExecEnd::Lost("the window has closed".to_owned()));
        }
        // It may have ended by itself.
        let _ = self.control.kill().await;
        self.state.send_modify(|state| {
            state.closed = true;
            state.running = None;
        });
    }

    /// Waits for what comes next, and does it.
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
        tokio::select! {
            biased;
            request = requests.recv() => match request {
                Some(request) => self.request(request).await,
                None => return false,
            },
            room = room(sender), if !hears => self.room = room,
            output = self.output.next(), if hears => return self.output(output).await,
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
                    Doing::Starting | Doing::Cancelled(_) => {}
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
            Request::Input(bytes) => {
                self.touched = true;
                self.write(bytes).await;
            }
            // A shell that has ended has no size; its end is heard.
            Request::Resize(size) => drop(self.control.resize(size).await),
        }
    }

    /// Takes output of the shell, or its end.
    async fn output(&mut self, output: Option<Result<CommandOutput, InsideError>>) -> Stays {
        match output {
            Some(Ok(CommandOutput::Stdout(bytes) | CommandOutput::Stderr(bytes))) => {
                let heard = self.shell.hear(&bytes, &self.scrollback);
                self.heard(heard).await;
                true
            }
            Some(Ok(CommandOutput::Exit(exit))) => {
                let heard = self.shell.finish(&self.scrollback);
                self.heard(heard).await;
                let end = match self.shell.doing {
                    Doing::Running(_) => ExecEnd::Exited(exit.code),
                    Doing::Cancelled(_) => ExecEnd::Cancelled,
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
            // Only then the shell is known to be at its prompt.
            self.touched &= end != ExecEnd::Cancelled;
            self.ended(end);
        } else if started {
            self.wait = None;
        } else {
            return;
        }
        if self.touched && self.next.is_some() {
            self.interrupt().await;
        } else {
            self.begin().await;
        }
    }

    /// Types the command that waits.
    async fn begin(&mut self) {
        let Some(exec) = self.next.take() else {
            return;
        };
        let id = self.id();
        let line = typed::run(&id, &exec.command);
        self.shell.typing(id, &exec.command);
        let command = exec.command.clone();
        self.state
            .send_modify(|state| state.running = Some(command));
        self.exec = Some(exec);
        self.write(line.into()).await;
    }

    /// Interrupts what runs, and asks whether the shell is at its prompt.
    ///
    /// In the moment in which bash starts a program, an interrupt may end bash: it goes back to its prompt, and the
    /// program takes the terminal. The next command gets another shell then.
    async fn interrupt(&mut self) {
        let id = self.id();
        self.shell.cancelling(id);
        self.write(Bytes::from_static(INTERRUPT)).await;
        self.wait_for_step(0);
        // Nobody waits for the output of a command that is cancelled.
        self.room = None;
    }

    fn wait_for_step(&mut self, number: usize) {
        let step = CANCELLING.get(number);
        self.wait = step.map(|(millis, _)| {
            let wait = Wait::Cancelling(number);
            (wait, Instant::now() + Duration::from_millis(*millis))
        });
    }

    async fn ask(&mut self) {
        let id = self.id();
        let line = typed::ready(&id);
        self.shell.cancelling(id);
        self.write(line.into()).await;
    }

    /// What was waited for has not come.
    async fn overdue(&mut self) -> Stays {
        match self.wait.take() {
            Some((Wait::Start, _)) => {
                self.lost(
                    "its shell does not start: look at the settings of bash in the home directory",
                );
                return false;
            }
            Some((Wait::Cancelling(number), _)) => {
                match CANCELLING[number].1 {
                    Step::Ask => self.ask().await,
                    Step::KillPrograms => self.kill_programs().await,
                    // Its end is heard.
                    Step::KillShell => drop(self.control.kill().await),
                }
                self.wait_for_step(number + 1);
            }
            None => {}
        }
        true
    }

    /// Kills what runs in the foreground.
    async fn kill_programs(&mut self) {
        let Some(shell) = self.shell.process else {
            return;
        };
        let jobs = self.shell.jobs.iter().map(u32::to_string);
        let args = [
            "-c".to_owned(),
            KILL.to_owned(),
            "sh".to_owned(),
            shell.to_string(),
        ];
        let command =
            SandboxCommand::new("/bin/sh", args.into_iter().chain(jobs)).with_timeout(KILLING);
        match self.place.client.run(command).await {
            Ok(mut killing) => while killing.output.next().await.is_some() {},
            Err(error) => tracing::debug!(%error, "the programs of a window cannot be killed"),
        }
    }

    /// The shell has ended. A command that waits gets another.
    async fn reopen(&mut self) -> Stays {
        if self.next.is_none() {
            return false;
        }
        match self.place.client.run(self.place.shell()).await {
            Ok(running) => {
                self.output = running.output;
                self.control = running.control;
                self.shell = Shell::new();
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
        self.wait = Some((Wait::Start, Instant::now() + START));
        self.write(typed::hello(&id).into()).await;
    }

    async fn write(&mut self, bytes: Bytes) {
        // A shell that has ended is heard of.
        let _ = self.control.input(bytes).await;
    }

    /// The present command has ended.
    fn ended(&mut self, end: ExecEnd) {
        self.wait = None;
        self.room = None;
        self.used();
        self.state.send_modify(|state| state.running = None);
        if let Some(exec) = self.exec.take() {
            exec.ends(end);
        }
    }

    /// All commands end with the window, for this reason.
    fn lost(&mut self, why: &str) {
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

/// Room for one piece of output; none when nobody reads it, or nothing runs.
async fn room(sender: Option<mpsc::Sender<Bytes>>) -> Option<OwnedPermit<Bytes>> {
    sender?.reserve_owned().await.ok()
}

async fn until(moment: Option<Instant>) {
    match moment {
        Some(moment) => sleep_until(moment).await,
        None => std::future::pending().await,
    }
}
