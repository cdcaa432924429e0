//! A kernel: its process, and the three connections to it that are used.

mod connect;
mod life;
mod start;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rustix::process::Signal;
use serde::Serialize;
use tokio::time::{Instant, sleep_until};

use super::budget::Budget;
use super::kernelspec::Interrupt;
use super::lines::{self, Output};
use super::wire::Session;
use super::zmtp::{Broken, Socket};
use crate::active_time::ActiveTime;
use crate::hardening::Original;
use crate::process::{Children, StartError, Status};
use crate::settings::{Settings, Variables};
use crate::user::Users;
use crate::want::{Busy, Want};

use life::Life;

/// How long a kernel may take to start. R and Java take many seconds where the disk is cold.
const START: Duration = Duration::from_secs(60);

/// How long the last output may take to come once the kernel has replied. It comes at once, unless
/// the kernel dropped it because it was read too slowly.
pub(super) const LAST: Duration = Duration::from_secs(2);

/// How many bytes that nobody wants any more are passed over before an execution.
const STALE: usize = 16 << 20;

/// The variable that says which sandbox this is.
const SANDBOX_ID: &str = "E2B_SANDBOX_ID";

/// Why there is no kernel.
#[derive(Debug, thiserror::Error)]
pub(super) enum StartFailure {
    /// Nobody can want one any more.
    #[error("the context was deleted")]
    Deleted,
    /// The user that kernels run as is not there.
    #[error("kernels are to run as '{0}', and there is no such user")]
    NoUser(String),
    /// There are no ports, or its file cannot be written.
    #[error("cannot prepare the connection to a kernel: {0}")]
    Connection(#[from] io::Error),
    /// Its process cannot be started.
    #[error(transparent)]
    Process(#[from] StartError),
    /// It ended at once.
    #[error("the kernel ended while it started ({status}): {said}")]
    Ended {
        /// How.
        status: Status,
        /// The last it printed.
        said: String,
    },
    /// It does not answer.
    #[error("the kernel did not answer within {} seconds: {said}", START.as_secs())]
    Late {
        /// The last it printed.
        said: String,
    },
}

/// What kernels are started with.
pub(super) struct Launcher {
    /// Whose children they are.
    pub(super) children: Arc<Children>,
    /// Who there is.
    pub(super) users: Arc<Users>,
    /// What the control plane says.
    pub(super) settings: Arc<Settings>,
    /// The time that kernels have.
    pub(super) time: Arc<ActiveTime>,
    /// What looks after the memory.
    pub(super) want: Arc<Want>,
    /// What all executions may keep waiting together.
    pub(super) output: Budget,
    /// What the daemon changed for itself.
    pub(super) original: Original,
    /// Where connection files lie.
    pub(super) directory: PathBuf,
    /// Who kernels are.
    pub(super) user: String,
}

impl Launcher {
    /// Which sandbox this is.
    pub(super) fn sandbox(&self) -> Option<String> {
        self.settings.identity().get(SANDBOX_ID).cloned()
    }
}

/// A kernel that answers.
pub(super) struct Kernel {
    /// Its process.
    pub(super) life: Life,
    /// What it tells everybody.
    pub(super) heard: Socket,
    /// Where it takes requests.
    pub(super) shell: Socket,
    control: Socket,
    /// How its messages are signed.
    pub(super) session: Session,
    /// What its process has of its own, and not because every process has it.
    pub(super) inherited: Variables,
    /// The environment as its language has it.
    pub(super) variables: Variables,
    /// Which sandbox it was in when its chance was last seeded.
    pub(super) sandbox: Option<String>,
    /// Code that it has yet to execute before any of its user's. Not at its start: a kernel that nobody
    /// uses stays small.
    pub(super) startup: Option<String>,
    /// The generators that could not be seeded there, and are tried again.
    pub(super) unseeded: Vec<String>,
    /// What of its environment it does not take, as its client was last told.
    pub(super) refused: Option<String>,
    /// The number of its last execution.
    pub(super) count: u64,
    /// Since it has executed something of its user's, which may have left threads behind, and tasks,
    /// and processes, the memory is looked after.
    pub(super) guarded: Option<Busy>,
    interrupt: Interrupt,
    file: PathBuf,
}

impl Drop for Kernel {
    fn drop(&mut self) {
        self.life.signal(Signal::KILL);
        let _ = std::fs::remove_file(&self.file);
    }
}

#[derive(Serialize)]
struct Execute<'a> {
    code: &'a str,
    silent: bool,
    store_history: bool,
    user_expressions: Nothing,
    allow_stdin: bool,
    stop_on_error: bool,
}

/// The content of requests that have none.
#[derive(Serialize)]
pub(super) struct Nothing {}

impl Kernel {
    /// Asks for code to be executed. Gives the id of the request.
    pub(super) async fn execute(&mut self, code: &str, silent: bool) -> Result<String, Broken> {
        if !silent {
            // Threads of earlier code may have printed since, for nobody.
            self.heard.discard(STALE)?;
        }
        let content = Execute {
            code,
            silent,
            store_history: !silent,
            user_expressions: Nothing {},
            allow_stdin: false,
            // Nothing waits behind it, and what comes next is not to be passed over.
            stop_on_error: false,
        };
        let (id, frames) = self.session.request("execute_request", &content);
        self.shell.send(&frames).await?;
        Ok(id)
    }

