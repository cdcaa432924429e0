//! A context: a language, a working directory, and the kernel that keeps the state.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

use rustix::process::Signal;
use serde::Serialize;
use tokio::sync::{Mutex, OwnedMutexGuard, OwnedSemaphorePermit, Semaphore, watch};

use super::kernel::{Kernel, Launcher, StartFailure};
use super::kernelspec::Kernelspec;
use super::variables::Dialect;

/// Limit of executions queued per context, including the running one.
const MAX_WAITING: usize = 256;

/// A context as listed by the API.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Listing {
    /// Id.
    id: String,
    /// Language.
    language: String,
    /// Initial working directory.
    cwd: String,
}

/// A context.
pub(super) struct Context {
    listing: Listing,
    spec: Kernelspec,
    dialect: Option<Dialect>,
    /// Working directory after a restart.
    restart_cwd: String,
    slot: Arc<Mutex<KernelSlot>>,
    waiting: Arc<Semaphore>,
    /// Process group of the kernel, or 0.
    leader: AtomicI32,
    /// Generation of the kernel: incremented by every forced end. A kernel of an older generation
    /// must not be used.
    generation: watch::Sender<u64>,
    /// Generation of the kernel that last became ready.
    ready_generation: watch::Sender<u64>,
    deleted: AtomicBool,
}

/// State of the context, locked by one execution at a time.
#[derive(Default)]
pub(super) struct KernelSlot {
    kernel: Option<Kernel>,
    /// Generation of this kernel.
    generation: u64,
    /// Notice for the next execution: why state may be lost.
    pub(super) notice: Option<String>,
}

impl Context {
    /// Creates a context and starts its kernel. A restart uses `restart_cwd` as working directory.
    pub(super) async fn start(
        launcher: &Launcher,
        spec: &Kernelspec,
        language: &str,
        cwd: &str,
        restart_cwd: &str,
    ) -> Result<Self, StartFailure> {
        let context = Self::new(spec, language, cwd, restart_cwd);
        let mut slot = context.acquire().await;
        slot.start(&context, launcher, cwd).await?;
        drop(slot);
        Ok(context)
    }

    /// A context whose kernel starts with the first execution, in `restart_cwd`.
    pub(super) fn new(spec: &Kernelspec, language: &str, cwd: &str, restart_cwd: &str) -> Self {
        Self {
            listing: Listing {
                id: crate::random::uuid(),
                language: language.to_owned(),
                cwd: cwd.to_owned(),
            },
            spec: spec.clone(),
            dialect: Dialect::of(language),
            restart_cwd: restart_cwd.to_owned(),
            slot: Arc::default(),
            waiting: Arc::new(Semaphore::new(MAX_WAITING)),
            leader: AtomicI32::new(0),
            generation: watch::Sender::new(0),
            ready_generation: watch::Sender::new(0),
            deleted: AtomicBool::new(false),
        }
    }

    /// The listing.
    pub(super) fn listing(&self) -> &Listing {
        &self.listing
    }

    /// The id.
    pub(super) fn id(&self) -> &str {
        &self.listing.id
    }

    /// How the kernel's environment is changed.
    pub(super) fn dialect(&self) -> Option<Dialect> {
        self.dialect
    }

    /// Whether the kernel blocks on unread output instead of dropping it.
    pub(super) fn holds_output(&self) -> bool {
        self.spec.holds_output
    }

