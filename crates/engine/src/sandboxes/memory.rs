//! Room for sandboxes in the machine's memory: idle ones are parked before a new one is refused.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use shoal_core::clock::Timestamp;
use shoal_core::detail::Chain;
use shoal_core::memory::MachineMemory;
use shoal_core::ports::create::CreateError;
use shoal_core::ports::sandboxes::QuotaExceeded;
use tokio::sync::Notify;

use super::Sandboxes;

/// How many sandboxes are parked for one that starts. Each takes time, for which the start waits.
const PARKED_FOR_ONE: usize = 8;

/// How long creates and resumes wait for other starts, whose memory is not in use yet.
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);

/// How long no sandbox is looked for that could be parked, after none was found: each search reads the use of all of them.
const SEARCH_EVERY: Duration = Duration::from_secs(1);

/// The starts under way. They count beside the memory in use.
#[derive(Debug, Default)]
pub(super) struct Starts {
    count: AtomicUsize,
    ended: Notify,
    /// When no sandbox was found that could be parked.
    found_none: Mutex<Option<Timestamp>>,
}

/// Permission to start a sandbox. It is dropped once the sandbox uses its memory, or has failed.
#[derive(Debug)]
pub(crate) struct Admission(Arc<Starts>);

impl Drop for Admission {
    fn drop(&mut self) {
        self.0.count.fetch_sub(1, Ordering::SeqCst);
        self.0.ended.notify_waiters();
    }
}

/// Why a sandbox may not start now.
#[derive(Debug)]
pub(crate) struct NoRoom {
    /// Whether there is room without the other starts.
    soon: bool,
    exceeded: QuotaExceeded,
}

impl From<NoRoom> for CreateError {
    fn from(short: NoRoom) -> Self {
        short.exceeded.into()
    }
}

impl Sandboxes {
    /// Makes room for a sandbox that starts: parks the sandboxes that have been idle for longest, although their time has
    /// not come, and waits for other starts for as long as `patience`.
    ///
    /// # Errors
    /// [`QuotaExceeded::Machine`] when there is no room and no more to park.
    pub(crate) async fn make_room(
        self: &Arc<Self>,
        patience: Duration,
    ) -> Result<Admission, QuotaExceeded> {
        let clock = &self.parts.clock;
        let end = clock.now() + patience;
        let mut parked = 0;
        loop {
            let other = self.starts.ended.notified();
            tokio::pin!(other);
            // From here on, no end of a start is missed.
            other.as_mut().enable();
            let short = match self.admit_start().await {
                Ok(admission) => return Ok(admission),
                Err(short) => short,
            };
            if parked < PARKED_FOR_ONE && self.park_one().await {
                parked += 1;
            } else if short.soon && clock.now() < end {
                tokio::select! {
                    () = other => {}
                    () = clock.sleep_until(end) => {}
                }
            } else {
                return Err(short.exceeded);
            }
        }
    }

    /// Parks the sandbox that has been idle for longest, or else a member of a pool; whether there was one.
    async fn park_one(self: &Arc<Self>) -> bool {
        let now = self.parts.clock.now();
        let last = *self.starts.found_none.lock();
        if last.is_some_and(|last| now.since(last) < SEARCH_EVERY) {
            return false;
        }
        let found = self.park_idlest().await || self.park_last_member().await;
        if !found {
            *self.starts.found_none.lock() = Some(now);
        }
        found
    }

    /// Admits a sandbox that starts, if there is room.
    ///
    /// # Errors
    /// When there is none.
    pub(crate) async fn admit_start(&self) -> Result<Admission, NoRoom> {
        let rule = self.limits.free_memory;
        let memory = self.memory().await;
        let admits = |count| memory.is_none_or(|memory| rule.admits(&memory, count));
        let more = |count: usize| admits(count).then_some(count + 1);
        let (set, get) = (Ordering::SeqCst, Ordering::SeqCst);
        let counted = self.starts.count.fetch_update(set, get, more);
        match memory.filter(|_| counted.is_err()) {
            None => Ok(Admission(self.starts.clone())),
            Some(memory) => Err(NoRoom {
                soon: admits(0),
                exceeded: QuotaExceeded::Machine {
                    available: memory.available,
                    free: rule.of(memory.total),
                },
            }),
        }
    }

    /// Whether to park idle sandboxes before their time.
    pub(crate) async fn is_short_of_memory(&self) -> bool {
        let memory = self.memory().await;
        memory.is_some_and(|memory| self.limits.free_memory.is_short(&memory))
    }

    /// The machine's memory; `None` if it does not matter or is not known, which refuses nothing.
    async fn memory(&self) -> Option<MachineMemory> {
        if self.limits.free_memory.is_off() {
            return None;
        }
        match self.parts.drivers.memory().await {
            Ok(memory) => memory,
            Err(error) => {
                tracing::warn!(error = %Chain(&error), "the machine's memory cannot be read: no create is refused for it");
                None
            }
        }
    }
}
