//! The body of `GET /metrics`.

use serde::{Deserialize, Serialize};

/// How busy a sandbox is.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Metrics {
    /// When this was measured, in Unix seconds.
    pub ts: i64,
    /// Logical processors.
    pub cpu_count: u32,
    /// Processor time used since the previous question, in per cent of all processors, with two
    /// decimals; since the start when nobody asked before.
    pub cpu_used_pct: f64,
    /// Memory, in bytes.
    pub mem_total: u64,
    /// Memory that could not be had without swapping, in bytes.
    pub mem_used: u64,
    /// Memory that caches files, in bytes.
    pub mem_cache: u64,
    /// The root file system's size, in bytes.
    pub disk_total: u64,
    /// How much of it is taken, in bytes.
    pub disk_used: u64,
    /// `mem_total` in MiB, for old readers.
    pub mem_total_mib: u64,
    /// `mem_used` in MiB, for old readers.
    pub mem_used_mib: u64,
}
