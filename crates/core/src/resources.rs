//! The resources of a sandbox, each quantity with its own type.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Thousandths of a processor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct MilliCpu(pub u32);

impl MilliCpu {
    /// Whole processors, rounded up, for wires with whole counts.
    #[must_use]
    pub fn whole(self) -> u32 {
        self.0.div_ceil(1000)
    }
}

impl fmt::Display for MilliCpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}m", self.0)
    }
}

/// Mebibytes of memory or disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Mib(pub u32);

impl Mib {
    /// The same in bytes.
    #[must_use]
    pub fn bytes(self) -> u64 {
        u64::from(self.0) << 20
    }
}

impl fmt::Display for Mib {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} MiB", self.0)
    }
}

/// The limits of one sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resources {
    /// Processor time per second.
    pub cpu: MilliCpu,
    /// Memory, including kernel memory and page cache used on its behalf.
    pub memory: Mib,
    /// The size of its writable layer.
    pub disk: Mib,
    /// Processes and threads.
    pub pids: u32,
}

impl Default for Resources {
    /// 2 processors, 1 GiB of memory, 10 GiB of disk, as E2B's base template has.
    fn default() -> Self {
        Self {
            cpu: MilliCpu(2000),
            memory: Mib(1024),
            disk: Mib(10 * 1024),
            pids: 4096,
        }
    }
}

/// Partial limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RequestedResources {
    /// Processor time per second.
    pub cpu: Option<MilliCpu>,
    /// Memory.
    pub memory: Option<Mib>,
    /// Disk.
    pub disk: Option<Mib>,
    /// Processes and threads.
    pub pids: Option<u32>,
}

/// A limit outside its valid range.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field} must be between {least} and {most}")]
pub struct InvalidResources {
    /// The limit, with its unit.
    pub field: &'static str,
    /// The minimum.
    pub least: u32,
    /// The maximum.
    pub most: u32,
}

impl Resources {
    /// Checks that each limit is valid on some machine.
    ///
    /// # Errors
    /// Names the first limit outside its range.
    pub fn validate(&self) -> Result<(), InvalidResources> {
        let checks = [
            ("cpu (thousandths)", self.cpu.0, 50, 128_000),
            ("memory (MiB)", self.memory.0, 64, 1 << 20),
            ("disk (MiB)", self.disk.0, 16, 16 << 20),
            ("pids", self.pids, 16, 1 << 20),
        ];
        for (field, value, least, most) in checks {
            if !(least..=most).contains(&value) {
                return Err(InvalidResources { field, least, most });
            }
        }
        Ok(())
    }
}

/// The resource usage of a sandbox at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Usage {
    /// Processor time since it started, in nanoseconds.
    pub cpu_nanos: u64,
    /// Bytes of memory in use, page cache excluded.
    pub memory_bytes: u64,
    /// Bytes of page cache.
    pub cache_bytes: u64,
    /// Bytes in its writable layer.
    pub disk_bytes: u64,
    /// Bytes that its network interface received since it started, those of its users' requests included.
    #[serde(default)]
    pub received_bytes: u64,
    /// Bytes that its network interface sent.
    #[serde(default)]
    pub sent_bytes: u64,
}

impl Usage {
    /// The most bytes that a save of the memory writes.
    #[must_use]
    pub fn saved_at_most(&self) -> u64 {
        self.memory_bytes.saturating_add(self.cache_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_valid_and_what_is_outside_is_named() {
        assert!(Resources::default().validate().is_ok());
        let none = Resources {
            memory: Mib(0),
            ..Resources::default()
        };
        let refused = none.validate().unwrap_err();
        assert_eq!(
            refused.to_string(),
            "memory (MiB) must be between 64 and 1048576"
        );
    }

    #[test]
    fn part_of_a_processor_shows_as_a_whole_one() {
        assert_eq!(MilliCpu(200).whole(), 1);
        assert_eq!(MilliCpu(2000).whole(), 2);
        assert_eq!(MilliCpu(2001).whole(), 3);
    }
}
