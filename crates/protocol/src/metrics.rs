//! Body of `GET /metrics`.

use serde::{Deserialize, Serialize};

/// Resource usage of a sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Metrics {
    /// Time of the measurement in Unix seconds.
    pub ts: i64,
    /// Logical CPUs.
    pub cpu_count: u32,
    /// CPU usage since the previous request (or since boot, for the first) in per cent of all CPUs,
    /// with two decimals.
    pub cpu_used_pct: f64,
    /// Total memory in bytes.
    pub mem_total: u64,
    /// Memory that is not available, in bytes.
    pub mem_used: u64,
    /// Page cache in bytes.
    pub mem_cache: u64,
    /// Size of the root file system in bytes.
    pub disk_total: u64,
    /// Used space in bytes.
    pub disk_used: u64,
    /// `mem_total` in MiB, for older clients.
    pub mem_total_mib: u64,
    /// `mem_used` in MiB, for older clients.
    pub mem_used_mib: u64,
}
