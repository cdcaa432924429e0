//! The controller of `SandboxSet`: keeps so many unclaimed sandboxes, of the newest revision.
//!
//! The cache shows what this replica has written before the watch does, so a pass counts the sandboxes that the
//! pass before has created. A create whose answer was lost makes one too many, which the next pass deletes.

mod backoff;
mod materialize;
mod member;
mod plan;

use std::sync::Arc;

use futures_util::stream::{self, StreamExt};
use jiff::Timestamp;
use kube::runtime::controller::Action;
use serde_json::json;
use shoal_crds::kruise::names::{SCALE_DOWN_LOCK, annotation};
use shoal_crds::kruise::{Sandbox, SandboxSet, SandboxSetStatus, SandboxTemplate};

use self::backoff::Backoff;
use self::plan::Plan;
pub(super) use self::plan::resolve;
use super::NoInternet;
use super::batches::{self, AT_ONCE};
use crate::cache::{Cache, key};
use crate::cluster::Cluster;
use crate::failure::{Failure, is_conflict, is_missing};
use crate::measures;
use crate::write;

/// Reconciles pools.
pub(crate) struct SandboxSetController {
    cluster: Cluster,
    sets: Arc<Cache<SandboxSet>>,
    templates: Arc<Cache<SandboxTemplate>>,
    sandboxes: Arc<Cache<Sandbox>>,
    /// How many sandboxes the first batch of a pass creates.
    initial_batch: usize,
    backoff: Backoff,
    internet: NoInternet,
}

impl SandboxSetController {
    /// A controller of these sets. The first batch of a pass creates `initial_batch` sandboxes.
    pub(crate) fn new(
        cluster: Cluster,
        sets: Arc<Cache<SandboxSet>>,
        templates: Arc<Cache<SandboxTemplate>>,
        sandboxes: Arc<Cache<Sandbox>>,
        initial_batch: usize,
        internet: NoInternet,
    ) -> Self {
        Self {
            cluster,
            sets,
            templates,
            sandboxes,
            initial_batch,
            backoff: Backoff::default(),
            internet,
        }
    }

    /// Brings a pool closer to its size and revision.
    pub(crate) async fn reconcile(
        self: Arc<Self>,
        set: Arc<SandboxSet>,
    ) -> Result<Action, Failure> {
        let set = self.sets.get(&key(&*set)).unwrap_or(set);
        let Some(uid) = set.metadata.uid.as_deref() else {
            return Ok(Action::await_change());
        };
        if set.metadata.deletion_timestamp.is_some() {
            return Ok(Action::await_change());
        }
        // Before any sandbox that it closes the internet to.
        let namespace = set.metadata.namespace.as_deref().unwrap_or_default();
        if let Some(refused) = self.internet.keep(namespace).await? {
            self.cluster
                .event(&*set, true, "NetworkPolicyRefused", refused);
        }
        let materialized = self.materialize(&set, uid).await?;
        let template = materialized.name;
        let revision = member::revision(&set.spec);
        let owned = self.sandboxes.owned_by(uid);
        let now = Timestamp::now();
        let mut plan = plan::plan(&set, &revision, &owned, now);
        let failed = plan.dead.iter().filter(|dead| plan::is_of(dead, &revision));
        match failed.count() {
            0 => {}
            failed => self.backoff.failed(uid, &revision, failed, now),
        }
        // A template whose sandboxes fail would make one after another.
        let held = self.backoff.held(uid, &revision, now);
        let held = held.filter(|_| plan.create > 0);
        plan.create -= held.map_or(0, |(count, _)| count.min(plan.create));
        let mut failures = self.delete(&set, &plan).await;
        let (created, failure) = self.create(&set, &revision, plan.create).await;
        failures.extend(failure);
        let status = plan.status(&set, revision, template, created);
        let before = set.status.as_ref();
        write::status(&self.cluster, &self.sets, &*set, before, &status).await?;
        if let Some(failure) = Failure::of(failures) {
            return Err(failure);
        }
        let waits = [held.map(|(_, wait)| wait), materialized.again];
        let wait = waits.into_iter().flatten().min();
        Ok(wait.map_or_else(Action::await_change, Action::requeue))
    }

