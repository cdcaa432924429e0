//! Registry of child processes: reaps every zombie and delivers its status to the starter.
//!
//! As PID 1 the daemon inherits every orphan of the sandbox, so it must reap *any* child. A status
//! may then arrive before the spawning thread knows the process id. So the kernel writes the id,
//! before the child runs, into a [`PendingChild`] that is registered beforehand. A process id is looked up
//! while the zombie still holds it, so it cannot have been reused.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

use parking_lot::Mutex;
use rustix::process::{Pid, Signal};
use tokio::sync::{Notify, oneshot};

use super::exit::Status;
use super::raw;

/// A child being spawned.
#[derive(Default)]
struct PendingChild {
    /// Process id, 0 before the child exists.
    pid: AtomicI32,
    /// Exit status, if it has exited already.
    ended: Mutex<Option<Status>>,
}

/// A child that runs its program.
pub(super) struct Child {
    /// Process id.
    pub(super) pid: i32,
    /// Delivers the exit status.
    pub(super) exit: oneshot::Receiver<Status>,
}

/// All children.
#[derive(Default)]
pub(crate) struct Children {
    state: Mutex<State>,
    /// Notified after each round of reaping.
    reaped: Notify,
}

#[derive(Default)]
struct State {
    pending: Vec<Arc<PendingChild>>,
    running: HashMap<i32, oneshot::Sender<Status>>,
}

impl Children {
    /// Spawns a child. Blocks the calling thread until the child has called `exec`.
    pub(super) fn spawn(&self, spec: &raw::ExecSpec<'_>) -> Result<Child, raw::Failure> {
        let pending_child = Arc::new(PendingChild::default());
        self.state.lock().pending.push(Arc::clone(&pending_child));
        let spawned = raw::spawn(spec, &pending_child.pid);

        let mut state = self.state.lock();
        state
            .pending
            .retain(|other| !Arc::ptr_eq(other, &pending_child));
        // A failed child exits, and is reaped like an orphan.
        let pid = spawned?;
        let (tx, exit) = oneshot::channel();
        match pending_child.ended.lock().take() {
            // The receiver is still in scope.
            Some(status) => drop(tx.send(status)),
            None => drop(state.running.insert(pid, tx)),
        }
        Ok(Child { pid, exit })
    }

    /// Whether the daemon started this child.
    pub(crate) fn has_started(&self, pid: i32) -> bool {
        self.state.lock().running.contains_key(&pid)
    }

    /// Reaps all zombies and delivers their statuses.
    pub(crate) fn reap(&self) {
        loop {
            let mut state = self.state.lock();
            let Some(pid) = raw::peek_ended() else {
                drop(state);
                self.reaped.notify_waiters();
                return;
            };
            let sender = state.running.remove(&pid);
            let mut pending = state.pending.iter();
            let pending_child =
                pending.find(|pending_child| pending_child.pid.load(Ordering::SeqCst) == pid);
            let Some(status) = raw::reap(pid) else {
                continue;
            };
            if let Some(sender) = sender {
                // The starter may have dropped its receiver.
                let _ = sender.send(status);
            } else if let Some(pending_child) = pending_child {
                *pending_child.ended.lock() = Some(status);
            }
        }
    }

    /// Waits until a child is reaped and its process id is free.
    pub(super) async fn wait_reaped(&self, pid: i32) {
        loop {
            let mut reaped = std::pin::pin!(self.reaped.notified());
            // Registers for notification before the check, so that none is missed.
            reaped.as_mut().enable();
            if !self.state.lock().running.contains_key(&pid) {
                return;
            }
            reaped.await;
        }
    }

    /// Signals the process group of a child; every child leads one. False if the child has been
    /// reaped.
    pub(crate) fn signal_group(&self, pid: i32, signal: Signal) -> rustix::io::Result<bool> {
        let state = self.state.lock();
        match Pid::from_raw(pid) {
            Some(leader) if state.running.contains_key(&pid) => {
                rustix::process::kill_process_group(leader, signal).map(|()| true)
            }
            _ => Ok(false),
        }
    }

    /// Signals a child. False if it has been reaped: its process id may belong to another process
    /// then.
    pub(super) fn signal(&self, pid: i32, signal: Signal) -> rustix::io::Result<bool> {
        let state = self.state.lock();
        match Pid::from_raw(pid) {
            Some(process) if state.running.contains_key(&pid) => {
                rustix::process::kill_process(process, signal).map(|()| true)
            }
            _ => Ok(false),
        }
    }
}
