//! Memory usage of the sandbox.

use std::time::Duration;

use crate::procfs;

pub(super) const MIB: u64 = 1 << 20;

/// Longest and shortest poll interval.
const SELDOM: Duration = Duration::from_secs(1);
pub(super) const OFTEN: Duration = Duration::from_millis(10);

/// Assumed peak allocation rate in bytes per second: twice the rate measured in gVisor.
const RATE: u64 = 2 << 30;

/// Memory of the sandbox, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Memory {
    pub(super) total: u64,
    /// Anonymous memory, which only the end of its process frees.
    pub(super) taken: u64,
}

impl Memory {
    /// Parses `/proc/meminfo`. Page cache is not counted, because the host reclaims it.
    pub(super) fn read(text: &str) -> Option<Self> {
        let value = |name| procfs::meminfo(text, name);
        Some(Self {
            total: value("MemTotal")?,
            taken: value("AnonPages")? + value("Shmem").unwrap_or_default(),
        })
    }

    /// Reserve that processes may not use: headroom for allocations until a kill takes effect, and
    /// for gVisor's own kernel beyond its own share.
    pub(super) fn rest(self) -> u64 {
        (self.total / 16 + 64 * MIB).min(self.total / 2)
    }

    /// Whether memory may run out soon.
    pub(super) fn is_short(self) -> bool {
        self.taken + 2 * self.rest() > self.total
    }

    /// Time until the limit can be reached at the peak rate; `None` if it is reached.
    pub(super) fn pause(self) -> Option<Duration> {
        let left = (self.total - self.rest()).checked_sub(self.taken)?;
        let pause = Duration::from_millis(left.saturating_mul(1000) / RATE);
        Some(pause.clamp(OFTEN, SELDOM))
    }
}

/// A state with these values in MiB.
#[cfg(test)]
pub(super) fn memory(total: u64, taken: u64) -> Memory {
    Memory {
        total: total * MIB,
        taken: taken * MIB,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mapped_files_are_not_counted() {
        let text = "MemTotal:        2097152 kB\nMemFree:          186892 kB\n\
                    Cached:          1639080 kB\nAnonPages:        200000 kB\n\
                    Mapped:          1500000 kB\nShmem:             65536 kB\n";
        let read = Memory::read(text).unwrap();
        assert_eq!(read.total, 2048 * MIB);
        assert_eq!(read.taken, (200_000 + 65_536) << 10);
        assert_eq!(Memory::read("MemTotal: 1 kB"), None);
    }

    #[test]
    fn less_free_memory_means_a_shorter_poll_interval() {
        assert_eq!(memory(4096, 100).pause(), Some(SELDOM));
        assert_eq!(memory(2048, 1400).pause(), Some(Duration::from_millis(222)));
        assert_eq!(memory(2048, 1835).pause(), Some(OFTEN));
        assert_eq!(memory(2048, 1857).pause(), None);
        // A small sandbox keeps at least half of its memory usable.
        assert_eq!(memory(128, 60).pause(), Some(OFTEN));
        assert_eq!(memory(128, 65).pause(), None);
        assert_eq!(memory(0, 1).pause(), None);
    }
}
