//! A context: a language, a place, and the kernel that remembers what was executed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

use rustix::process::Signal;
use serde::Serialize;
use tokio::sync::{Mutex, OwnedMutexGuard, OwnedSemaphorePermit, Semaphore, watch};

use super::kernel::{Kernel, Launcher, StartFailure};
use super::kernelspec::Kernelspec;
use super::variables::Dialect;

/// The most executions that wait for one context, the one that runs included.
const MAX_WAITING: usize = 256;

/// What is listed of a context.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Listing {
    /// Its id.
    id: String,
    /// Its language.
    language: String,
    /// Where its kernel started.
    cwd: String,
}

/// A context.
pub(super) struct Context {
    listing: Listing,
    spec: Kernelspec,
    dialect: Option<Dialect>,
    /// Where its kernel starts again.
    home: String,
    slot: Arc<Mutex<Slot>>,
    waiting: Arc<Semaphore>,
    /// The process group of its kernel, or 0.
    leader: AtomicI32,
    /// How often its kernel was to end, whatever it did. A kernel belongs to one such number, and
    /// is not to be used once there is another.
    ends: watch::Sender<u64>,
    /// To which number the kernel belongs that answered last.
    answers: watch::Sender<u64>,
    deleted: AtomicBool,
}

/// What one execution at a time may use.
#[derive(Default)]
pub(super) struct Slot {
    kernel: Option<Kernel>,
    /// How often the context's kernel had been to end when this one was started.
    ends: u64,
    /// What the next execution is told: why what it expects may be gone.
    pub(super) notice: Option<String>,
}

impl Context {
    /// Starts a context in a place; when it has to start again, it does in `home`.
    pub(super) async fn start(
        launcher: &Launcher,
        spec: &Kernelspec,
        language: &str,
        cwd: &str,
        home: &str,
    ) -> Result<Self, StartFailure> {
        let context = Self::new(spec, language, cwd, home);
        let mut slot = context.turn().await;
        slot.start(&context, launcher, cwd).await?;
        drop(slot);
        Ok(context)
    }

    fn new(spec: &Kernelspec, language: &str, cwd: &str, home: &str) -> Self {
        Self {
            listing: Listing {
                id: crate::random::uuid(),
                language: language.to_owned(),
                cwd: cwd.to_owned(),
            },
            spec: spec.clone(),
            dialect: Dialect::of(language),
            home: home.to_owned(),
            slot: Arc::default(),
            waiting: Arc::new(Semaphore::new(MAX_WAITING)),
            leader: AtomicI32::new(0),
            ends: watch::Sender::new(0),
            answers: watch::Sender::new(0),
            deleted: AtomicBool::new(false),
        }
    }

    /// What is listed of it.
    pub(super) fn listing(&self) -> &Listing {
        &self.listing
    }

    /// Its id.
    pub(super) fn id(&self) -> &str {
        &self.listing.id
    }

    /// How its kernel is told of its environment.
    pub(super) fn dialect(&self) -> Option<Dialect> {
        self.dialect
    }

    /// Whether its kernel waits where nobody reads, instead of dropping what it says.
    pub(super) fn holds_output(&self) -> bool {
        self.spec.holds_output
    }

