//! The sandboxes there are, as the rest of the program sees them.
//!
//! Written by each sandbox's own task, read by everybody: a reader copies a pointer and never
//! waits for an operation.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::RwLock;
use shoal_core::BoxFuture;
use shoal_core::catalog::{Catalog, Lookup, Route};
use shoal_core::id::{SandboxId, TeamId};
use shoal_core::sandbox::SandboxRecord;
use tokio::sync::{mpsc, watch};

use crate::engine::Shared;
use crate::sandbox::Order;

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
    mailbox: mpsc::Sender<Order>,
}

/// Every sandbox that has a task.
#[derive(Debug, Default)]
pub(crate) struct Entries(RwLock<HashMap<SandboxId, Entry>>);

impl Entries {
    pub(crate) fn insert(
        &self,
        id: SandboxId,
        published: watch::Receiver<Published>,
        mailbox: mpsc::Sender<Order>,
    ) {
        self.0.write().insert(id, Entry { published, mailbox });
    }

    pub(crate) fn remove(&self, id: &SandboxId) {
        self.0.write().remove(id);
    }

    pub(crate) fn record(&self, id: &SandboxId) -> Option<Arc<SandboxRecord>> {
        self.0
            .read()
            .get(id)
            .map(|entry| entry.published.borrow().record.clone())
    }

    pub(crate) fn mailbox(&self, id: &SandboxId) -> Option<mpsc::Sender<Order>> {
        self.0.read().get(id).map(|entry| entry.mailbox.clone())
    }

    /// All records, in no order.
    pub(crate) fn records(&self) -> Vec<Arc<SandboxRecord>> {
        self.0
            .read()
            .values()
            .map(|entry| entry.published.borrow().record.clone())
            .collect()
    }

    /// How many sandboxes there are, and how many of them are a team's: those that are ending are
    /// counted, because what they use is still in use.
    pub(crate) fn count(&self, team: TeamId) -> (usize, usize) {
        let entries = self.0.read();
        let of_team = entries
            .values()
            .filter(|entry| entry.published.borrow().record.team == team)
            .count();
        (entries.len(), of_team)
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
        let entries = self.0.entries.0.read();
        let Some(entry) = entries.get(id) else {
            return Lookup::Unknown;
        };
        let published = entry.published.borrow();
        match &published.route {
            Some(route) => Lookup::Running(route.clone()),
            None if published.record.state.is_live()
                && published.record.state.timer().is_some() =>
            {
                Lookup::Busy
            }
            None => Lookup::Unknown,
        }
    }

    fn routes(&self) -> Vec<Arc<Route>> {
        let entries = self.0.entries.0.read();
        entries
            .values()
            .filter_map(|entry| entry.published.borrow().route.clone())
            .collect()
    }

    fn ended(&self, route: &Route) -> BoxFuture<'static, ()> {
        let entries = self.0.entries.0.read();
        let published = entries
            .get(&route.sandbox)
            .map(|entry| entry.published.clone());
        let execution = route.execution;
        Box::pin(async move {
            if let Some(mut published) = published {
                let over = |now: &Published| {
                    now.route
                        .as_ref()
                        .is_none_or(|route| route.execution != execution)
                };
                // An error means that the task has ended, and with it the run.
                let _ = published.wait_for(over).await;
            }
        })
    }
}
