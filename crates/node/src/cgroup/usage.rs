//! The resource usage of a group.

use std::io;
use std::time::Duration;

use shoal_core::resources::Usage;

use super::files::{self, keyed, number, read};
use super::{Cgroup, Controller, Mount};

impl Cgroup {
    /// The processor time used so far.
    ///
    /// # Errors
    /// When the counter cannot be read.
    pub fn cpu_time(&self) -> io::Result<Duration> {
        self.cpu_nanos().map(Duration::from_nanos)
    }

    fn cpu_nanos(&self) -> io::Result<u64> {
        Ok(match self.place(Controller::Cpuacct) {
            Mount::V1(path) => number(&path.join("cpuacct.usage"))?,
            Mount::V2(path) => keyed(&path.join("cpu.stat"), "usage_usec")? * 1000,
        })
    }

    /// The group's current usage, without disk and network.
    ///
    /// # Errors
    /// When the group is gone.
    pub fn usage(&self) -> io::Result<Usage> {
        let cpu_nanos = self.cpu_nanos()?;
        // A user-space kernel gives its programs shared memory, which the kernel counts as cache.
        // Count it as used.
        let (memory_bytes, cache_bytes) = match self.place(Controller::Memory) {
            Mount::V1(path) => {
                let stat = read(&path.join("memory.stat"))?;
                let of = |key: &str| files::value_of(&stat, key).unwrap_or(0);
                let shared = of("shmem");
                (of("rss") + shared, of("cache").saturating_sub(shared))
            }
            Mount::V2(path) => {
                let stat = read(&path.join("memory.stat"))?;
                let of = |key: &str| files::value_of(&stat, key).unwrap_or(0);
                let shared = of("shmem");
                (of("anon") + shared, of("file").saturating_sub(shared))
            }
        };
        Ok(Usage {
            cpu_nanos,
            memory_bytes,
            cache_bytes,
            ..Usage::default()
        })
    }
}
