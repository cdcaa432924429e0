//! Whether the machine has memory for another sandbox.
//!
//! Sandboxes may be promised more memory than there is: few use all of theirs. So what counts is the memory that is
//! in use.

use crate::resources::Mib;

/// The memory that a starting sandbox is assumed to need: that of an empty gVisor sandbox.
const STARTING: Mib = Mib(64);

/// The machine is short of memory when all of its programs wait for memory for this share of the time, in percent.
const STALLED: f32 = 20.0;

/// The share of the machine's memory that stays free by default.
const RESERVED: u32 = 25;

/// The most that stays free by default.
const RESERVED_MOST: Mib = Mib(1024);

/// The memory of the machine.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MachineMemory {
    /// All of it.
    pub total: Mib,
    /// The memory that programs can still get, including caches that the kernel can drop.
    pub available: Mib,
    /// The share of the last ten seconds in which all programs waited for memory, in percent; `None` if the kernel does
    /// not count it.
    pub stalled: Option<f32>,
}

/// The memory that creates and resumes leave free; `None` for a twenty-fifth of the machine's, and at most 1 GiB.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FreeMemory(pub Option<Mib>);

impl FreeMemory {
    /// The memory that stays free on a machine with `total`.
    #[must_use]
    pub fn of(self, total: Mib) -> Mib {
        self.0
            .unwrap_or_else(|| Mib(total.0 / RESERVED).min(RESERVED_MOST))
    }

    /// Whether no memory stays free, so that nothing is refused and nothing is parked for it.
    #[must_use]
    pub fn is_off(self) -> bool {
        self.0 == Some(Mib(0))
    }

    /// Whether another sandbox may start, while `starting` others do.
    #[must_use]
    pub fn admits(self, memory: &MachineMemory, starting: usize) -> bool {
        let starting = u32::try_from(starting).unwrap_or(u32::MAX);
        let coming = STARTING.0.saturating_mul(starting.saturating_add(1));
        let free = self.of(memory.total);
        self.is_off() || memory.available.0 >= free.0.saturating_add(coming)
    }

    /// Whether to park idle sandboxes before their time: less than one and a half times the reserve is left, or programs
    /// wait for memory.
    #[must_use]
    pub fn is_short(self, memory: &MachineMemory) -> bool {
        let free = self.of(memory.total);
        let enough = free.0.saturating_add(free.0 / 2);
        !self.is_off()
            && (memory.available.0 < enough || memory.stalled.is_some_and(|share| share >= STALLED))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn memory(available: u32) -> MachineMemory {
        MachineMemory {
            total: Mib(16_384),
            available: Mib(available),
            stalled: None,
        }
    }

    #[test]
    fn a_twenty_fifth_stays_free_and_at_most_a_gibibyte() {
        assert_eq!(FreeMemory(None).of(Mib(5000)), Mib(200));
        assert_eq!(FreeMemory(None).of(Mib(1 << 20)), Mib(1024));
        assert_eq!(FreeMemory(Some(Mib(7))).of(Mib(5000)), Mib(7));
    }

    #[test]
    fn each_sandbox_that_starts_counts() {
        let free = FreeMemory(Some(Mib(1000)));
        assert!(free.admits(&memory(1064), 0) && !free.admits(&memory(1063), 0));
        assert!(free.admits(&memory(1640), 9) && !free.admits(&memory(1640), 10));
        assert!(!free.admits(&memory(u32::MAX - 1), usize::MAX));
    }

    #[test]
    fn a_machine_is_short_before_it_refuses_and_when_programs_wait() {
        let free = FreeMemory(Some(Mib(1000)));
        assert!(free.is_short(&memory(1499)) && !free.is_short(&memory(1500)));
        let waiting = |share| MachineMemory {
            stalled: Some(share),
            ..memory(9000)
        };
        assert!(free.is_short(&waiting(20.0)) && !free.is_short(&waiting(19.9)));
    }

    proptest! {
        #[test]
        fn more_free_memory_never_refuses_what_less_admits(
            available in 0..20_000u32, more in 0..20_000u32, free in 0..4000u32, starting in 0..100usize,
        ) {
            let rule = FreeMemory(Some(Mib(free)));
            if rule.admits(&memory(available), starting) {
                prop_assert!(rule.admits(&memory(available + more), starting));
                prop_assert!(starting == 0 || rule.admits(&memory(available), starting - 1));
            }
            // Nothing is refused by a machine that keeps nothing free.
            let none = FreeMemory(Some(Mib(0)));
            prop_assert!(none.admits(&memory(available), starting) && !none.is_short(&memory(available)));
        }
    }
}