    /// A slot in the queue, if there is one.
    pub(super) fn queue_slot(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.waiting).try_acquire_owned().ok()
    }

    /// Waits for the kernel, first come first served.
    pub(super) async fn acquire(&self) -> OwnedMutexGuard<KernelSlot> {
        Arc::clone(&self.slot).lock_owned().await
    }

    /// Locks the kernel if it is free.
    pub(super) fn try_acquire(&self) -> Option<OwnedMutexGuard<KernelSlot>> {
        Arc::clone(&self.slot).try_lock_owned().ok()
    }

    /// Restarts the kernel, ending any execution, and waits until it is ready. The current holder
    /// of the slot starts it: waiting for our own turn would mean waiting for all queued
    /// executions.
    pub(super) async fn restart(&self, launcher: &Launcher) -> Result<(), StartFailure> {
        let generation = self.end_kernel(launcher);
        let mut ready_generation = self.ready_generation.subscribe();
        let slot = tokio::select! {
            biased;
            // The sender lives in `self`.
            ready = ready_generation.wait_for(|ready_generation| *ready_generation >= generation) => {
                drop(ready);
                None
            }
            slot = self.acquire() => Some(slot),
        };
        match slot {
            Some(mut slot) => slot.kernel(self, launcher).await.map(drop),
            None => Ok(()),
        }
    }

    /// Waits until the kernel must end.
    pub(super) async fn end_requested(&self) {
        // The sender lives in `self`.
        let _ = self.generation.subscribe().changed().await;
    }

    /// Ends the kernel and any execution. Queued executions fail.
    pub(super) fn delete(&self, launcher: &Launcher) {
        self.deleted.store(true, Ordering::SeqCst);
        self.end_kernel(launcher);
    }

    /// Whether the context was deleted.
    pub(super) fn is_deleted(&self) -> bool {
        self.deleted.load(Ordering::SeqCst)
    }

    /// Ends the kernel. Returns the generation of the next one.
    fn end_kernel(&self, launcher: &Launcher) -> u64 {
        self.generation.send_modify(|generation| *generation += 1);
        match self.slot.try_lock() {
            Ok(mut slot) => slot.kernel = None,
            // The running execution notices the kernel's exit.
            Err(_) => {
                let leader = self.leader.load(Ordering::SeqCst);
                let _ = launcher.children.signal_group(leader, Signal::KILL);
            }
        }
        *self.generation.borrow()
    }
}

impl KernelSlot {
    /// Returns the kernel, and restarts it if it has exited. Fails in a deleted context.
    pub(super) async fn kernel(
        &mut self,
        context: &Context,
        launcher: &Launcher,
    ) -> Result<&mut Kernel, StartFailure> {
        let status = self
            .kernel
            .as_mut()
            .map(|kernel| kernel.process.has_ended());
        if let Some(status) = status.flatten() {
            let notice = format!("The context was restarted: its kernel had ended ({status})");
            self.end_kernel(Some(notice));
        }
        // The generation may change again during a start.
        loop {
            let generation = *context.generation.borrow();
            if self.generation != generation {
                // A forced end needs no notice.
                self.end_kernel(None);
                self.generation = generation;
            }
            if context.is_deleted() {
                return Err(StartFailure::Deleted);
            }
            if self.kernel.is_some() {
                break;
            }
            let restart_cwd = context.restart_cwd.clone();
            self.start(context, launcher, &restart_cwd).await?;
        }
        match &mut self.kernel {
            Some(kernel) => Ok(kernel),
            None => unreachable!("a kernel was started"),
        }
    }

    /// The current kernel, if it is alive and of the current generation.
    pub(super) fn running(&mut self, context: &Context) -> Option<&mut Kernel> {
        let stays = self.generation == *context.generation.borrow() && !context.is_deleted();
        let kernel = self.kernel.as_mut().filter(|_| stays)?;
        kernel.process.has_ended().is_none().then_some(kernel)
    }

    /// Ends the kernel. The next execution gets a new one and the notice.
    pub(super) fn end_kernel(&mut self, notice: Option<String>) {
        self.kernel = None;
        self.notice = notice;
    }

    async fn start(
        &mut self,
        context: &Context,
        launcher: &Launcher,
        cwd: &str,
    ) -> Result<(), StartFailure> {
        let start = || Kernel::start(launcher, &context.spec, context.dialect, cwd);
        let kernel = match start().await {
            // Another process may have taken one of its ports.
            Err(StartFailure::Ended { .. }) => start().await?,
            other => other?,
        };
        context.leader.store(kernel.leader(), Ordering::SeqCst);
        self.kernel = Some(kernel);
        context.ready_generation.send_replace(self.generation);
        Ok(())
    }
}

#[cfg(test)]
impl Context {
    /// A context with this kernel and no dialect.
    pub(super) async fn of_test(kernel: Kernel) -> Self {
        let context = Self::of_language("test");
        context.acquire().await.kernel = Some(kernel);
        context
    }

    /// A context without a kernel.
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
