//! The controller of `SandboxWarmPool`: keeps so many sandboxes ready.
//!
//! The cache shows what this replica has written before the watch does, so a pass counts the members that
//! the pass before has created. A create whose answer was lost makes one member too many, which the next
//! pass deletes.

mod ages;
mod member;
mod plan;
mod refill;

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::stream::{self, StreamExt};
use kube::runtime::controller::Action;
use serde_json::json;
use shoal_crds::convert::written_in_v1alpha1;
use shoal_crds::hash;
use shoal_crds::v1beta1::{Sandbox, SandboxTemplate, SandboxWarmPool};

pub(crate) use self::ages::Ages;
pub(crate) use self::member::generated_name;
pub(crate) use self::plan::is_ready;
pub(crate) use self::refill::Refill;

use crate::adoptions::Adoptions;
use crate::blueprint::{Blueprint, controller_ref, manifest};
use crate::cache::Cache;
use crate::cluster::Cluster;
use crate::failure::{Failure, is_missing};
use crate::held::Paced;
use crate::{owner, patch};

/// How many members are created at once. Claims share the API server with them.
const AT_ONCE: usize = 16;

/// Reconciles pools.
pub(crate) struct PoolController {
    pub(crate) cluster: Cluster,
    pub(crate) pools: Arc<Cache<SandboxWarmPool>>,
    pub(crate) templates: Arc<Cache<SandboxTemplate>>,
    pub(crate) sandboxes: Arc<Cache<Sandbox>>,
    /// How long a member may take to become ready.
    pub(crate) grace: Duration,
    /// How many members one pass creates.
    pub(crate) batch: usize,
    /// Whether the cluster autoscaler may evict waiting members.
    pub(crate) evictable: bool,
    pub(crate) refill: Refill,
    pub(crate) ages: Ages,
    pub(crate) paced: Paced,
    pub(crate) adoptions: Adoptions,
}

/// The group of the cache that holds the sandboxes with a pool's label.
pub(crate) fn members_group(namespace: &str, pool_hash: &str) -> String {
    format!("pool {namespace}/{pool_hash}")
}

impl PoolController {
    /// Brings a pool closer to its size.
    pub(crate) async fn reconcile(
        self: Arc<Self>,
        pool: Arc<SandboxWarmPool>,
    ) -> Result<Action, Failure> {
        let (namespace, name) = crate::cache::key(&*pool);
        let pool = self
            .pools
            .get(&(namespace.clone(), name.clone()))
            .unwrap_or(pool);
        if pool.metadata.deletion_timestamp.is_some() {
            return Ok(Action::await_change());
        }
        let template = self.templates.get(&(
            namespace.clone(),
            pool.spec.sandbox_template_ref.name.clone(),
        ));
        let group = members_group(&namespace, &hash::of_name(&name));
        let labelled = self.sandboxes.group(&group);
        let now = Instant::now();
        let plan = plan::plan(
            &pool,
            template.as_deref(),
            &labelled,
            self.grace,
            |member| self.ages.of(member, self.grace, now),
        );
        let mut failures = Vec::new();
        for orphan in &plan.adopt {
            failures.extend(self.adopt(&pool, orphan).await.err());
        }
        let (this, of) = (&self, namespace.as_str());
        let deleted = stream::iter(plan.delete.clone())
            .map(|member| async move { this.delete(of, &member).await })
            .buffer_unordered(AT_ONCE)
            .filter_map(|deleted| std::future::ready(deleted.err()))
            .collect::<Vec<_>>();
        failures.extend(deleted.await);
        let mut replicas = plan.replicas;
        let uid = pool.metadata.uid.as_deref().unwrap_or_default();
        let wanted = plan.create.min(self.batch);
        let claims_wait = plan.ready > 0 && self.adoptions.are_under_way(&namespace, &name);
        let allowed = self.refill.allow(uid, replicas, wanted, claims_wait, now);
        let count = allowed.count;
        if let Some(template) = template.as_deref().filter(|_| count > 0) {
            let (created, failure) = self.create(&pool, template, count).await;
            self.refill.created(uid, created);
            replicas += created;
            failures.extend(failure);
        }
        let plan = plan::Plan { replicas, ..plan };
        let held = self.write_status(&pool, &plan, now).await?;
        if let Some(failure) = Failure::of(failures) {
            return Err(failure);
        }
        let more = (plan.create > count).then(|| allowed.wait.unwrap_or(Duration::from_millis(1)));
        let waits = [held, plan.look_again, more].into_iter().flatten();
        Ok(waits
            .min()
            .map_or_else(Action::await_change, Action::requeue))
    }

