//! Lifetime of a kernel's process.

use std::sync::Arc;

use rustix::process::Signal;
use tokio::sync::oneshot;

use crate::interpreter::output_tail::OutputTail;
use crate::process::{Children, RunningProcess, Status};

/// A kernel's process.
pub(in crate::interpreter) struct KernelProcess {
    children: Arc<Children>,
    /// Process id, also that of its process group.
    pub(super) pid: i32,
    exit: oneshot::Receiver<Status>,
    status: Option<Status>,
    /// End of its output.
    pub(super) output: OutputTail,
}

impl KernelProcess {
    /// Wraps a running process.
    pub(super) fn of(children: &Arc<Children>, running: RunningProcess) -> Self {
        let RunningProcess {
            pid, exit, output, ..
        } = running;
        Self {
            children: Arc::clone(children),
            pid,
            exit,
            status: None,
            output: OutputTail::capture(output),
        }
    }

    /// Waits for the exit.
    pub(in crate::interpreter) async fn ended(&mut self) -> Status {
        match self.status {
            Some(status) => status,
            None => {
                // The registry never drops the sender without a status.
                let status = (&mut self.exit).await.unwrap_or(Status::Killed(0));
                *self.status.insert(status)
            }
        }
    }

    /// The exit status, if the process has exited.
    pub(in crate::interpreter) fn has_ended(&mut self) -> Option<Status> {
        if self.status.is_none() {
            self.status = self.exit.try_recv().ok();
        }
        self.status
    }

    /// Signals the process group.
    pub(super) fn signal(&mut self, signal: Signal) {
        // After the exit the id may belong to another process.
        if self.has_ended().is_none() {
            let _ = self.children.signal_group(self.pid, signal);
        }
    }
}

#[cfg(test)]
impl KernelProcess {
    /// A fake process, and a sender for its exit status.
    pub(super) fn of_test() -> (oneshot::Sender<Status>, Self) {
        let (ends, exit) = oneshot::channel();
        let process = Self {
            children: Arc::default(),
            pid: 0,
            exit,
            status: None,
            output: OutputTail::default(),
        };
        (ends, process)
    }
}
