//! The sandboxes there are, as the rest of the program sees them.
//!
//! Written by each sandbox's own task, read by everybody: a reader copies a pointer and never
//! waits for an operation.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};
use shoal_core::BoxFuture;
use shoal_core::catalog::{
    Admitted, Catalog, Lookup, NotAdmitted, NotWoken, Proof, Route, Sleeper,
};
use shoal_core::id::{KeyId, SandboxId, TeamId};
use shoal_core::sandbox::SandboxRecord;
use shoal_core::state::{FailReason, StateKind};
use tokio::sync::watch;

use crate::access::KeyLifetime;
use crate::engine::{Engine, Shared};
use crate::room::Load;
use crate::sandbox::Mailbox;
use crate::wake::Waking;

/// What a sandbox's task has said of it last.
#[derive(Debug, Clone)]
pub(crate) struct Published {
    pub(crate) record: Arc<SandboxRecord>,
    /// How to reach it, while it runs.
    pub(crate) route: Option<Arc<Route>>,
}

#[derive(Debug)]
struct Entry {
    published: watch::Receiver<Published>,
    mailbox: Mailbox,
    waking: Arc<Waking>,
}

/// Of how many sandboxes that stopped is remembered why.
const FAILURES_KEPT: usize = 1000;

/// Every sandbox that has a task.
#[derive(Debug, Default)]
pub(crate) struct Entries {
    by_id: RwLock<HashMap<SandboxId, Entry>>,
    /// Those that stopped, the last at the end.
    failures: Mutex<VecDeque<(SandboxId, FailReason)>>,
}

impl Entries {
    pub(crate) fn insert(
        &self,
        id: SandboxId,
        published: watch::Receiver<Published>,
        mailbox: Mailbox,
    ) {
        let entry = Entry {
            published,
            mailbox,
            waking: Arc::default(),
        };
        self.by_id.write().insert(id, entry);
    }

    pub(crate) fn remove(&self, id: &SandboxId) {
        self.by_id.write().remove(id);
    }

    /// Remembers why a sandbox stopped, for whoever asks for it later.
    pub(crate) fn note_failure(&self, id: &SandboxId, reason: &FailReason) {
        let mut failures = self.failures.lock();
        if failures.len() == FAILURES_KEPT {
            failures.pop_front();
        }
        failures.push_back((id.clone(), reason.clone()));
    }

