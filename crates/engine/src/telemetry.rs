//! Records of sandboxes: events, logs, samples of their use, and counts of starts.
//!
//! Nothing here depends on another part of the engine: the other parts report facts.

mod events;
mod logs;
mod samples;
mod starts;
mod team_metrics;

use std::io;
use std::path::PathBuf;

pub use self::events::{EVENTS_MAX, EventKind, SandboxEvent};
pub use self::logs::{LogEntry, LogLevel, LogQuery};
pub use self::samples::Sample;
pub use self::starts::Starts;
pub use self::team_metrics::TeamSample;

use self::events::Events;
use self::logs::LogStore;
use self::samples::Samples;
use self::starts::TemplateStarts;
use self::team_metrics::TeamMetrics;

/// The records of what happens to sandboxes.
#[derive(Debug)]
pub(crate) struct Telemetry {
    pub(crate) events: Events,
    pub(crate) logs: LogStore,
    pub(crate) samples: Samples,
    pub(crate) teams: TeamMetrics,
    pub(crate) starts: TemplateStarts,
}

impl Telemetry {
    /// Opens the directory of logs. The logs of a team have at most `logs_per_team` bytes.
    pub(crate) fn open(logs: PathBuf, logs_per_team: u64) -> io::Result<Self> {
        Ok(Self {
            events: Events::new(),
            logs: LogStore::open(logs, logs_per_team)?,
            samples: Samples::default(),
            teams: TeamMetrics::default(),
            starts: TemplateStarts::default(),
        })
    }
}
