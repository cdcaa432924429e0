//! Terminal windows: a shell each, which stays from command to command.

mod actor;
mod marks;
mod masks;
mod scrollback;
mod shell;
#[cfg(test)]
mod tests;
mod typed;

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use shoal_core::BoxFuture;
use shoal_core::clock::{Clock, Timestamp};
use shoal_core::ports::NoEntropy;
use shoal_core::ports::inside::{SandboxClient, SandboxCommand, TerminalSize};
use shoal_core::ports::sessions::{
    Attached, ExecEnd, ExecEvent, ExecStream, SessionError, WindowControl,
};
use shoal_core::session::WindowName;
use tokio::sync::{mpsc, oneshot, watch};

use crate::events::WindowEvents;
use crate::secrets::FollowSecrets;

use self::actor::Actor;
use self::scrollback::Scrollback;

/// How many requests to a window may wait.
const REQUESTS: usize = 16;

/// How many pieces of output wait for their reader. A command waits then, as for a slow terminal.
const PIECES: usize = 16;

/// The size of a terminal before anybody attaches.
const SIZE: TerminalSize = TerminalSize {
    cols: 120,
    rows: 30,
};

/// Variables of every window: programs do not wait for a person to turn pages.
const VARIABLES: &[(&str, &str)] = &[
    ("TERM", "xterm-256color"),
    ("PAGER", "cat"),
    ("GIT_PAGER", "cat"),
    ("SYSTEMD_PAGER", "cat"),
];

/// The container in which the commands of a session may run.
pub(crate) const CONTAINER: &str = "session";

/// The directory of the session's files in that container, and in the machine around it.
pub(crate) const WORKSPACE: &str = "/workspace";

/// The keys by which Docker's client detaches: a sequence that is never typed by accident.
const DETACH_KEYS: &str = "ctrl-@,ctrl-_,ctrl-@,ctrl-_";

/// The state of a window.
#[derive(Debug, Clone)]
pub struct State {
    /// The command that runs.
    pub running: Option<String>,
    /// When it was last used.
    pub active: Timestamp,
    /// Whether it has closed.
    pub closed: bool,
}

/// A command for a window.
struct Exec {
    command: String,
    output: mpsc::Sender<Bytes>,
    end: oneshot::Sender<ExecEnd>,
}

impl Exec {
    /// Tells how it ended. A reader that has gone need not know.
    fn ends(self, end: ExecEnd) {
        let _ = self.end.send(end);
    }
}

enum Request {
    Run(Exec),
    Cancel,
    Input(Bytes),
    Resize(TerminalSize),
}

/// Where a window runs.
#[derive(Clone)]
pub struct Place {
    /// A client of the machine, as its user.
    pub client: Arc<dyn SandboxClient>,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// Variables of its shell.
    pub env: BTreeMap<String, String>,
    /// The secrets that its shell gets as variables.
    pub secrets: FollowSecrets,
    /// The listeners to its events.
    pub events: WindowEvents,
    /// Whether its shell runs in the container [`CONTAINER`] of the machine.
    pub in_container: bool,
}

impl Place {
    /// The shell of a window. A login shell reads the settings of the machine and of the user.
    pub(crate) fn shell(&self) -> SandboxCommand {
        let own = self.env.iter().map(|(name, value)| (&**name, &**value));
        let variables = VARIABLES.iter().copied().chain(own);
        let command = if self.in_container {
            // No login shell: its settings would replace the variables of the image.
            let mut words = vec![
                "exec",
                "--interactive",
                "--tty",
                "--detach-keys",
                DETACH_KEYS,
            ];
            let pairs: Vec<_> = variables
                .clone()
                .map(|(name, value)| format!("{name}={value}"))
                .collect();
            words.extend(pairs.iter().flat_map(|pair| ["--env", &**pair]));
            words.extend([CONTAINER, "/bin/bash", "-i"]);
            SandboxCommand::new("docker", words)
        } else {
            SandboxCommand::new("/bin/bash", ["-l", "-i"])
        };
        let command = command.with_terminal(SIZE.cols, SIZE.rows).with_stdin();
        variables.fold(command, |command, (name, value)| {
            command.with_env(name, value)
        })
    }
}

/// An open window. Dropping it closes the window, when the last attached terminal goes.
#[derive(Clone)]
pub struct Window {
    name: WindowName,
    requests: mpsc::Sender<Request>,
    scrollback: Arc<Scrollback>,
    state: watch::Receiver<State>,
}

