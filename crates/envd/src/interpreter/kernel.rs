//! A kernel: its process and three connections.

mod connect;
mod process;
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
use super::zmtp::{ConnectionError, Socket};
use crate::active_time::ActiveTime;
use crate::oom_killer::{ActiveGuard, OomKiller};
use crate::process::InheritedLimits;
use crate::process::{Children, StartError, Status};
use crate::settings::{Settings, Variables};
use crate::user::Users;

use process::KernelProcess;

/// Start timeout. R and Java take many seconds on a cold disk.
const START_TIMEOUT: Duration = Duration::from_secs(60);

/// Timeout for remaining output after a reply. Output arrives at once unless the kernel dropped it,
/// because it was read too slowly.
pub(super) const TRAILING_OUTPUT_TIMEOUT: Duration = Duration::from_secs(2);

/// Limit of stale output discarded before an execution.
const MAX_STALE_OUTPUT: usize = 16 << 20;

/// Environment variable with the sandbox id.
const SANDBOX_ID: &str = "E2B_SANDBOX_ID";

/// Why a kernel did not start.
#[derive(Debug, thiserror::Error)]
pub(super) enum StartFailure {
    /// The context was deleted meanwhile.
    #[error("the context was deleted")]
    Deleted,
    /// The kernels' user does not exist.
    #[error("the kernels' user '{0}' does not exist")]
    UnknownUser(String),
    /// No free ports, or writing the connection file failed.
    #[error("cannot prepare the connection to a kernel: {0}")]
    Connection(#[from] io::Error),
    /// The process did not start.
    #[error(transparent)]
    Process(#[from] StartError),
    /// The process exited at once.
    #[error("the kernel ended while it started ({status}): {output}")]
    Ended {
        /// Exit status.
        status: Status,
        /// End of its output.
        output: String,
    },
    /// The kernel does not answer.
    #[error("the kernel did not answer within {} seconds: {output}", START_TIMEOUT.as_secs())]
    Timeout {
        /// End of its output.
        output: String,
    },
}

/// Parameters for starting kernels.
pub(super) struct Launcher {
    /// Registry of child processes.
    pub(super) children: Arc<Children>,
    /// Users of the sandbox.
    pub(super) users: Arc<Users>,
    /// Settings from the control plane.
    pub(super) settings: Arc<Settings>,
    /// Active time, for timeouts.
    pub(super) time: Arc<ActiveTime>,
    /// Memory monitor.
    pub(super) oom_killer: Arc<OomKiller>,
    /// Budget for pending output.
    pub(super) output: Budget,
    /// Limits to restore in children.
    pub(super) inherited_limits: InheritedLimits,
    /// Directory of connection files.
    pub(super) directory: PathBuf,
    /// User of the kernels.
    pub(super) user: String,
}

impl Launcher {
    /// The sandbox id.
    pub(super) fn sandbox(&self) -> Option<String> {
        self.settings.identity().get(SANDBOX_ID).cloned()
    }
}

/// A running kernel.
pub(super) struct Kernel {
    /// Its process.
    pub(super) process: KernelProcess,
    /// Broadcast output.
    pub(super) iopub: Socket,
    /// Requests.
    pub(super) shell: Socket,
    control: Socket,
    /// Signs messages.
    pub(super) session: Session,
    /// Environment of the process without global variables.
    pub(super) inherited: Variables,
    /// Current environment inside the kernel.
    pub(super) variables: Variables,
    /// Sandbox id at its last reseed.
    pub(super) sandbox: Option<String>,
    /// Startup code that is still to be executed. Deferred to the first execution, so that unused
    /// kernels stay small.
    pub(super) startup: Option<String>,
    /// Generators whose reseed failed and must be retried.
    pub(super) unseeded: Vec<String>,
    /// The last notice to the client about failed environment changes.
    pub(super) last_notice: Option<String>,
    /// Number of the last execution.
    pub(super) count: u64,
    /// Keeps the memory monitor active after the first execution of user code, which may leave
    /// threads, tasks and processes.
    pub(super) oom_guard: Option<ActiveGuard>,
    interrupt: Interrupt,
    file: PathBuf,
}

impl Drop for Kernel {
    fn drop(&mut self) {
        self.process.signal(Signal::KILL);
        let _ = std::fs::remove_file(&self.file);
    }
}

#[derive(Serialize)]
struct Execute<'a> {
    code: &'a str,
    silent: bool,
    store_history: bool,
    user_expressions: EmptyContent,
    allow_stdin: bool,
    stop_on_error: bool,
}

/// Empty content of a request.
#[derive(Serialize)]
pub(super) struct EmptyContent {}

impl Kernel {
    /// Requests an execution. Returns the request id.
    pub(super) async fn execute(
        &mut self,
        code: &str,
        silent: bool,
    ) -> Result<String, ConnectionError> {
        if !silent {
            // Threads of earlier code may have printed in between.
            self.iopub.discard(MAX_STALE_OUTPUT)?;
        }
        let content = Execute {
            code,
            silent,
            store_history: !silent,
            user_expressions: EmptyContent {},
            allow_stdin: false,
            // No request is queued behind it, and the next one must not be aborted.
            stop_on_error: false,
        };
        let (id, frames) = self.session.request("execute_request", &content);
        self.shell.send(&frames).await?;
        Ok(id)
    }