    /// Deletes the sandboxes that the plan lists. Those that a claim may take are locked first.
    async fn delete(&self, set: &SandboxSet, plan: &Plan) -> Vec<Failure> {
        let mut failures = Vec::new();
        for (victims, lock, reason) in [
            (&plan.dead, false, "FailedSandboxDeleted"),
            (&plan.locked, false, "SandboxScaledDown"),
            (&plan.surplus, true, "SandboxScaledDown"),
            (&plan.outdated, true, "RollingUpdate"),
        ] {
            let results: Vec<Result<bool, Failure>> = stream::iter(victims.clone())
                .map(|victim| async move { self.delete_one(&victim, lock).await })
                .buffer_unordered(AT_ONCE)
                .collect()
                .await;
            let deleted = results
                .iter()
                .filter(|done| matches!(done, Ok(true)))
                .count();
            if deleted > 0 {
                let failed = reason == "FailedSandboxDeleted";
                let mut note = format!("deleted {deleted} sandboxes");
                if failed {
                    note += " that failed; while they do, others are created less and less often";
                }
                self.cluster.event(set, failed, reason, note);
            }
            failures.extend(results.into_iter().filter_map(Result::err));
        }
        failures
    }

    /// Whether the sandbox was deleted. One that was changed meanwhile may be claimed, and stays.
    async fn delete_one(&self, victim: &Sandbox, lock: bool) -> Result<bool, Failure> {
        let locked;
        let mut victim = victim;
        if lock {
            let (namespace, name) = key(victim);
            let patch = json!({"metadata": {
                "resourceVersion": victim.metadata.resource_version,
                "annotations": {annotation::LOCK: SCALE_DOWN_LOCK},
            }});
            match self
                .cluster
                .patch::<Sandbox>(&namespace, &name, &patch)
                .await
            {
                Ok(patched) => {
                    locked = self.sandboxes.learn(patched);
                    victim = &locked;
                }
                Err(error) if is_conflict(&error) || is_missing(&error) => return Ok(false),
                Err(error) => return Err(error.into()),
            }
        }
        match write::delete(&self.cluster, &self.sandboxes, victim, None, !lock).await {
            Ok(()) => Ok(true),
            Err(Failure::Api(error)) if is_conflict(&error) => Ok(false),
            Err(failure) => Err(failure),
        }
    }

    async fn create(
        &self,
        set: &SandboxSet,
        revision: &str,
        count: usize,
    ) -> (usize, Option<Failure>) {
        let namespace = set.metadata.namespace.as_deref().unwrap_or_default();
        let created = batches::grow(count, self.initial_batch, || async {
            let manifest = member::sandbox(set, revision)?;
            let made = self.cluster.create(namespace, &manifest).await?;
            self.sandboxes.learn(made);
            Ok(true)
        })
        .await;
        if created.count > 0 {
            let count = u64::try_from(created.count).unwrap_or(u64::MAX);
            measures::created(set, count);
            let note = format!("created {} sandboxes", created.count);
            self.cluster.event(set, false, "SandboxCreated", note);
        }
        if let Some(failure) = &created.failure {
            let note = failure.to_string();
            self.cluster.event(set, true, "CreateSandboxFailed", note);
        }
        (created.count, created.failure)
    }
}

impl Plan {
    /// The status after the pass.
    fn status(
        &self,
        set: &SandboxSet,
        revision: String,
        template: String,
        created: usize,
    ) -> SandboxSetStatus {
        let count = |count: usize| i32::try_from(count).unwrap_or(i32::MAX);
        SandboxSetStatus {
            observed_generation: set.metadata.generation.unwrap_or_default(),
            replicas: count(self.replicas + created),
            available_replicas: count(self.available),
            update_revision: revision,
            current_revision: template,
            updated_replicas: count(self.updated + created),
            updated_available_replicas: count(self.updated_available),
            conditions: set
                .status
                .as_ref()
                .map(|status| status.conditions.clone())
                .unwrap_or_default(),
            selector: member::selector(set),
        }
    }
}
