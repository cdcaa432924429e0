//! The sandboxes that exist, as the rest of the program sees them.
//!
//! Each sandbox's own task writes its entry, and everyone reads: a reader copies a pointer and never
//! waits for an operation.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};
use shoal_core::driver::PausedNetwork;
use shoal_core::id::{SandboxId, TeamId};
use shoal_core::parking::Activity;
use shoal_core::routes::{Lookup, Route};
use shoal_core::sandbox::SandboxRecord;
use shoal_core::state::{FailReason, StateKind};
use tokio::sync::watch;

use super::activity::SharedActivity;
use super::mailbox::Mailbox;
use super::quota::Load;
use super::waking::Waking;

/// The last published state of a sandbox.
#[derive(Debug, Clone)]
pub(crate) struct Published {
    pub(crate) record: Arc<SandboxRecord>,
    /// How to reach it, while it runs.
    pub(crate) route: Option<Arc<Route>>,
    /// Its route before it was parked, while it is. Its tokens are those of the next one.
    pub(crate) parked: Option<Arc<Route>>,
    /// What becomes of its network while it is parked.
    pub(crate) network: PausedNetwork,
}

#[derive(Debug)]
struct Entry {
    published: watch::Receiver<Published>,
    mailbox: Mailbox,
    waking: Arc<Waking>,
    activity: Arc<SharedActivity>,
}

/// Of how many sandboxes that stopped is remembered why.
const FAILURES_KEPT: usize = 1000;

/// Every sandbox that has a task.
#[derive(Debug, Default)]
pub(crate) struct SandboxRegistry {
    by_id: RwLock<HashMap<SandboxId, Entry>>,
    /// Those that stopped, the last at the end.
    failures: Mutex<VecDeque<(SandboxId, FailReason)>>,
}

impl SandboxRegistry {
    pub(crate) fn insert(
        &self,
        id: SandboxId,
        published: watch::Receiver<Published>,
        mailbox: Mailbox,
    ) -> Arc<SharedActivity> {
        let mut entries = self.by_id.write();
        // A task that is recovered after a panic keeps the requests under way.
        let known = entries.get(&id).map(|entry| entry.activity.clone());
        let activity = known.unwrap_or_default();
        activity.with(Activity::reopen);
        let entry = Entry {
            published,
            mailbox,
            waking: Arc::default(),
            activity: activity.clone(),
        };
        entries.insert(id, entry);
        activity
    }

    pub(crate) fn remove(&self, id: &SandboxId) {
        self.by_id.write().remove(id);
    }

    /// Remembers why a sandbox stopped, for later requests to it.
    pub(crate) fn note_failure(&self, id: &SandboxId, reason: &FailReason) {
        let mut failures = self.failures.lock();
        if failures.len() == FAILURES_KEPT {
            failures.pop_front();
        }
        failures.push_back((id.clone(), reason.clone()));
    }

    /// The answer about a sandbox that is not in the registry.
    pub(super) fn missing(&self, id: &SandboxId) -> Lookup {
        let failures = self.failures.lock();
        let failure = failures.iter().rev().find(|(failed, _)| failed == id);
        failure.map_or(Lookup::Unknown, |(_, reason)| {
            Lookup::Failed(reason.clone())
        })
    }

    pub(crate) fn record(&self, id: &SandboxId) -> Option<Arc<SandboxRecord>> {
        self.by_id
            .read()
            .get(id)
            .map(|entry| entry.published.borrow().record.clone())
    }

    pub(crate) fn mailbox(&self, id: &SandboxId) -> Option<Mailbox> {
        self.by_id.read().get(id).map(|entry| entry.mailbox.clone())
    }

    /// The use of a sandbox.
    pub(super) fn activity(&self, id: &SandboxId) -> Option<Arc<SharedActivity>> {
        self.by_id
            .read()
            .get(id)
            .map(|entry| entry.activity.clone())
    }

    /// The published state of a sandbox, its mailbox, and the attempt to wake it.
    pub(crate) fn sleeper(
        &self,
        id: &SandboxId,
    ) -> Option<(watch::Receiver<Published>, Mailbox, Arc<Waking>)> {
        let entries = self.by_id.read();
        let entry = entries.get(id)?;
        let (published, mailbox) = (entry.published.clone(), entry.mailbox.clone());
        Some((published, mailbox, entry.waking.clone()))
    }

    /// Resolves when the sandbox has ended; at once if it does not exist.
    pub(crate) fn ended(&self, id: &SandboxId) -> impl Future<Output = ()> + use<> {
        let published = self
            .by_id
            .read()
            .get(id)
            .map(|entry| entry.published.clone());
        async move {
            if let Some(mut published) = published {
                // An error means that its task has ended.
                let _ = published.wait_for(|now| !now.record.state.is_live()).await;
            }
        }
    }

    /// The last state that a sandbox's task has published.
    pub(super) fn published(&self, id: &SandboxId) -> Option<watch::Receiver<Published>> {
        self.by_id
            .read()
            .get(id)
            .map(|entry| entry.published.clone())
    }

    /// The routes of all sandboxes that can be reached, or are parked.
    pub(super) fn routes(&self) -> Vec<Arc<Route>> {
        let entries = self.by_id.read();
        let routes = entries.values().filter_map(|entry| {
            let published = entry.published.borrow();
            published.route.clone().or_else(|| published.parked.clone())
        });
        routes.collect()
    }

    /// Reads the state that a sandbox's task published last.
    pub(super) fn read<T>(&self, id: &SandboxId, read: impl FnOnce(&Published) -> T) -> Option<T> {
        let entries = self.by_id.read();
        let entry = entries.get(id)?;
        let published = entry.published.borrow();
        Some(read(&published))
    }

    /// All records, in no order.
    pub(crate) fn records(&self) -> Vec<Arc<SandboxRecord>> {
        self.by_id
            .read()
            .values()
            .map(|entry| entry.published.borrow().record.clone())
            .collect()
    }

    /// The share of the machine that a team's awake sandboxes have together.
    pub(crate) fn load_of(&self, team: TeamId) -> Load {
        let entries = self.by_id.read();
        let loads = entries.values().filter_map(|entry| {
            let record = &entry.published.borrow().record;
            let counts = record.team == team && record.state.kind() != StateKind::Paused;
            counts.then(|| Load::kept(record))
        });
        loads.fold(Load::default(), Load::and)
    }

    /// How many sandboxes there are, and how many of them are a team's: those that are ending are
    /// counted, because what they use is still in use, and those that rest are not.
    pub(crate) fn count(&self, team: TeamId) -> (usize, usize) {
        let entries = self.by_id.read();
        let (mut all, mut of_team) = (0, 0);
        for entry in entries.values() {
            let record = &entry.published.borrow().record;
            if record.state.kind() != StateKind::Paused {
                all += 1;
                of_team += usize::from(record.team == team);
            }
        }
        (all, of_team)
    }
}