    /// Creates members: one first, then twice as many each time. A cluster that refuses the first is not
    /// asked for hundreds.
    async fn create(
        &self,
        pool: &SandboxWarmPool,
        template: &SandboxTemplate,
        count: usize,
    ) -> (usize, Option<Failure>) {
        let blueprint = Blueprint::of(template);
        let namespace = pool.metadata.namespace.as_deref().unwrap_or_default();
        let mut created = 0;
        let mut batch = 1;
        while created < count {
            let next = batch.min(count - created);
            let results: Vec<Result<(), Failure>> = stream::iter(0..next)
                .map(|_| async {
                    let member = member::sandbox(pool, &blueprint, self.evictable)?;
                    let member = manifest(member, written_in_v1alpha1(&pool.metadata))?;
                    self.sandboxes
                        .learn(self.cluster.create(namespace, &member).await?);
                    Ok(())
                })
                .buffer_unordered(AT_ONCE)
                .collect()
                .await;
            created += results.iter().filter(|result| result.is_ok()).count();
            if let Some(failure) = results.into_iter().find_map(Result::err) {
                return (created, Some(failure));
            }
            batch *= 2;
        }
        (created, None)
    }

    async fn adopt(&self, pool: &SandboxWarmPool, orphan: &Sandbox) -> Result<(), Failure> {
        let (namespace, name) = crate::cache::key(orphan);
        let patch = json!({"metadata": {
            "uid": orphan.metadata.uid,
            "resourceVersion": orphan.metadata.resource_version,
            "ownerReferences": owner::with_owner(&orphan.metadata, controller_ref(pool)),
        }});
        self.sandboxes
            .learn(self.cluster.patch(&namespace, &name, &patch).await?);
        Ok(())
    }

    async fn delete(&self, namespace: &str, member: &Sandbox) -> Result<(), Failure> {
        let name = member.metadata.name.as_deref().unwrap_or_default();
        match self
            .cluster
            .delete(namespace, name, member.metadata.uid.as_deref(), false)
            .await
        {
            Ok(Some(terminating)) => {
                self.sandboxes.learn(terminating);
                Ok(())
            }
            Ok(None) => {
                self.sandboxes
                    .forget(&(namespace.to_owned(), name.to_owned()));
                Ok(())
            }
            Err(error) if is_missing(&error) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Writes the status if it differs, at most once in a while. The result is how long it waits.
    async fn write_status(
        &self,
        pool: &SandboxWarmPool,
        plan: &plan::Plan,
        now: Instant,
    ) -> Result<Option<Duration>, Failure> {
        let before = serde_json::to_value(pool.status.clone().unwrap_or_default())?;
        let before = if pool.status.is_some() {
            before
        } else {
            json!({})
        };
        let Some(change) = patch::between(&before, &plan::status(pool, plan)) else {
            return Ok(None);
        };
        let uid = pool.metadata.uid.as_deref().unwrap_or_default();
        if let Some(wait) = self.paced.wait(uid, now) {
            return Ok(Some(wait));
        }
        let (namespace, name) = crate::cache::key(pool);
        match self
            .cluster
            .patch_status(&namespace, &name, &json!({"status": change}))
            .await
        {
            Ok(patched) => drop(self.pools.learn(patched)),
            Err(error) if is_missing(&error) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(None)
    }
}
