//! Events of sandboxes: published to subscribers, with the latest kept for later readers.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use parking_lot::RwLock;
use shoal_core::clock::Timestamp;
use shoal_core::id::{SandboxId, TeamId};
pub use shoal_core::ports::observe::{EVENTS_MAX, EventKind, SandboxEvent};
use shoal_core::sandbox::{Purpose, SandboxRecord};
use tokio::sync::broadcast;

/// How many events wait for a slow subscriber. A slower one misses some, and learns how many.
const KEPT: usize = 1024;

/// The latest events of each tenant, the oldest first.
type Latest = Arc<RwLock<HashMap<TeamId, VecDeque<SandboxEvent>>>>;

/// Publishes events, and keeps the latest. Never waits for a subscriber.
#[derive(Debug, Clone)]
pub(crate) struct Events {
    /// All, for the parts of the engine.
    listeners: broadcast::Sender<SandboxEvent>,
    /// Those of sandboxes that users see.
    visible: broadcast::Sender<SandboxEvent>,
    latest: Latest,
}

impl Events {
    pub(crate) fn new() -> Self {
        Self {
            listeners: broadcast::channel(KEPT).0,
            visible: broadcast::channel(KEPT).0,
            latest: Latest::default(),
        }
    }

    pub(crate) fn subscribe(&self) -> broadcast::Receiver<SandboxEvent> {
        self.listeners.subscribe()
    }

    /// The events that users see, from now on.
    pub(crate) fn subscribe_visible(&self) -> broadcast::Receiver<SandboxEvent> {
        self.visible.subscribe()
    }

    pub(crate) fn emit(
        &self,
        kind: EventKind,
        at: Timestamp,
        record: &SandboxRecord,
        detail: BTreeMap<&'static str, String>,
    ) {
        let event = SandboxEvent {
            kind,
            at,
            sandbox: record.id.clone(),
            execution: record.execution,
            team: record.team,
            template: record.spec.template.clone(),
            detail,
        };
        if record.spec.purpose == Purpose::Use {
            self.keep(event.clone());
            // There may be no subscriber.
            let _ = self.visible.send(event.clone());
        }
        // There may be no subscriber.
        let _ = self.listeners.send(event);
    }

    /// The latest events of a team, of one sandbox if it is named, the newest first.
    pub(crate) fn latest(
        &self,
        team: TeamId,
        sandbox: Option<&SandboxId>,
        limit: usize,
    ) -> Vec<SandboxEvent> {
        let latest = self.latest.read();
        let of_team = latest.get(&team).into_iter().flatten().rev();
        of_team
            .filter(|event| sandbox.is_none_or(|id| event.sandbox == *id))
            .take(limit)
            .cloned()
            .collect()
    }

    fn keep(&self, event: SandboxEvent) {
        let mut latest = self.latest.write();
        let of_team = latest.entry(event.team).or_default();
        if of_team.len() >= EVENTS_MAX {
            of_team.pop_front();
        }
        of_team.push_back(event);
    }
}
