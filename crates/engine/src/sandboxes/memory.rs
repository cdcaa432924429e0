//! Room for sandboxes in the machine's memory: idle ones are parked before a new one is refused.

use std::sync::Arc;

use shoal_core::detail::Chain;
use shoal_core::memory::MachineMemory;
use shoal_core::ports::sandboxes::QuotaExceeded;
use shoal_core::state::StateKind;

use super::Sandboxes;

/// How many sandboxes are parked for one that starts. Each takes time, for which the start waits.
const PARKED_FOR_ONE: usize = 8;

impl Sandboxes {
    /// Makes room for a sandbox that starts: parks the sandboxes that have been idle for longest, although their time has
    /// not come.
    ///
    /// # Errors
    /// [`QuotaExceeded::Machine`] when there is no room and no more to park.
    pub(crate) async fn make_room(self: &Arc<Self>) -> Result<(), QuotaExceeded> {
        let mut room = self.has_room().await;
        for _ in 0..PARKED_FOR_ONE {
            if room.is_ok() || !self.park_idlest().await {
                break;
            }
            room = self.has_room().await;
        }
        room
    }

    /// Whether there is room for a sandbox that starts.
    ///
    /// # Errors
    /// [`QuotaExceeded::Machine`] when there is not.
    pub(crate) async fn has_room(&self) -> Result<(), QuotaExceeded> {
        let rule = self.limits.free_memory;
        match self.memory().await {
            Some(memory) if !rule.admits(&memory, self.starting()) => Err(QuotaExceeded::Machine {
                available: memory.available,
                free: rule.of(memory.total),
            }),
            _ => Ok(()),
        }
    }

    /// Whether idle sandboxes are to be parked before their time.
    pub(super) async fn is_short_of_memory(&self) -> bool {
        let memory = self.memory().await;
        memory.is_some_and(|memory| self.limits.free_memory.is_short(&memory))
    }

    /// The machine's memory; `None` if it is not known, which refuses nothing.
    async fn memory(&self) -> Option<MachineMemory> {
        match self.parts.drivers.memory().await {
            Ok(memory) => memory,
            Err(error) => {
                tracing::warn!(error = %Chain(&error), "the machine's memory cannot be read: no create is refused for it");
                None
            }
        }
    }

    /// How many other sandboxes begin to run.
    fn starting(&self) -> usize {
        let reserved = self.reservations.lock().new.saturating_sub(1);
        let begins = [StateKind::Creating, StateKind::Resuming, StateKind::Waking];
        let records = self.registry.records();
        let begin = |kind: StateKind| begins.contains(&kind);
        let begun = records.iter().filter(|record| begin(record.state.kind()));
        reserved + begun.count()
    }
}
