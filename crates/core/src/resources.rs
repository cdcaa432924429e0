//! What a sandbox may use of the machine, each quantity with its own type.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Thousandths of a processor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct MilliCpu(pub u32);

impl MilliCpu {
    /// Whole processors, rounded up, as wires with whole counts show it.
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

/// Mebibytes: of memory or of disk, as the field says.
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
    /// Processor time a second.
    pub cpu: MilliCpu,
    /// Memory, the kernel's and the page cache's on its behalf included.
    pub memory: Mib,
    /// What it may write beside its template.
    pub disk: Mib,
    /// Processes and threads.
    pub pids: u32,
}

impl Default for Resources {
    /// 2 processors, 1 GiB of memory, 10 GiB of disk: what the field's builtin template has.
    fn default() -> Self {
        Self {
            cpu: MilliCpu(2000),
            memory: Mib(1024),
            disk: Mib(10 * 1024),
            pids: 4096,
        }
    }
}

/// Limits of which some may not be said.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AskedResources {
    /// Processor time a second.
    pub cpu: Option<MilliCpu>,
    /// Memory.
    pub memory: Option<Mib>,
    /// Disk.
    pub disk: Option<Mib>,
    /// Processes and threads.
    pub pids: Option<u32>,
}

/// A limit outside what can be given.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field} must be between {least} and {most}")]
pub struct InvalidResources {
    /// Which of the limits, with its unit.
    pub field: &'static str,
    /// The least that is accepted.
    pub least: u32,
    /// The most that is accepted.
    pub most: u32,
}

impl Resources {
    /// Checks each limit against what makes sense on any machine.
    ///
    /// # Errors
    /// Names the first limit that is outside its range.
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

/// What a sandbox uses at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Usage {
    /// Processor time since it started, in nanoseconds.
    pub cpu_nanos: u64,
    /// Bytes of memory in use, page cache excluded.
    pub memory_bytes: u64,
    /// Bytes of page cache.
    pub cache_bytes: u64,
    /// Bytes it has written beside its template.
    pub disk_bytes: u64,
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