    /// Has code executed that nobody hears of. Waits until it has been, and gives why it failed if it
    /// did.
    pub(super) async fn silently(&mut self, code: &str) -> Result<Option<String>, Broken> {
        let mut awaited = Awaited::of(self.execute(code, true).await?);
        self.replied(&mut awaited).await?;
        Ok(awaited.failure)
    }

    /// Waits until a request has been answered, and until all is passed over that was said before.
    /// Whoever stops waiting may go on later.
    pub(super) async fn replied(&mut self, awaited: &mut Awaited) -> Result<(), Broken> {
        let Awaited {
            id,
            idle,
            last,
            failure,
        } = awaited;
        while !*idle || last.is_none() {
            let (message, by_shell) = tokio::select! {
                message = self.heard.next_short(), if !*idle => (message?, false),
                message = self.shell.next_short(), if last.is_none() => (message?, true),
                () = sleep_until(last.unwrap_or_else(Instant::now)), if last.is_some() => break,
            };
            let Some(envelope) = self.session.open(&message) else {
                continue;
            };
            if envelope.parent != *id {
                continue;
            }
            if by_shell {
                *last = Some(Instant::now() + LAST);
                let error = lines::reply(&envelope.content).error;
                *failure = error.as_deref().map(lines::words);
            } else {
                let said = lines::read(&envelope.kind, &envelope.content, "");
                *idle = said == Some(Output::Idle);
            }
        }
        Ok(())
    }

    /// Tells it to stop what it does.
    pub(super) async fn interrupt(&mut self) -> Result<(), Broken> {
        match self.interrupt {
            Interrupt::Signal => self.life.signal(Signal::INT),
            Interrupt::Message => {
                let (_, frames) = self.session.request("interrupt_request", &Nothing {});
                self.control.send(&frames).await?;
            }
        }
        Ok(())
    }

    /// The process group it leads.
    pub(super) fn leader(&self) -> i32 {
        self.life.pid
    }
}

/// A request whose answer is waited for.
#[derive(Debug)]
pub(super) struct Awaited {
    id: String,
    /// Whether its kernel has said that it has done it.
    idle: bool,
    /// Until when more may come, once it was answered.
    last: Option<Instant>,
    /// Why it failed, if it did.
    failure: Option<String>,
}

impl Awaited {
    pub(super) fn of(id: String) -> Self {
        Self {
            id,
            idle: false,
            last: None,
            failure: None,
        }
    }

    /// Whether an answer has come, if not all of it.
    pub(super) fn has_begun(&self) -> bool {
        self.idle || self.last.is_some()
    }
}

#[cfg(test)]
impl Kernel {
    /// One over these connections, and the end of its process.
    pub(super) fn of_test(
        session: Session,
        [shell, heard, control]: [Socket; 3],
    ) -> (Self, tokio::sync::oneshot::Sender<Status>) {
        let (ends, life) = Life::of_test();
        let kernel = Self {
            life,
            heard,
            shell,
            control,
            session,
            inherited: Variables::new(),
            variables: Variables::new(),
            sandbox: None,
            startup: None,
            unseeded: Vec::new(),
            refused: None,
            count: 0,
            guarded: None,
            interrupt: Interrupt::Signal,
            file: PathBuf::new(),
        };
        (kernel, ends)
    }
}
