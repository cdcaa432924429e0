//! Logs, metrics, events and use.

use std::collections::BTreeMap;

use futures_core::stream::BoxStream;
use serde::{Deserialize, Serialize};

use crate::BoxFuture;
use crate::auth::{Principal, SandboxPermit};
use crate::clock::Timestamp;
use crate::id::{ExecutionId, SandboxId, TeamId, TemplateId};
pub use crate::log_level::LogLevel;
use crate::ports::NotServed;
use crate::ports::sandboxes::SandboxError;
use crate::resources::MilliCpu;

/// How many events of each team are kept for later readers.
pub const EVENTS_MAX: usize = 500;

/// The type of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum EventKind {
    /// The sandbox runs for the first time.
    Created,
    /// Its deadline, network or limits changed.
    Updated,
    /// It is paused.
    Paused,
    /// It runs again after a pause.
    Resumed,
    /// It is parked: idle, and saved with its memory until it is needed.
    Parked,
    /// It runs again after it was parked.
    Woken,
    /// A snapshot of it was taken.
    Snapshotted,
    /// It has ended.
    Killed,
}

/// Something that happened to a sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SandboxEvent {
    /// The kind of event.
    pub kind: EventKind,
    /// When it happened.
    pub at: Timestamp,
    /// The sandbox.
    pub sandbox: SandboxId,
    /// The run of the sandbox.
    pub execution: ExecutionId,
    /// The team that owns the sandbox.
    pub team: TeamId,
    /// The template that it was started from.
    pub template: TemplateId,
    /// More details, by name.
    pub detail: BTreeMap<&'static str, String>,
}

/// An item of a subscription to events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Seen {
    /// Something happened.
    Event(SandboxEvent),
    /// The subscriber was too slow, and has missed some. Later ones follow.
    Lagged,
}

/// Events from the subscription on. It ends with the installation.
pub type SeenStream = BoxStream<'static, Seen>;

/// The scope of a subscription.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// The events of the caller's team.
    Team,
    /// The events of all teams, for admins.
    All,
}

/// Why there is no subscription.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SubscribeError {
    /// Only an admin sees other teams.
    #[error("only an admin key may see the events of all teams")]
    Forbidden,
    /// The backend does not serve this.
    #[error(transparent)]
    NotServed(#[from] NotServed),
}

/// An entry of a sandbox's log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogEntry {
    /// When it was received.
    #[serde(rename = "t")]
    pub at: Timestamp,
    /// Its severity.
    #[serde(rename = "l")]
    pub level: LogLevel,
    /// Its message.
    #[serde(rename = "m")]
    pub message: String,
    /// Its other fields, by name.
    #[serde(rename = "f", default)]
    pub fields: BTreeMap<String, String>,
}

/// Which entries of a log to read.
#[derive(Debug, Clone, Default)]
pub struct LogQuery {
    /// Only entries at or after this moment (forward), or at or before it (backward).
    pub cursor: Option<Timestamp>,
    /// Whether the newest come first.
    pub backward: bool,
    /// The most entries to return.
    pub limit: usize,
    /// The least severity.
    pub level: Option<LogLevel>,
    /// Only entries that contain this text.
    pub search: Option<String>,
}

impl LogQuery {
    /// Whether the query selects an entry. [`LogQuery::limit`] does not count here.
    #[must_use]
    pub fn matches(&self, entry: &LogEntry) -> bool {
        let in_time = self.cursor.is_none_or(|cursor| {
            if self.backward {
                entry.at <= cursor
            } else {
                entry.at >= cursor
            }
        });
        let found = self.search.as_ref().is_none_or(|text| {
            entry.message.contains(text) || entry.fields.values().any(|value| value.contains(text))
        });
        in_time && found && self.level.is_none_or(|level| entry.level >= level)
    }
}

/// The resource usage of a sandbox at one moment.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sample {
    /// When it was measured.
    pub at: Timestamp,
    /// The number of processors of the sandbox, rounded up.
    pub cpu_count: u32,
    /// The share of all of them used since the sample before, in percent: 0 to 100.
    pub cpu_used_percent: f32,
    /// Bytes of memory in use.
    pub memory_used: u64,
    /// The memory limit, in bytes.
    pub memory_total: u64,
    /// Bytes of page cache.
    pub memory_cache: u64,
    /// Bytes written to the sandbox's disk.
    pub disk_used: u64,
    /// The disk limit, in bytes.
    pub disk_total: u64,
    /// The traffic since the sample before; none from a backend that does not measure it.
    pub network: Option<Traffic>,
}

/// The traffic of a sandbox's network interface, requests to the sandbox included, in bytes a second.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Traffic {
    /// To the sandbox.
    pub received: u64,
    /// From the sandbox.
    pub sent: u64,
}

/// The activity of a team in one interval.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TeamSample {
    /// When the interval began.
    pub at: Timestamp,
    /// The most sandboxes that ran at once.
    pub concurrent: u64,
    /// The average number of starts a second.
    pub start_rate: f64,
}

/// The sandboxes of one team, or of all, and the resources they take.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Use {
    /// The number of sandboxes by state; states without any are left out.
    pub states: BTreeMap<String, usize>,
    /// Sandboxes that count towards the limits: all that are not paused, those of builds included.
    pub counted: usize,
    /// Sandboxes that are being created or resumed.
    pub starting: usize,
    /// The processor time of those that count.
    pub cpu: MilliCpu,
    /// The memory of those that count, in MiB.
    pub memory_mib: u64,
    /// The number of teams that own them.
    pub teams: usize,
}

/// Live events of sandboxes.
pub trait SandboxEvents: Send + Sync {
    /// Every event from now on: the subscription stands when this returns.
    ///
    /// # Errors
    /// See [`SubscribeError`].
    fn subscribe(&self, principal: &Principal, scope: Scope) -> Result<SeenStream, SubscribeError>;
}

/// Logs, metrics and events of sandboxes, and the use of limits.
pub trait Telemetry: Send + Sync {
    /// The entries of a sandbox's log that `query` selects. The log outlives the sandbox for a while.
    ///
    /// # Errors
    /// [`SandboxError::NotFound`] when the caller's team has no such log.
    fn logs<'a>(
        &'a self,
        principal: &'a Principal,
        sandbox: &'a SandboxId,
        query: LogQuery,
    ) -> BoxFuture<'a, Result<Vec<LogEntry>, SandboxError>>;

    /// The samples of a sandbox, the oldest first. Few or none right after its start.
    fn metrics<'a>(
        &'a self,
        permit: &'a SandboxPermit,
        start: Option<Timestamp>,
        end: Option<Timestamp>,
    ) -> BoxFuture<'a, Vec<Sample>>;

    /// The latest events of the caller's team, or of one sandbox, the newest first. Includes those of
    /// sandboxes that have ended.
    fn events<'a>(
        &'a self,
        principal: &'a Principal,
        sandbox: Option<&'a SandboxId>,
        limit: usize,
    ) -> BoxFuture<'a, Vec<SandboxEvent>>;

    /// The activity of the caller's team between two moments, oldest first.
    fn team_metrics<'a>(
        &'a self,
        principal: &'a Principal,
        start: Timestamp,
        end: Timestamp,
    ) -> BoxFuture<'a, Vec<TeamSample>>;

    /// The current usage of the caller's team.
    fn usage<'a>(&'a self, principal: &'a Principal) -> BoxFuture<'a, Use>;

    /// The current usage of all teams together; `None` unless the caller is an admin.
    fn usage_of_all<'a>(&'a self, principal: &'a Principal) -> BoxFuture<'a, Option<Use>>;
}