    /// A place in its queue, if there is one.
    pub(super) fn place(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.waiting).try_acquire_owned().ok()
    }

    /// Waits until its kernel is free. Who came first is first.
    pub(super) async fn turn(&self) -> OwnedMutexGuard<Slot> {
        Arc::clone(&self.slot).lock_owned().await
    }

    /// A turn at once, if nobody else has one.
    pub(super) fn turn_now(&self) -> Option<OwnedMutexGuard<Slot>> {
        Arc::clone(&self.slot).try_lock_owned().ok()
    }

    /// Starts its kernel again, whatever it does, and waits until it answers. Whoever has his turn
    /// starts it: to wait for one's own would be to wait for all that others execute.
    pub(super) async fn restart(&self, launcher: &Launcher) -> Result<(), StartFailure> {
        let ends = self.end_kernel(launcher);
        let mut answers = self.answers.subscribe();
        let slot = tokio::select! {
            biased;
            // The other end is here.
            answered = answers.wait_for(|answers| *answers >= ends) => {
                drop(answered);
                None
            }
            slot = self.turn() => Some(slot),
        };
        match slot {
            Some(mut slot) => slot.kernel(self, launcher).await.map(drop),
            None => Ok(()),
        }
    }

    /// Waits until somebody wants that the kernel ends.
    pub(super) async fn is_to_end(&self) {
        // The other end is here.
        let _ = self.ends.subscribe().changed().await;
    }

    /// Ends its kernel, whatever it does. Whoever waits for the context is told.
    pub(super) fn delete(&self, launcher: &Launcher) {
        self.deleted.store(true, Ordering::SeqCst);
        self.end_kernel(launcher);
    }

    /// Whether it was deleted.
    pub(super) fn is_deleted(&self) -> bool {
        self.deleted.load(Ordering::SeqCst)
    }

    /// Gives the number that the next kernel belongs to.
    fn end_kernel(&self, launcher: &Launcher) -> u64 {
        self.ends.send_modify(|ends| *ends += 1);
        match self.slot.try_lock() {
            Ok(mut slot) => slot.kernel = None,
            // It executes something, which notices its end.
            Err(_) => {
                let leader = self.leader.load(Ordering::SeqCst);
                let _ = launcher.children.signal_group(leader, Signal::KILL);
            }
        }
        *self.ends.borrow()
    }
}

impl Slot {
    /// The kernel; another one where it has ended. None in a context that was deleted, whoever asks.
    pub(super) async fn kernel(
        &mut self,
        context: &Context,
        launcher: &Launcher,
    ) -> Result<&mut Kernel, StartFailure> {
        let status = self.kernel.as_mut().map(|kernel| kernel.life.has_ended());
        if let Some(status) = status.flatten() {
            let why = format!("The context was restarted: its kernel had ended ({status})");
            self.end_kernel(Some(why));
        }
        // It may be to end again before it has started.
        loop {
            let ends = *context.ends.borrow();
            if self.ends != ends {
                // Whoever wanted that knows why.
                self.end_kernel(None);
                self.ends = ends;
            }
            if context.is_deleted() {
                return Err(StartFailure::Deleted);
            }
            if self.kernel.is_some() {
                break;
            }
            let home = context.home.clone();
            self.start(context, launcher, &home).await?;
        }
        match &mut self.kernel {
            Some(kernel) => Ok(kernel),
            None => unreachable!("a kernel was started"),
        }
    }

    /// The kernel that there is, if it is to go on.
    pub(super) fn running(&mut self, context: &Context) -> Option<&mut Kernel> {
        let stays = self.ends == *context.ends.borrow() && !context.is_deleted();
        let kernel = self.kernel.as_mut().filter(|_| stays)?;
        kernel.life.has_ended().is_none().then_some(kernel)
    }

    /// Ends the kernel. The next execution gets another one, and is told why.
    pub(super) fn end_kernel(&mut self, why: Option<String>) {
        self.kernel = None;
        self.notice = why;
    }

    async fn start(
        &mut self,
        context: &Context,
        launcher: &Launcher,
        cwd: &str,
    ) -> Result<(), StartFailure> {
        let start = || Kernel::start(launcher, &context.spec, context.dialect, cwd);
        let kernel = match start().await {
            // It may be that somebody else took one of its ports.
            Err(StartFailure::Ended { .. }) => start().await?,
            other => other?,
        };
        context.leader.store(kernel.leader(), Ordering::SeqCst);
        self.kernel = Some(kernel);
        context.answers.send_replace(self.ends);
        Ok(())
    }
}

#[cfg(test)]
impl Context {
    /// One with this kernel, of no language.
    pub(super) async fn of_test(kernel: Kernel) -> Self {
        let context = Self::of_language("test");
        context.turn().await.kernel = Some(kernel);
        context
    }

    /// One without a kernel.
    pub(super) fn of_language(language: &str) -> Self {
        let spec = Kernelspec {
            name: "test".to_owned(),
            language: "test".to_owned(),
            argv: vec!["/no/such".to_owned()],
            env: std::collections::BTreeMap::new(),
            interrupt: super::kernelspec::Interrupt::Signal,
            holds_output: false,
            startup: None,
            directory: "/no/such".into(),
        };
        Self::new(&spec, language, "/", "/")
    }
}

#[cfg(test)]
mod tests;
