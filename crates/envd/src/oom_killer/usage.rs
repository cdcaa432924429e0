//! Memory usage of the sandbox.

use std::time::Duration;

pub(super) const MIB: u64 = 1 << 20;

/// Longest and shortest poll interval.
const MAX_INTERVAL: Duration = Duration::from_secs(1);
pub(super) const MIN_INTERVAL: Duration = Duration::from_millis(10);

/// Assumed peak allocation rate in bytes per second: twice the rate measured in gVisor.
const MAX_ALLOCATION_RATE: u64 = 2 << 30;

/// Memory of the sandbox, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct MemoryUsage {
    pub(super) total: u64,
    /// Memory in use, mapped files included.
    pub(super) used: u64,
}

impl MemoryUsage {
    /// Reads it with sysinfo(2), which gVisor answers at once and exactly.
    pub(super) fn read() -> Self {
        let info = rustix::system::sysinfo();
        let unit = u64::from(info.mem_unit);
        Self {
            total: info.totalram * unit,
            used: info.totalram.saturating_sub(info.freeram) * unit,
        }
    }

    /// Subtracts mapped files, of this many bytes: the host reclaims them.
    pub(super) fn without_mapped(self, mapped: u64) -> Self {
        let used = self.used.saturating_sub(mapped);
        Self { used, ..self }
    }

    /// Reserve that processes may not use: headroom for allocations until a kill takes effect, and
    /// for gVisor's own kernel beyond its own share.
    pub(super) fn reserve(self) -> u64 {
        (self.total / 16 + 64 * MIB).min(self.total / 2)
    }

    /// Whether memory may run out soon.
    pub(super) fn is_low(self) -> bool {
        self.used + 2 * self.reserve() > self.total
    }

    /// Time until the limit can be reached at the peak rate; `None` if it is reached.
    pub(super) fn poll_interval(self) -> Option<Duration> {
        let left = (self.total - self.reserve()).checked_sub(self.used)?;
        let poll_interval = Duration::from_millis(left.saturating_mul(1000) / MAX_ALLOCATION_RATE);
        Some(poll_interval.clamp(MIN_INTERVAL, MAX_INTERVAL))
    }
}

/// A state with these values in MiB.
#[cfg(test)]
pub(super) fn usage(total: u64, used: u64) -> MemoryUsage {
    MemoryUsage {
        total: total * MIB,
        used: used * MIB,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mapped_files_are_not_counted() {
        assert_eq!(
            usage(2048, 1900).without_mapped(1500 * MIB),
            usage(2048, 400)
        );
        assert_eq!(usage(2048, 100).without_mapped(101 * MIB), usage(2048, 0));
        let read = MemoryUsage::read();
        assert!(read.used > 0 && read.used <= read.total);
    }

    #[test]
    fn less_free_memory_means_a_shorter_poll_interval() {
        assert_eq!(usage(4096, 100).poll_interval(), Some(MAX_INTERVAL));
        assert_eq!(
            usage(2048, 1400).poll_interval(),
            Some(Duration::from_millis(222))
        );
        assert_eq!(usage(2048, 1835).poll_interval(), Some(MIN_INTERVAL));
        assert_eq!(usage(2048, 1857).poll_interval(), None);
        // A small sandbox keeps at least half of its memory usable.
        assert_eq!(usage(128, 60).poll_interval(), Some(MIN_INTERVAL));
        assert_eq!(usage(128, 65).poll_interval(), None);
        assert_eq!(usage(0, 1).poll_interval(), None);
    }
}
