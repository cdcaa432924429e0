//! Memory usage of the sandbox.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use tokio::time::Instant;

use crate::procfs;

pub(super) const MIB: u64 = 1 << 20;

/// Longest and shortest poll interval.
const MAX_INTERVAL: Duration = Duration::from_secs(1);
pub(super) const MIN_INTERVAL: Duration = Duration::from_millis(10);

/// Assumed peak allocation rate in bytes per second: twice the rate measured in gVisor.
const MAX_ALLOCATION_RATE: u64 = 2 << 30;

/// Buffer size for `/proc/meminfo`; the fields used are at its start.
const MEMINFO_MAX: usize = 4 << 10;

/// How old the size of mapped files may become while memory grows.
const MAX_AGE: Duration = Duration::from_secs(1);

/// Memory of the sandbox, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct MemoryUsage {
    pub(super) total: u64,
    /// Memory in use. Mapped files do not count, because the host reclaims them.
    pub(super) used: u64,
}

impl MemoryUsage {
    /// Reads the allocated memory, including mapped files.
    ///
    /// gVisor answers sysinfo(2) at once and exactly. The values of `/proc/meminfo` come from a scan of
    /// the memory, and are repeated for ten times as long as it took: a process can allocate a gigabyte in
    /// that time.
    pub(super) fn allocated() -> Self {
        let info = rustix::system::sysinfo();
        let unit = u64::from(info.mem_unit);
        Self {
            total: info.totalram * unit,
            used: info.totalram.saturating_sub(info.freeram) * unit,
        }
    }

    /// Subtracts mapped files, of this many bytes.
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

/// Files that processes have mapped, as the kernel last reported them.
///
/// gVisor reports them in `/proc/meminfo` only, for which it scans the memory: up to 100 ms while a
/// process allocates, and longer on a busy host. A process can use up a small sandbox in that time,
/// so the file is not read while memory grows.
#[derive(Debug, Clone, Copy)]
pub(super) struct MappedFiles {
    /// Their size in bytes.
    pub(super) size: u64,
    at: Instant,
    /// Memory in use at the last check, mapped files included.
    used: u64,
}

impl MappedFiles {
    /// Reads their size.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub(super) fn read(meminfo: &File) -> io::Result<Self> {
        let mut text = [0; MEMINFO_MAX];
        let length = meminfo.read_at(&mut text, 0)?;
        let text = String::from_utf8_lossy(text.get(..length).unwrap_or_default());
        Ok(Self {
            size: procfs::meminfo(&text, "Mapped").ok_or(io::ErrorKind::InvalidData)?,
            at: Instant::now(),
            used: u64::MAX,
        })
    }

    /// Whether there is time to read them again.
    pub(super) fn may_be_read(&self, usage: MemoryUsage) -> bool {
        let is_urgent = usage.used > usage.total / 2 && usage.used > self.used;
        !is_urgent || self.at.elapsed() > MAX_AGE
    }

    /// Notes the memory in use at a check.
    pub(super) fn observe(&mut self, usage: MemoryUsage) {
        self.used = usage.used;
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

    #[tokio::test(start_paused = true)]
    async fn mapped_files_are_not_read_while_memory_grows() {
        let meminfo = tempfile::NamedTempFile::new().unwrap();
        assert!(MappedFiles::read(meminfo.as_file()).is_err());
        std::fs::write(meminfo.path(), "MemTotal: 9 kB\nMapped: 2048 kB\n").unwrap();
        let mut mapped = MappedFiles::read(meminfo.as_file()).unwrap();
        assert_eq!(mapped.size, 2 * MIB);
        // There is time until half of the memory is used, and while use does not grow.
        assert!(mapped.may_be_read(usage(1024, 600)));
        mapped.observe(usage(1024, 500));
        assert!(mapped.may_be_read(usage(1024, 510)));
        assert!(!mapped.may_be_read(usage(1024, 600)));
        mapped.observe(usage(1024, 600));
        assert!(mapped.may_be_read(usage(1024, 600)));
        assert!(!mapped.may_be_read(usage(1024, 601)));
        tokio::time::advance(MAX_AGE + Duration::from_millis(1)).await;
        assert!(mapped.may_be_read(usage(1024, 601)));
    }

    #[test]
    fn mapped_files_are_not_counted() {
        assert_eq!(
            usage(2048, 1900).without_mapped(1500 * MIB),
            usage(2048, 400)
        );
        assert_eq!(usage(2048, 100).without_mapped(101 * MIB), usage(2048, 0));
        let read = MemoryUsage::allocated();
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
