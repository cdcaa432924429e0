//! What one sandbox may have, and a team in all.

use shoal_core::limits::PerSandbox;
use shoal_core::resources::Mib;

use super::parse_processors;
use super::read::Reader;
use super::units::parse_size;

const SIZE: &str = "a size like 512MiB or 10GiB";

/// Limits; where nothing is said the engine finds what fits the machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LimitsConfig {
    pub(crate) per_sandbox: PerSandbox,
    pub(crate) memory_per_team: Option<Mib>,
    pub(crate) disk_per_team: Option<Mib>,
    pub(crate) snapshots_per_team: u32,
    pub(crate) uploads_per_team: Option<Mib>,
    pub(crate) uploads: Option<Mib>,
    pub(crate) logs_per_team: Mib,
    pub(crate) forks: Option<usize>,
}

pub(super) fn read(reader: &mut Reader<'_>) -> Option<LimitsConfig> {
    let processors = "a number of processors like 8 or 0.5";
    let cpu = reader.optional("limits.cpu_per_sandbox", processors, parse_processors);
    let memory = reader.optional("limits.memory_per_sandbox", SIZE, parse_size);
    let disk = reader.optional("limits.disk_per_sandbox", SIZE, parse_size);
    let memory_per_team = reader.optional("limits.memory_per_team", SIZE, parse_size);
    let disk_per_team = reader.optional("limits.disk_per_team", SIZE, parse_size);
    let snapshots_per_team = reader.parse("limits.snapshots_per_team", "a number");
    let uploads_per_team = reader.optional("limits.uploads_per_team", SIZE, parse_size);
    let uploads = reader.optional("limits.uploads", SIZE, parse_size);
    let logs_per_team = reader.with("limits.logs_per_team", SIZE, parse_size);
    let forks = reader.optional("limits.forks", "a number above zero", |text| {
        text.parse::<usize>().ok().filter(|count| *count > 0)
    });
    Some(LimitsConfig {
        per_sandbox: PerSandbox {
            cpu: cpu?,
            memory: memory?,
            disk: disk?,
        },
        memory_per_team: memory_per_team?,
        disk_per_team: disk_per_team?,
        snapshots_per_team: snapshots_per_team?,
        uploads_per_team: uploads_per_team?,
        uploads: uploads?,
        logs_per_team: logs_per_team?,
        forks: forks?,
    })
}
