//! The process of a kernel, as far as its end.

use std::sync::Arc;

use rustix::process::Signal;
use tokio::sync::oneshot;

use crate::interpreter::last_words::LastWords;
use crate::process::{Children, Running, Status};

/// How a kernel's process ends.
pub(in crate::interpreter) struct Life {
    children: Arc<Children>,
    /// The process, and the group that it leads.
    pub(super) pid: i32,
    exit: oneshot::Receiver<Status>,
    status: Option<Status>,
    /// What it printed last.
    pub(super) said: LastWords,
}

impl Life {
    /// That of a process.
    pub(super) fn of(children: &Arc<Children>, running: Running) -> Self {
        let Running {
            pid, exit, output, ..
        } = running;
        Self {
            children: Arc::clone(children),
            pid,
            exit,
            status: None,
            said: LastWords::of(output),
        }
    }

    /// Waits for its end.
    pub(in crate::interpreter) async fn ended(&mut self) -> Status {
        match self.status {
            Some(status) => status,
            None => {
                // The registry of children never drops the other end untold.
                let status = (&mut self.exit).await.unwrap_or(Status::Killed(0));
                *self.status.insert(status)
            }
        }
    }

    /// How it ended, if it has.
    pub(in crate::interpreter) fn has_ended(&mut self) -> Option<Status> {
        if self.status.is_none() {
            self.status = self.exit.try_recv().ok();
        }
        self.status
    }

    /// Signals its group.
    pub(super) fn signal(&mut self, signal: Signal) {
        // Once it has ended its process id may be another's.
        if self.has_ended().is_none() {
            let _ = self.children.signal_group(self.pid, signal);
        }
    }
}

#[cfg(test)]
impl Life {
    /// That of no process, and the end that it is told.
    pub(super) fn of_test() -> (oneshot::Sender<Status>, Self) {
        let (ends, exit) = oneshot::channel();
        let life = Self {
            children: Arc::default(),
            pid: 0,
            exit,
            status: None,
            said: LastWords::default(),
        };
        (ends, life)
    }
}
