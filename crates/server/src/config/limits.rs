//! Limits of sandboxes and teams.

use std::num::NonZeroU32;
use std::time::Duration;

use shoal_core::limits::PerSandbox;
use shoal_core::memory::FreeMemory;
use shoal_core::resources::{Mib, MilliCpu};
use shoal_engine::Endless;

use super::read::{Reader, positive};
use super::units::{duration, parse_processors, parse_size};

const SIZE: &str = "a size like 512MiB or 10GiB";
const PROCESSORS: &str = "a number of processors like 8 or 0.5";
const NUMBER: &str = "a number above zero";
const DURATION: &str = "a time like 90s, 5m, 24h or 7d";

/// The settings `limits.*` and `rate.*`. The engine chooses missing limits by the machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LimitsConfig {
    pub(crate) max_timeout: Duration,
    pub(crate) never_timeout: Endless,
    pub(crate) sandboxes: usize,
    pub(crate) sandboxes_per_team: usize,
    pub(crate) cpu_per_team: Option<MilliCpu>,
    pub(crate) memory_per_team: Option<Mib>,
    pub(crate) disk_per_team: Option<Mib>,
    pub(crate) snapshots_per_team: u32,
    pub(crate) per_sandbox: PerSandbox,
    pub(crate) free_memory: FreeMemory,
    pub(crate) forks: Option<usize>,
    pub(crate) uploads_per_team: Option<Mib>,
    pub(crate) uploads: Option<Mib>,
    pub(crate) logs_per_team: Mib,
    pub(crate) keep_ended: Duration,
    pub(crate) rate: RateConfig,
}

/// The rate limit of calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RateConfig {
    /// None for no limit.
    pub(crate) calls: Option<NonZeroU32>,
    pub(crate) per: Duration,
}

pub(super) fn read(reader: &mut Reader<'_>) -> Option<LimitsConfig> {
    let max_timeout = reader.with("limits.max_timeout", DURATION, duration);
    let never_timeout = reader.with("limits.never_timeout", "admin or any", |text| match text {
        "admin" => Some(Endless::Admins),
        "any" => Some(Endless::Everyone),
        _ => None,
    });
    let sandboxes = reader.with("limits.sandboxes", NUMBER, positive);
    let sandboxes_per_team = reader.with("limits.sandboxes_per_team", NUMBER, positive);
    let cpu_per_team = reader.optional("limits.cpu_per_team", PROCESSORS, parse_processors);
    let memory_per_team = reader.optional("limits.memory_per_team", SIZE, parse_size);
    let disk_per_team = reader.optional("limits.disk_per_team", SIZE, parse_size);
    let snapshots_per_team = reader.parse("limits.snapshots_per_team", "a number");
    let per_sandbox = read_per_sandbox(reader);
    let free_memory = reader.optional("limits.free_memory", "a size like 512MiB, or off", |text| {
        parse_size(text).or((text == "off").then_some(Mib(0)))
    });
    let forks = reader.optional("limits.forks", NUMBER, positive);
    let uploads_per_team = reader.optional("limits.uploads_per_team", SIZE, parse_size);
    let uploads = reader.optional("limits.uploads", SIZE, parse_size);
    let logs_per_team = reader.with("limits.logs_per_team", SIZE, parse_size);
    let keep_ended = reader.with("limits.keep_ended", DURATION, duration);
    let rate = read_rate(reader);
    Some(LimitsConfig {
        max_timeout: max_timeout?,
        never_timeout: never_timeout?,
        sandboxes: sandboxes?,
        sandboxes_per_team: sandboxes_per_team?,
        cpu_per_team: cpu_per_team?,
        memory_per_team: memory_per_team?,
        disk_per_team: disk_per_team?,
        snapshots_per_team: snapshots_per_team?,
        per_sandbox: per_sandbox?,
        free_memory: FreeMemory(free_memory?),
        forks: forks?,
        uploads_per_team: uploads_per_team?,
        uploads: uploads?,
        logs_per_team: logs_per_team?,
        keep_ended: keep_ended?,
        rate: rate?,
    })
}

fn read_per_sandbox(reader: &mut Reader<'_>) -> Option<PerSandbox> {
    let cpu = reader.optional("limits.cpu_per_sandbox", PROCESSORS, parse_processors);
    let memory = reader.optional("limits.memory_per_sandbox", SIZE, parse_size);
    let disk = reader.optional("limits.disk_per_sandbox", SIZE, parse_size);
    Some(PerSandbox {
        cpu: cpu?,
        memory: memory?,
        disk: disk?,
    })
}

fn read_rate(reader: &mut Reader<'_>) -> Option<RateConfig> {
    let calls = reader.with("rate.calls", "a number", |text| {
        text.parse::<u32>().ok().map(NonZeroU32::new)
    });
    let per = reader.with("rate.per", DURATION, |text| {
        duration(text).filter(|time| !time.is_zero())
    });
    Some(RateConfig {
        calls: calls?,
        per: per?,
    })
}
