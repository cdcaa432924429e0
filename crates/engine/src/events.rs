//! What happened to sandboxes, for whoever wants to hear.

use std::collections::BTreeMap;

use serde::Serialize;
use shoal_core::clock::Timestamp;
use shoal_core::id::{ExecutionId, SandboxId, TeamId, TemplateId};
use shoal_core::sandbox::SandboxRecord;
use tokio::sync::broadcast;

/// How many events are kept for a listener that is behind; one that is further behind misses some,
/// and is told.
const KEPT: usize = 1024;

/// What happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum EventKind {
    /// It runs for the first time.
    Created,
    /// Something of it was changed: its deadline, its network.
    Updated,
    /// It rests on disk.
    Paused,
    /// It runs again.
    Resumed,
    /// A copy of it was taken.
    Snapshotted,
    /// It is gone for good.
    Killed,
}

/// One thing that happened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SandboxEvent {
    /// What.
    pub kind: EventKind,
    /// When.
    pub at: Timestamp,
    /// To which sandbox.
    pub sandbox: SandboxId,
    /// In which of its runs.
    pub execution: ExecutionId,
    /// Whose it is.
    pub team: TeamId,
    /// What it was started from.
    pub template: TemplateId,
    /// More of it, by name.
    pub detail: BTreeMap<&'static str, String>,
}

/// Spreads events; never waits for a listener.
#[derive(Debug, Clone)]
pub(crate) struct Events(broadcast::Sender<SandboxEvent>);

impl Events {
    pub(crate) fn new() -> Self {
        Self(broadcast::channel(KEPT).0)
    }

    pub(crate) fn subscribe(&self) -> broadcast::Receiver<SandboxEvent> {
        self.0.subscribe()
    }

    pub(crate) fn emit(
        &self,
        kind: EventKind,
        at: Timestamp,
        record: &SandboxRecord,
        detail: BTreeMap<&'static str, String>,
    ) {
        // That nobody listens is no failure.
        let _ = self.0.send(SandboxEvent {
            kind,
            at,
            sandbox: record.id.clone(),
            execution: record.execution,
            team: record.team,
            template: record.spec.template.clone(),
            detail,
        });
    }
}