    /// What is said of a sandbox that is not there.
    fn missing(&self, id: &SandboxId) -> Lookup {
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

    /// What is said of a sandbox, how it is told something, and the attempt to wake it.
    pub(crate) fn sleeper(
        &self,
        id: &SandboxId,
    ) -> Option<(watch::Receiver<Published>, Mailbox, Arc<Waking>)> {
        let entries = self.by_id.read();
        let entry = entries.get(id)?;
        let (published, mailbox) = (entry.published.clone(), entry.mailbox.clone());
        Some((published, mailbox, entry.waking.clone()))
    }

    /// Ends when the sandbox is no longer one that lives; at once when there is none.
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

    /// All records, in no order.
    pub(crate) fn records(&self) -> Vec<Arc<SandboxRecord>> {
        self.by_id
            .read()
            .values()
            .map(|entry| entry.published.borrow().record.clone())
            .collect()
    }

    /// What the sandboxes of a team have of the machine together that do not rest.
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

/// Whether traffic wakes a sandbox that rests, or is on its way to run again. One of which only the
/// disk was kept is not woken: it would boot, and nothing would listen (E2B's rule).
fn can_wake(record: &SandboxRecord) -> bool {
    let has_memory = record
        .saved
        .as_ref()
        .is_some_and(|saved| saved.contents.has_memory());
    let rests = match record.state.kind() {
        StateKind::Paused | StateKind::Resuming => has_memory,
        // What is kept of it is known when it is; whoever asks waits for that.
        StateKind::Pausing => true,
        _ => false,
    };
    rests && record.spec.lifecycle.auto_resume
}

impl Engine {
    async fn admit(&self, name: &str, proof: Proof) -> Result<Admitted, NotAdmitted> {
        let (record, key) = match proof {
            Proof::Key(key) => {
                let principal = self.authenticate(&key).await;
                let principal = principal.map_err(|e| NotAdmitted::Failed(e.to_string()))?;
                let principal = principal.ok_or(NotAdmitted::Unproven)?;
                let found = self.find(&principal, name);
                let record = found.map_err(|_| NotAdmitted::NotFound)?.1;
                (record, Some(principal.key))
            }
            Proof::Traffic(offered) => {
                let id = SandboxId::from_wire(name).map_err(|_| NotAdmitted::Unproven)?;
                let record = self.shared.entries.record(&id);
                let record = record.filter(|record| record.is_anybodys());
                let record = record.ok_or(NotAdmitted::Unproven)?;
                let token = self.shared.access.traffic_access_token(&record);
                if !token.is_some_and(|token| token.matches(&offered)) {
                    return Err(NotAdmitted::Unproven);
                }
                (record, None)
            }
        };
        Ok(Admitted {
            sandbox: record.id.clone(),
            port: record.default_port(),
            key,
        })
    }
}

/// The data path's view.
#[derive(Clone)]
pub struct EngineCatalog(Arc<Shared>);

impl EngineCatalog {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self(shared)
    }
}

impl Catalog for EngineCatalog {
    fn lookup(&self, id: &SandboxId) -> Lookup {
        let entries = self.0.entries.by_id.read();
        let Some(entry) = entries.get(id) else {
            return self.0.entries.missing(id);
        };
        let published = entry.published.borrow();
        match &published.route {
            Some(route) => Lookup::Running(route.clone()),
            None if can_wake(&published.record) => {
                let record = &published.record;
                Lookup::Asleep(Sleeper {
                    envd_access_token: self.0.access.envd_access_token(record),
                    traffic_access_token: self.0.access.traffic_access_token(record),
                })
            }
            // A sandbox that is being paused counts as paused, as with E2B.
            None if matches!(
                published.record.state.kind(),
                StateKind::Pausing | StateKind::Paused
            ) =>
            {
                Lookup::Paused
            }
            None if published.record.state.is_live()
                && published.record.state.timer().is_some() =>
            {
                Lookup::Busy
            }
            None => self.0.entries.missing(id),
        }
    }

    fn wake(&self, id: &SandboxId) -> BoxFuture<'static, Result<Arc<Route>, NotWoken>> {
        let (shared, id) = (self.0.clone(), id.clone());
        Box::pin(async move { shared.wake(&id).await })
    }

    fn admit(&self, name: &str, proof: Proof) -> BoxFuture<'static, Result<Admitted, NotAdmitted>> {
        let engine = Engine {
            shared: self.0.clone(),
        };
        let name = name.to_owned();
        Box::pin(async move { engine.admit(&name, proof).await })
    }

    fn routes(&self) -> Vec<Arc<Route>> {
        let entries = self.0.entries.by_id.read();
        entries
            .values()
            .filter_map(|entry| entry.published.borrow().route.clone())
            .collect()
    }

    fn key_deleted(&self, key: KeyId) -> BoxFuture<'static, ()> {
        let mut lifetime = KeyLifetime::of(&self.0.access, key);
        Box::pin(async move { lifetime.ended().await })
    }

    fn ended(&self, route: &Route) -> BoxFuture<'static, ()> {
        let entries = self.0.entries.by_id.read();
        let published = entries
            .get(&route.sandbox)
            .map(|entry| entry.published.clone());
        let route = route.clone();
        Box::pin(async move {
            if let Some(mut published) = published {
                // Other tokens end what the old ones have opened.
                let over = |now: &Published| {
                    now.route.as_ref().is_none_or(|now| {
                        now.execution != route.execution
                            || now.envd_access_token != route.envd_access_token
                            || now.traffic_access_token != route.traffic_access_token
                    })
                };
                // An error means that the task has ended, and with it the run.
                let _ = published.wait_for(over).await;
            }
        })
    }
}