    /// Executes code without output. Waits for its end, and returns the error if it failed.
    pub(super) async fn execute_silently(
        &mut self,
        code: &str,
    ) -> Result<Option<String>, ConnectionError> {
        let mut awaited = PendingReply::of(self.execute(code, true).await?);
        self.wait_reply(&mut awaited).await?;
        Ok(awaited.failure)
    }

    /// Waits for the reply to a request and discards all output before it. Cancel-safe.
    pub(super) async fn wait_reply(
        &mut self,
        awaited: &mut PendingReply,
    ) -> Result<(), ConnectionError> {
        let PendingReply {
            id,
            idle,
            last,
            failure,
        } = awaited;
        while !*idle || last.is_none() {
            let (message, by_shell) = tokio::select! {
                message = self.iopub.next_short(), if !*idle => (message?, false),
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
                *last = Some(Instant::now() + TRAILING_OUTPUT_TIMEOUT);
                let error = lines::reply(&envelope.content).error;
                *failure = error.as_deref().map(lines::words);
            } else {
                let output = lines::read(&envelope.kind, &envelope.content, "");
                *idle = output == Some(Output::Idle);
            }
        }
        Ok(())
    }

    /// Interrupts the running code.
    pub(super) async fn interrupt(&mut self) -> Result<(), ConnectionError> {
        match self.interrupt {
            Interrupt::Signal => self.process.signal(Signal::INT),
            Interrupt::Message => {
                let (_, frames) = self.session.request("interrupt_request", &EmptyContent {});
                self.control.send(&frames).await?;
            }
        }
        Ok(())
    }

    /// Its process group.
    pub(super) fn leader(&self) -> i32 {
        self.process.pid
    }
}

/// A request whose reply is pending.
#[derive(Debug)]
pub(super) struct PendingReply {
    id: String,
    /// Whether the kernel reported `idle`.
    idle: bool,
    /// End of waiting for remaining output, once replied.
    last: Option<Instant>,
    /// The error, if the request failed.
    failure: Option<String>,
}

impl PendingReply {
    pub(super) fn of(id: String) -> Self {
        Self {
            id,
            idle: false,
            last: None,
            failure: None,
        }
    }

    /// Whether a part of the answer has arrived.
    pub(super) fn has_begun(&self) -> bool {
        self.idle || self.last.is_some()
    }
}

#[cfg(test)]
impl Kernel {
    /// A kernel over these connections, and a sender for its exit status.
    pub(super) fn of_test(
        session: Session,
        [shell, iopub, control]: [Socket; 3],
    ) -> (Self, tokio::sync::oneshot::Sender<Status>) {
        let (ends, process) = KernelProcess::of_test();
        let kernel = Self {
            process,
            iopub,
            shell,
            control,
            session,
            inherited: Variables::new(),
            variables: Variables::new(),
            sandbox: None,
            startup: None,
            unseeded: Vec::new(),
            last_notice: None,
            count: 0,
            oom_guard: None,
            interrupt: Interrupt::Signal,
            file: PathBuf::new(),
        };
        (kernel, ends)
    }
}
