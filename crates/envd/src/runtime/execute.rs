//! `POST /execute`.

use std::sync::Arc;
use std::time::Duration;

use rustix::process::Signal;
use serde::{Deserialize, Serialize};
use shoal_protocol::process::ProcessConfig;
use tokio::sync::oneshot;

use super::capture::{Capture, KEPT};
use super::options::positive;
use super::words::{self, InvalidWords};
use super::{Actor, Runtime};
use crate::process::{InternalProcess, RunningProcess, StartError, Status};

/// A command to run.
#[derive(Debug, Deserialize)]
pub(super) struct ExecuteRequest {
    /// The command line, without a shell.
    command: String,
    /// Its time limit in seconds, if shorter than the runtime's.
    #[serde(default)]
    timeout_seconds: Option<f64>,
}

/// How a command ended.
#[derive(Debug, Serialize)]
pub(super) struct ExecuteResult {
    stdout: String,
    stderr: String,
    /// The exit code; the negative number of the signal that killed it; 1 if it did not start or took
    /// too long.
    exit_code: i32,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    timed_out: bool,
}

/// Why a command did not run.
#[derive(Debug, thiserror::Error)]
enum ExecuteError {
    #[error(transparent)]
    Words(#[from] InvalidWords),
    #[error("the command is empty")]
    Empty,
    #[error("timeout_seconds is not a positive number")]
    TimeLimit,
    #[error(transparent)]
    Start(#[from] StartError),
}

/// How the wait for a command ended.
enum End {
    Exited(Status),
    TimedOut,
    /// The client disconnected.
    Abandoned,
}

impl Runtime {
    /// Runs a command and waits for its end. The command is killed when the returned future is dropped.
    pub(super) async fn execute(self: &Arc<Self>, request: ExecuteRequest) -> ExecuteResult {
        let (_client, gone) = oneshot::channel();
        let this = Arc::clone(self);
        // A task of its own, which cleans up after a client that disconnects.
        let ran = tokio::spawn(async move { this.run(request, gone).await });
        match ran.await {
            Ok(Ok(result)) => result,
            Ok(Err(error)) => failed(&error),
            Err(_) => failed(&ExecuteError::Start(StartError::Ending)),
        }
    }

    async fn run(
        &self,
        request: ExecuteRequest,
        mut gone: oneshot::Receiver<()>,
    ) -> Result<ExecuteResult, ExecuteError> {
        let mut words = words::split(&request.command)?.into_iter();
        let cmd = words.next().ok_or(ExecuteError::Empty)?;
        let limit = self.time_limit(request.timeout_seconds)?;
        let _place = tokio::select! {
            // Never closed.
            place = self.places.acquire() => place,
            _ = &mut gone => return Err(StartError::Ending.into()),
        };
        let Actor { user, groups } = self.actor();
        let process = InternalProcess {
            config: ProcessConfig {
                cmd,
                args: words.collect(),
                cwd: Some(self.options.directory.clone()),
                ..ProcessConfig::default()
            },
            user,
            groups,
            environment: Arc::clone(&self.environment),
            inherited_limits: self.services.inherited_limits,
        };
        let _busy = self.services.oom_killer.track_active();
        let running = process.start(&self.services.children).await?;
        Ok(self.follow(running, limit, gone).await)
    }

    fn time_limit(&self, asked: Option<f64>) -> Result<Duration, ExecuteError> {
        let most = self.options.time_limit;
        match asked {
            None => Ok(most),
            Some(seconds) => {
                let asked = positive(seconds).ok_or(ExecuteError::TimeLimit)?;
                Ok(asked.min(most))
            }
        }
    }

    async fn follow(
        &self,
        running: RunningProcess,
        limit: Duration,
        gone: oneshot::Receiver<()>,
    ) -> ExecuteResult {
        let RunningProcess {
            pid,
            mut exit,
            output,
            ..
        } = running;
        let capture = Capture::start(output);
        let end = tokio::select! {
            status = self.services.time.timeout(limit, &mut exit) => match status {
                // The registry never drops the sender without a status.
                Some(status) => End::Exited(status.unwrap_or(Status::Killed(0))),
                None => End::TimedOut,
            },
            _ = gone => End::Abandoned,
        };
        if !matches!(end, End::Exited(_)) {
            // With all that it started, as far as they stayed in its group.
            let _ = self.services.children.signal_group(pid, Signal::KILL);
        }
        let [stdout, stderr] = capture.finish().await;
        let mut result = ExecuteResult {
            exit_code: 1,
            timed_out: matches!(end, End::TimedOut),
            stderr: stderr.text,
            stdout: stdout.text,
        };
        match end {
            End::Exited(status) => {
                result.exit_code = match status {
                    Status::Exited(code) => code,
                    Status::Killed(signal) => -signal,
                };
                if let Some(reason) = self.services.oom_killer.take_reason(pid, status) {
                    result.note(&reason);
                }
            }
            End::TimedOut => result.note(&format!(
                "Failed to execute command: timed out after {} seconds",
                limit.as_secs_f64()
            )),
            End::Abandoned => {}
        }
        for (name, cut) in [("output", stdout.cut), ("error output", stderr.cut)] {
            if cut {
                result.note(&format!("shoal: the {name} was cut after {KEPT} bytes"));
            }
        }
        result
    }
}

impl ExecuteResult {
    /// Adds a line to standard error, where clients look for explanations.
    fn note(&mut self, text: &str) {
        if !self.stderr.is_empty() && !self.stderr.ends_with('\n') {
            self.stderr.push('\n');
        }
        self.stderr.push_str(text);
        self.stderr.push('\n');
    }
}

fn failed(error: &ExecuteError) -> ExecuteResult {
    ExecuteResult {
        stdout: String::new(),
        stderr: format!("Failed to execute command: {error}"),
        exit_code: 1,
        timed_out: false,
    }
}