impl Window {
    /// Opens a window.
    ///
    /// # Errors
    /// When its shell cannot be started.
    pub async fn open(name: WindowName, place: Place) -> Result<Self, SessionError> {
        let secret = getrandom::u64().map_err(|e| NoEntropy(e.to_string()))?;
        let running = place.client.run(place.shell()).await?;
        let (requests, received) = mpsc::channel(REQUESTS);
        let scrollback = Arc::new(Scrollback::default());
        let (told, state) = watch::channel(State {
            running: None,
            active: place.clock.now(),
            closed: false,
        });
        place.events.opened();
        let actor = Actor::new(place, running, scrollback.clone(), told, secret);
        tokio::spawn(actor.run(received));
        Ok(Self {
            name,
            requests,
            scrollback,
            state,
        })
    }

    /// Its state.
    pub fn state(&self) -> State {
        self.state.borrow().clone()
    }

    /// Whether both are handles of one window.
    pub(crate) fn is(&self, other: &Self) -> bool {
        self.requests.same_channel(&other.requests)
    }

    /// Runs a command, in place of the one that runs. Returns none when the window has closed.
    pub async fn exec(&self, command: &str) -> Option<ExecStream> {
        let (output, pieces) = mpsc::channel(PIECES);
        let (end, ended) = oneshot::channel();
        let exec = Exec {
            command: command.to_owned(),
            output,
            end,
        };
        self.requests.send(Request::Run(exec)).await.ok()?;
        Some(events(pieces, ended))
    }

    /// Cancels the command that runs.
    pub async fn cancel(&self) {
        // One that has closed has no command.
        let _ = self.requests.send(Request::Cancel).await;
    }

    /// Attaches a terminal.
    pub fn attach(&self, since: u64) -> Attached {
        let (offset, first) = self.scrollback.since(since);
        let follow = Follow {
            scrollback: self.scrollback.clone(),
            end: self.scrollback.watch(),
            state: self.state.clone(),
            at: offset + first.len() as u64,
        };
        let later = stream::unfold(follow, async |mut follow| {
            Some((follow.next().await?, follow))
        });
        let first = stream::iter((!first.is_empty()).then_some(first));
        Attached {
            offset,
            output: first.chain(later).boxed(),
            control: Arc::new(self.clone()),
        }
    }

    async fn send(&self, request: Request) -> Result<(), SessionError> {
        let sent = self.requests.send(request).await;
        sent.map_err(|_| SessionError::NoWindow(self.name.clone()))
    }
}

impl WindowControl for Window {
    fn input(&self, bytes: Bytes) -> BoxFuture<'_, Result<(), SessionError>> {
        Box::pin(self.send(Request::Input(bytes)))
    }

    fn resize(&self, size: TerminalSize) -> BoxFuture<'_, Result<(), SessionError>> {
        Box::pin(self.send(Request::Resize(size)))
    }
}

/// A reader of a window's output.
struct Follow {
    scrollback: Arc<Scrollback>,
    end: watch::Receiver<u64>,
    state: watch::Receiver<State>,
    at: u64,
}

impl Follow {
    /// The next output; `None` once the window has closed. A slow reader misses output that was dropped.
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            let (start, bytes) = self.scrollback.since(self.at);
            if !bytes.is_empty() {
                self.at = start + bytes.len() as u64;
                return Some(bytes);
            }
            tokio::select! {
                grown = self.end.wait_for(|end| *end > self.at) => {
                    grown.ok()?;
                }
                _ = self.state.wait_for(|state| state.closed) => {}
            }
            // The last output comes before the end.
            let closed = self.state.borrow().closed;
            if closed && *self.end.borrow() <= self.at {
                return None;
            }
        }
    }
}

/// The events of a command: its output with the line ends of a file, then its end.
fn events(output: mpsc::Receiver<Bytes>, end: oneshot::Receiver<ExecEnd>) -> ExecStream {
    let begin = (output, Some(end), false);
    let next = async |(mut output, mut end, mut held): (
        mpsc::Receiver<Bytes>,
        Option<oneshot::Receiver<ExecEnd>>,
        bool,
    )| {
        while let Some(bytes) = output.recv().await {
            let lines = plain_lines(&bytes, &mut held);
            if !lines.is_empty() {
                return Some((ExecEvent::Output(lines), (output, end, held)));
            }
        }
        if std::mem::take(&mut held) {
            let rest = Bytes::from_static(b"\r");
            return Some((ExecEvent::Output(rest), (output, end, held)));
        }
        let ended = end.take()?.await;
        let ended = ended.unwrap_or_else(|_| ExecEnd::Lost("the window has closed".to_owned()));
        Some((ExecEvent::Ended(ended), (output, end, held)))
    };
    stream::unfold(begin, next).boxed()
}

/// Removes the carriage returns that a terminal adds. `held` is whether the previous piece ended with one.
fn plain_lines(bytes: &[u8], held: &mut bool) -> Bytes {
    let mut lines = Vec::with_capacity(bytes.len() + 1);
    for byte in bytes {
        if std::mem::take(held) && *byte != b'\n' {
            lines.push(b'\r');
        }
        match byte {
            b'\r' => *held = true,
            byte => lines.push(*byte),
        }
    }
    lines.into()
}
