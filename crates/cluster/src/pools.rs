//! Warm pools: the SandboxSets, and the sandboxes that wait in them.

mod history;

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp as Time;
use shoal_core::BoxFuture;
use shoal_core::catalogue::EntryName;
use shoal_core::clock::{Clock, Timestamp};
use shoal_core::ports::pools::{MemberView, PoolFault, PoolSample, PoolView, Pools as PoolsPort};
use shoal_crds::kruise::names::{annotation, condition, reason};
use shoal_crds::kruise::{Sandbox, SandboxSet, SandboxState};

use crate::claim::pool_index;
use crate::identity::{key, sandbox_id};
use crate::sandboxes::Sandboxes;
use crate::watched::Watched;

pub(crate) use self::history::PoolHistory;

/// The pools of all namespaces.
pub(crate) struct Pools {
    pub(crate) sets: Arc<Watched<SandboxSet>>,
    pub(crate) sandboxes: Arc<Sandboxes>,
    pub(crate) clock: Arc<dyn Clock>,
}

impl Pools {
    fn waiting(&self, set: &SandboxSet) -> Vec<Arc<Sandbox>> {
        let (namespace, name) = key(&set.metadata);
        let index = pool_index(&namespace, &name);
        self.sandboxes.watched.find_all(&index)
    }

    /// Keeps samples of all pools. Never returns.
    pub(crate) async fn record(self: Arc<Self>) {
        loop {
            let history = &self.sandboxes.pools;
            history.keep(|pool| self.sets.get(pool).is_some());
            history.add(self.now());
            let next = self.clock.now() + history::EVERY;
            self.clock.sleep_until(next).await;
        }
    }

    /// All pools at this moment.
    fn now(&self) -> BTreeMap<String, PoolSample> {
        let at = self.clock.now();
        let views = self.sets.filter(|_| true);
        let views = views.iter().filter_map(|set| self.view(set));
        let samples = views.map(|view| {
            let sample = PoolSample {
                at,
                size: view.size,
                ready: view.ready,
                parked: view.parked,
                claimed: view.claimed,
                misses: view.misses,
            };
            (view.template.to_string(), sample)
        });
        history::sums(samples)
    }

    /// Names with dots, which the port does not have, are left out.
    fn view(&self, set: &SandboxSet) -> Option<PoolView> {
        let now = Time::now();
        let counts = self.sandboxes.pools.counts(&key(&set.metadata));
        let mut view = PoolView {
            template: EntryName::try_from(name_of(set).to_owned()).ok()?,
            size: usize::try_from(set.spec.replicas).unwrap_or_default(),
            ready: 0,
            parked: 0,
            starting: 0,
            claimed: counts.claimed,
            misses: counts.misses,
            claim_times: None,
            fault: None,
        };
        for sandbox in self.waiting(set) {
            match SandboxState::of(&sandbox, now).0 {
                SandboxState::Available => view.ready += 1,
                SandboxState::Creating => {
                    view.starting += 1;
                    view.fault = view.fault.or_else(|| fault(&sandbox));
                }
                _ => {}
            }
        }
        Some(view)
    }
}

/// The name of a pool: that of its entry, or of the set.
fn name_of(set: &SandboxSet) -> &str {
    let annotations = set.metadata.annotations.as_ref();
    let entry = annotations.and_then(|known| known.get(annotation::TEMPLATE_ENTRY));
    entry
        .or(set.metadata.name.as_ref())
        .map_or("", String::as_str)
}

/// Why a member does not become ready.
fn fault(sandbox: &Sandbox) -> Option<PoolFault> {
    let ready = sandbox.condition(condition::READY)?;
    let failed = [reason::START_CONTAINER_FAILED, reason::POD_CREATE_FAILED];
    failed.contains(&ready.reason.as_str()).then(|| PoolFault {
        at: Timestamp::from_unix_millis(ready.last_transition_time.0.as_millisecond()),
        message: ready.message.clone(),
    })
}

fn member(sandbox: &Sandbox) -> MemberView {
    let at = |millis: i64| Timestamp::from_unix_millis(millis);
    let created = sandbox.metadata.creation_timestamp.as_ref();
    let ready = sandbox.condition(condition::READY);
    let ready = ready.filter(|ready| ready.status == "True");
    MemberView {
        id: sandbox_id(sandbox),
        since: at(created.map_or(0, |time| time.0.as_millisecond())),
        ready: ready.map(|ready| at(ready.last_transition_time.0.as_millisecond())),
        parked: false,
    }
}

impl PoolsPort for Pools {
    fn list(&self) -> BoxFuture<'_, Vec<PoolView>> {
        Box::pin(async move {
            let mut sets = self.sets.filter(|_| true);
            sets.sort_by_key(|set| key(&set.metadata));
            sets.iter().filter_map(|set| self.view(set)).collect()
        })
    }

    fn members<'a>(&'a self, template: &'a str) -> BoxFuture<'a, Option<Vec<MemberView>>> {
        Box::pin(async move {
            let named = |set: &SandboxSet| name_of(set) == template;
            let sets = self.sets.filter(named);
            if sets.is_empty() {
                return None;
            }
            let waiting = sets.iter().flat_map(|set| self.waiting(set));
            let mut members: Vec<_> = waiting.map(|sandbox| member(&sandbox)).collect();
            members.sort_by_key(|member| (member.ready.is_none(), member.since));
            Some(members)
        })
    }

    fn history<'a>(&'a self, template: &'a str) -> BoxFuture<'a, Option<Vec<PoolSample>>> {
        let now = self.now().remove(template);
        let seen = now.map(|now| {
            let past = self.sandboxes.pools.of(template);
            past.into_iter().chain([now]).collect()
        });
        Box::pin(async move { seen })
    }

    fn remove<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Option<usize>> {
        Box::pin(async move {
            let named = |set: &SandboxSet| name_of(set) == name;
            let sets = self.sets.filter(named);
            let mut doomed: Vec<_> = sets.iter().flat_map(|set| self.waiting(set)).collect();
            if sets.is_empty() {
                let waits =
                    |sandbox: &Sandbox| sandbox.is_pooled() && sandbox_id(sandbox).as_str() == name;
                doomed = self.sandboxes.watched.filter(waits);
                if doomed.is_empty() {
                    return None;
                }
            }
            let mut removed = 0;
            for sandbox in doomed {
                // One that is claimed meanwhile has another resource version, and stays.
                match self.sandboxes.delete_unchanged(&sandbox).await {
                    Ok(deleted) => removed += usize::from(deleted),
                    Err(error) => tracing::warn!(%error, "cannot remove a member of a pool"),
                }
            }
            Some(removed)
        })
    }
}
