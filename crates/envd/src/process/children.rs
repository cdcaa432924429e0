//! Whose child ended: every zombie is waited for, and its status reaches whoever started it.
//!
//! As process 1 the daemon inherits every orphan of the sandbox, so it must wait for *any* child,
//! and then a status may come in before the thread that made the child knows its process id. So a
//! child's process id is written, by the kernel and before the child runs, into a [`Birth`] that
//! this registry already knows. And a process id is looked up while the zombie still holds it, so
//! that it can be nobody else's.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

use parking_lot::Mutex;
use rustix::process::{Pid, Signal};
use tokio::sync::{Notify, oneshot};

use super::exit::Status;
use super::raw;

/// A child that is being made.
#[derive(Default)]
struct Birth {
    /// Its process id, from the moment that it exists; 0 before.
    pid: AtomicI32,
    /// How it ended, if it did so already.
    ended: Mutex<Option<Status>>,
}

/// A child that runs its program.
pub(super) struct Child {
    /// Its process id.
    pub(super) pid: i32,
    /// How it ends.
    pub(super) exit: oneshot::Receiver<Status>,
}

/// All children.
#[derive(Default)]
pub(crate) struct Children {
    state: Mutex<State>,
    /// Told whenever some have been waited for.
    reaped: Notify,
}

#[derive(Default)]
struct State {
    births: Vec<Arc<Birth>>,
    running: HashMap<i32, oneshot::Sender<Status>>,
}

impl Children {
    /// Makes a child. The calling thread sleeps until it runs its program.
    pub(super) fn spawn(&self, image: &raw::Image<'_>) -> Result<Child, raw::Failure> {
        let birth = Arc::new(Birth::default());
        self.state.lock().births.push(Arc::clone(&birth));
        let spawned = raw::spawn(image, &birth.pid);

        let mut state = self.state.lock();
        state.births.retain(|other| !Arc::ptr_eq(other, &birth));
        // A child that failed has ended, and is waited for like an orphan.
        let pid = spawned?;
        let (tx, exit) = oneshot::channel();
        match birth.ended.lock().take() {
            // Nobody can have dropped the other end yet.
            Some(status) => drop(tx.send(status)),
            None => drop(state.running.insert(pid, tx)),
        }
        Ok(Child { pid, exit })
    }

    /// Waits for every child that has ended, and tells whoever started it.
    pub(crate) fn reap(&self) {
        loop {
            let mut state = self.state.lock();
            let Some(pid) = raw::peek_ended() else {
                drop(state);
                self.reaped.notify_waiters();
                return;
            };
            let starter = state.running.remove(&pid);
            let mut births = state.births.iter();
            let birth = births.find(|birth| birth.pid.load(Ordering::SeqCst) == pid);
            let Some(status) = raw::reap(pid) else {
                continue;
            };
            if let Some(starter) = starter {
                // Who stopped listening does not want to know.
                let _ = starter.send(status);
            } else if let Some(birth) = birth {
                *birth.ended.lock() = Some(status);
            }
        }
    }

    /// Waits until a child has ended and its process id names nothing any more.
    pub(super) async fn gone(&self, pid: i32) {
        loop {
            let mut reaped = std::pin::pin!(self.reaped.notified());
            // From here on nothing is missed.
            reaped.as_mut().enable();
            if !self.state.lock().running.contains_key(&pid) {
                return;
            }
            reaped.await;
        }
    }

    /// Signals the group that a child leads, which is each child of ours. False when the child does
    /// not run any more.
    pub(crate) fn signal_group(&self, pid: i32, signal: Signal) -> rustix::io::Result<bool> {
        let state = self.state.lock();
        match Pid::from_raw(pid) {
            Some(leader) if state.running.contains_key(&pid) => {
                rustix::process::kill_process_group(leader, signal).map(|()| true)
            }
            _ => Ok(false),
        }
    }

    /// Signals a child that still runs. False when it does not: then its process id may be
    /// somebody else's.
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
