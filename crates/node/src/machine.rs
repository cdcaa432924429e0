//! The properties of a machine that saved memory depends on.

use std::collections::BTreeSet;
use std::sync::OnceLock;
use std::{fs, io};

use serde::{Deserialize, Serialize};
use shoal_core::memory::MachineMemory;
use shoal_core::resources::{Mib, MilliCpu};

/// A machine, as programs that run on it may have seen it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// The processor's architecture.
    pub architecture: String,
    /// The processor's features, which programs detected when they started.
    pub features: BTreeSet<String>,
}

impl Machine {
    /// This machine.
    pub fn this() -> Self {
        // Without this file nothing can be compared.
        let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        Self {
            architecture: std::env::consts::ARCH.to_owned(),
            features: features(&text),
        }
    }

    /// Why a sandbox saved on `other` cannot resume here; `None` if it can.
    pub fn refuses(&self, other: &Self) -> Option<String> {
        if self.architecture != other.architecture {
            return Some(format!(
                "it was saved on {}, and this machine is {}",
                other.architecture, self.architecture
            ));
        }
        let missing: Vec<&str> = other
            .features
            .difference(&self.features)
            .map(String::as_str)
            .collect();
        (!missing.is_empty()).then(|| {
            format!(
                "it was saved on a processor with features that this one lacks: {}",
                missing.join(" ")
            )
        })
    }
}

/// The machine's processors, as found at the first call.
pub fn cpu() -> MilliCpu {
    static FOUND: OnceLock<MilliCpu> = OnceLock::new();
    *FOUND.get_or_init(count_cpu)
}

fn count_cpu() -> MilliCpu {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    MilliCpu(
        u32::try_from(processors)
            .unwrap_or(u32::MAX)
            .saturating_mul(1000),
    )
}

/// The machine's memory.
pub fn memory() -> Mib {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    // An unknown size refuses nothing.
    meminfo(&text, "MemTotal").unwrap_or(Mib(u32::MAX))
}

/// The machine's memory, and the free part of it. `None` if the kernel does not count it.
///
/// # Errors
/// When `/proc/meminfo` cannot be read.
pub fn memory_use() -> io::Result<Option<MachineMemory>> {
    let text = fs::read_to_string("/proc/meminfo")?;
    // Kernels without pressure stall information have no such file.
    let pressure = fs::read_to_string("/proc/pressure/memory").unwrap_or_default();
    let found = meminfo(&text, "MemTotal").zip(meminfo(&text, "MemAvailable"));
    Ok(found.map(|(total, available)| MachineMemory {
        total,
        available,
        stalled: stalled(&pressure),
    }))
}

/// A value of `/proc/meminfo`.
fn meminfo(text: &str, name: &str) -> Option<Mib> {
    let kib = text.lines().find_map(|line| {
        let rest = line.strip_prefix(name)?.strip_prefix(':')?;
        let number = rest.trim().trim_end_matches("kB").trim();
        number.parse::<u64>().ok()
    });
    kib.map(|kib| Mib(u32::try_from(kib >> 10).unwrap_or(u32::MAX)))
}

/// The share of the last ten seconds in which all programs waited, of a file in `/proc/pressure`.
fn stalled(text: &str) -> Option<f32> {
    let full = text.lines().find_map(|line| line.strip_prefix("full "))?;
    let share = full
        .split(' ')
        .find_map(|word| word.strip_prefix("avg10="))?;
    share.parse().ok()
}

fn features(cpuinfo: &str) -> BTreeSet<String> {
    let line = cpuinfo.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        matches!(name.trim(), "flags" | "Features").then_some(value)
    });
    line.unwrap_or_default()
        .split_whitespace()
        .map(str::to_owned)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(features: &str) -> Machine {
        Machine {
            architecture: "x86_64".to_owned(),
            features: super::features(&format!("processor : 0\nflags\t\t: {features}\n")),
        }
    }

    #[test]
    fn the_memory_and_the_pressure_are_read() {
        let text = "MemTotal:       4096000 kB\nMemFree: 1024 kB\nMemAvailable:   2048000 kB\n";
        assert_eq!(meminfo(text, "MemTotal"), Some(Mib(4000)));
        assert_eq!(meminfo(text, "MemAvailable"), Some(Mib(2000)));
        assert_eq!(meminfo(text, "Mem"), None);
        let text =
            "some avg10=1.50 avg60=0.52 avg300=0.34 total=16\nfull avg10=0.25 avg60=0.05 total=4\n";
        assert_eq!(stalled(text), Some(0.25));
        assert_eq!(stalled(""), None);
        let found = memory_use().unwrap().unwrap();
        assert!(found.available <= found.total && found.total == memory());
    }

    #[test]
    fn a_machine_accepts_saves_of_a_processor_with_fewer_features() {
        let (small, large) = (machine("fpu sse2"), machine("sse2 avx512f fpu"));
        assert_eq!(large.refuses(&small), None);
        let reason = small.refuses(&large).unwrap();
        assert!(reason.contains("avx512f"), "{reason}");
        let other = Machine {
            architecture: "aarch64".to_owned(),
            ..small.clone()
        };
        assert!(small.refuses(&other).unwrap().contains("aarch64"));
        assert_eq!(Machine::this().refuses(&Machine::this()), None);
    }
}
