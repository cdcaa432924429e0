//! Selection of the process to kill, and pacing of kills.

use std::time::Duration;

use tokio::time::Instant;

use super::usage::MemoryUsage;
use crate::procfs::{self, ProcessMemory};

/// Time for the memory of a killed process to be reclaimed: gVisor frees it asynchronously, and
/// slowly on a busy host.
const RECLAIM_TIMEOUT: Duration = Duration::from_secs(10);

/// Killed processes whose memory may not be reclaimed yet.
#[derive(Debug, Clone, Copy)]
pub(super) struct RecentKills {
    /// Time of the last kill.
    pub(super) at: Instant,
    /// Their total size in bytes.
    pub(super) size: u64,
    /// Memory in use at the last kill, in bytes.
    pub(super) used: u64,
}

/// Processes by size. Reading all sizes is slow on a busy host, so it is done before memory runs
/// out.
#[derive(Debug)]
pub(super) struct ProcessSizes {
    /// Sizes in bytes with process ids, in ascending order.
    found: Vec<(u64, i32)>,
    /// An upper bound of the files that they have mapped, in bytes.
    mapped_max: u64,
    /// Memory in use when the sizes were read, in bytes.
    used: u64,
}

impl RecentKills {
    /// Adds a kill of a process of `size` at a memory usage of `used`.
    pub(super) fn and(earlier: Option<Self>, size: u64, used: u64) -> Self {
        let earlier = earlier.filter(|earlier| earlier.at.elapsed() < RECLAIM_TIMEOUT);
        Self {
            at: Instant::now(),
            size: size + earlier.map_or(0, |earlier| earlier.size),
            used,
        }
    }

    /// Whether reclaim of the killed processes is still pending, so that no other needs to be
    /// killed. False if usage has grown since, if most of the memory is back, and after a timeout.
    pub(super) fn is_pending(self, usage: MemoryUsage) -> bool {
        usage.used < self.used + usage.reserve() / 4
            && usage.used + self.size / 2 > self.used
            && self.at.elapsed() < RECLAIM_TIMEOUT
    }
}

impl ProcessSizes {
    /// Reads the sizes of all processes that are not `spared`.
    pub(super) fn measure(usage: MemoryUsage, spared: impl Fn(i32) -> bool) -> Self {
        let others = procfs::processes().filter(|pid| !spared(*pid));
        let all: Vec<_> = others
            .filter_map(|pid| Some((ProcessMemory::read(pid)?, pid)))
            .collect();
        let sizes = all.iter().map(|(memory, pid)| (memory.resident, *pid));
        let mut found: Vec<_> = sizes.filter(|(size, _)| *size > 0).collect();
        found.sort_unstable();
        Self {
            found,
            mapped_max: all.iter().map(|(memory, _)| memory.mapped_max).sum(),
            used: usage.used,
        }
    }

    /// Whether memory usage has changed little since the sizes were read.
    pub(super) fn is_fresh(&self, usage: MemoryUsage) -> bool {
        self.used.abs_diff(usage.used) < usage.reserve() / 4
    }

    /// Whether memory is low even if the processes have mapped all the files that they can have. Files
    /// shared by many processes count several times, so `false` proves nothing.
    pub(super) fn prove_low(&self, usage: MemoryUsage) -> bool {
        usage.without_mapped(self.mapped_max).is_low()
    }

    /// Removes the largest process that still exists and returns its current size. `None` if it has
    /// shrunk a lot: the list is stale then.
    pub(super) fn pop_largest(&mut self) -> Option<(u64, i32)> {
        while let Some((size, pid)) = self.found.pop() {
            let now = size_of(pid).unwrap_or_default();
            if now > 0 && now < size / 2 {
                self.found.clear();
            } else if now > 0 {
                return Some((now, pid));
            }
        }
        None
    }
}

/// Resident size of a process.
fn size_of(pid: i32) -> Option<u64> {
    Some(ProcessMemory::read(pid)?.resident)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::oom_killer::usage::{MIB, usage};

    #[test]
    fn processes_are_sorted_by_size_without_spared_ones() {
        let own = i32::try_from(std::process::id()).unwrap();
        let all = ProcessSizes::measure(usage(256, 100), |_| false);
        assert!(all.found.is_sorted());
        assert!(all.found.iter().any(|(_, pid)| *pid == own));
        let others = ProcessSizes::measure(usage(256, 100), |pid| pid == own);
        assert!(others.found.iter().all(|(_, pid)| *pid != own));
        // 20 MiB are a quarter of the reserve.
        assert!(all.is_fresh(usage(256, 119)) && all.is_fresh(usage(256, 81)));
        assert!(!all.is_fresh(usage(256, 120)) && !all.is_fresh(usage(256, 80)));
    }

    #[test]
    fn memory_is_low_for_certain_if_mapped_files_are_not_the_reason() {
        // The reserve is 192 MiB.
        let sizes = |mapped| ProcessSizes {
            found: Vec::new(),
            mapped_max: mapped * MIB,
            used: 0,
        };
        assert!(sizes(100).prove_low(usage(2048, 1860)));
        assert!(!sizes(200).prove_low(usage(2048, 1860)));
        let own = ProcessSizes::measure(usage(256, 100), |_| false);
        let largest = own.found.last().unwrap().0;
        assert!(own.mapped_max > 0 && largest > 0);
    }

    #[test]
    fn a_process_that_has_shrunk_invalidates_the_list() {
        let own = i32::try_from(std::process::id()).unwrap();
        let now = size_of(own).unwrap();
        let asked = |size| ProcessSizes {
            found: vec![(1, i32::MAX), (size, own)],
            mapped_max: 0,
            used: 0,
        };
        let (found, pid) = asked(now).pop_largest().unwrap();
        assert!(found >= now / 2 && pid == own);
        assert_eq!(asked(u64::MAX).pop_largest(), None);
    }

    #[test]
    fn a_running_process_has_a_size() {
        let own = i32::try_from(std::process::id()).unwrap();
        assert!(size_of(own).unwrap() > MIB);
        assert_eq!(size_of(i32::MAX), None);
    }

    #[tokio::test(start_paused = true)]
    async fn no_process_is_killed_while_reclaim_is_pending() {
        // The reserve is 80 MiB.
        let first = RecentKills::and(None, 40 * MIB, 162 * MIB);
        assert!(first.is_pending(usage(256, 165)));
        // Usage has grown: other processes allocate.
        assert!(!first.is_pending(usage(256, 190)));
        let second = RecentKills::and(Some(first), 50 * MIB, 190 * MIB);
        assert!(second.is_pending(usage(256, 150)));
        // The memory is reclaimed, but not enough.
        assert!(!second.is_pending(usage(256, 145)));
        // The memory is never reclaimed.
        tokio::time::advance(RECLAIM_TIMEOUT).await;
        assert!(!second.is_pending(usage(256, 190)));
        assert_eq!(RecentKills::and(Some(second), MIB, 0).size, MIB);
    }
}
