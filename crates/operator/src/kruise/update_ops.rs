//! The controller of `SandboxUpdateOps`: gives many claimed sandboxes another template, some at a time.

mod plan;

use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{self, StreamExt};
use jiff::Timestamp;
use kube::core::{Selector, SelectorExt};
use kube::runtime::controller::Action;
use serde_json::{Value, json};
use shoal_crds::kruise::names::{condition, finalizer, label};
use shoal_crds::kruise::{
    Sandbox, SandboxTemplate, SandboxUpdateOps, SandboxUpdateOpsStatus, UpdateOpsPhase,
};
use shoal_crds::parts::PodTemplate;

use self::plan::{Candidate, Change, Plan};
use super::batches::AT_ONCE;
use crate::cache::{Cache, key};
use crate::cluster::Cluster;
use crate::conditions::{self, State, Truth};
use crate::failure::{Failure, is_conflict, is_missing};
use crate::write;

/// How often an update that waits for another one looks again.
const LOOK_AGAIN: Duration = Duration::from_secs(5);

/// Reasons of the condition `Accepted`.
const VALID: &str = "Valid";
const INVALID: &str = "Invalid";
const CONFLICT: &str = "AnotherUpdateIsActive";
const BLOCKED: &str = "TooManyFailures";

/// The group of the updates of a namespace.
pub(crate) fn update_ops_group(ops: &SandboxUpdateOps) -> Option<String> {
    ops.metadata.namespace.clone()
}

/// Reconciles updates.
pub(crate) struct UpdateOpsController {
    pub(crate) cluster: Cluster,
    pub(crate) updates: Arc<Cache<SandboxUpdateOps>>,
    pub(crate) sandboxes: Arc<Cache<Sandbox>>,
    pub(crate) templates: Arc<Cache<SandboxTemplate>>,
}

impl UpdateOpsController {
    /// Brings an update further.
    pub(crate) async fn reconcile(
        self: Arc<Self>,
        ops: Arc<SandboxUpdateOps>,
    ) -> Result<Action, Failure> {
        let ops = self.updates.get(&key(&*ops)).unwrap_or(ops);
        if ops.metadata.deletion_timestamp.is_some() {
            return self.end(&ops).await;
        }
        if is_finished(&ops) {
            return Ok(Action::await_change());
        }
        if let Some(why) = plan::refusal(&ops) {
            return self.refuse(&ops, &why).await;
        }
        if !has_finalizer(&ops) {
            self.finalize(&ops, true).await?;
        }
        if let Some(other) = self.active_before(&ops) {
            let why = format!("SandboxUpdateOps {other:?} of this namespace is not finished");
            let status = status(&ops, UpdateOpsPhase::Pending, &Plan::default());
            self.write(&ops, status, Truth::False, CONFLICT, &why)
                .await?;
            return Ok(Action::requeue(LOOK_AGAIN));
        }
        let Some(candidates) = self.candidates(&ops) else {
            return self.refuse(&ops, "spec.selector cannot be read").await;
        };
        let plan = match plan::plan(&ops, &candidates) {
            Ok(plan) => plan,
            Err(why) => return self.refuse(&ops, &why).await,
        };
        let changed = self.change(&plan.changes).await;
        self.tell(&ops, &plan).await?;
        // The next pass sees the changes. The watch reports changes of sandboxes that are being updated.
        Ok(match (changed?, plan.waiting) {
            (true, _) => Action::requeue(Duration::from_millis(1)),
            (false, 0) => Action::await_change(),
            (false, _) => Action::requeue(LOOK_AGAIN),
        })
    }

    /// The update that comes before this one: an older one that is not finished.
    fn active_before(&self, ops: &SandboxUpdateOps) -> Option<String> {
        let namespace = ops.metadata.namespace.as_deref().unwrap_or_default();
        let age = |ops: &SandboxUpdateOps| {
            let created = ops.metadata.creation_timestamp.as_ref();
            (created.map(|created| created.0), ops.metadata.name.clone())
        };
        let others = self.updates.group(namespace);
        let mut active = others.iter().filter(|other| {
            other.metadata.deletion_timestamp.is_none()
                && !is_finished(other)
                && age(other) < age(ops)
        });
        active.next()?.metadata.name.clone()
    }

    /// The sandboxes that the update concerns, by name. `None` when the selector cannot be read.
    fn candidates(&self, ops: &SandboxUpdateOps) -> Option<Vec<Candidate>> {
        let selector = Selector::try_from(ops.spec.selector.clone()).ok()?;
        let now = Timestamp::now();
        let all = self.known(ops);
        let empty = std::collections::BTreeMap::new();
        let mut candidates: Vec<Candidate> = all
            .into_iter()
            .filter(|sandbox| selector.matches(sandbox.metadata.labels.as_ref().unwrap_or(&empty)))
            .filter(|sandbox| plan::concerns(ops, sandbox, now))
            .filter_map(|sandbox| {
                let template = self.template(&sandbox)?;
                Some(Candidate { sandbox, template })
            })
            .collect();
        candidates
            .sort_by(|one, other| one.sandbox.metadata.name.cmp(&other.sandbox.metadata.name));
        Some(candidates)
    }

    /// The sandboxes of the namespace, with what this replica wrote itself.
    fn known(&self, ops: &SandboxUpdateOps) -> Vec<Arc<Sandbox>> {
        let all = self.sandboxes.all().into_iter();
        all.filter(|sandbox| sandbox.metadata.namespace == ops.metadata.namespace)
            .filter_map(|sandbox| self.sandboxes.get(&key(&*sandbox)))
            .collect()
    }

    fn template(&self, sandbox: &Sandbox) -> Option<PodTemplate> {
        if let Some(template) = &sandbox.spec.template {
            return Some(template.clone());
        }
        let namespace = sandbox.metadata.namespace.clone().unwrap_or_default();
        let name = sandbox.spec.template_ref.as_ref()?.name.clone();
        self.templates
            .get(&(namespace, name))?
            .spec
            .template
            .clone()
    }

    /// Writes the changes. Whether there were any.
    async fn change(&self, changes: &[Change]) -> Result<bool, Failure> {
        let written: Vec<Result<(), Failure>> = stream::iter(changes.to_vec())
            .map(|change| async move { self.patch(&change.sandbox, change.patch).await })
            .buffer_unordered(AT_ONCE)
            .collect()
            .await;
        written.into_iter().collect::<Result<(), Failure>>()?;
        Ok(!changes.is_empty())
    }

    /// Changes a sandbox, unless another client has. The next pass sees that, and tries again.
    async fn patch(&self, sandbox: &Sandbox, mut patch: Value) -> Result<(), Failure> {
        let (namespace, name) = key(sandbox);
        patch["metadata"]["uid"] = json!(sandbox.metadata.uid);
        patch["metadata"]["resourceVersion"] = json!(sandbox.metadata.resource_version);
        match self.cluster.patch(&namespace, &name, &patch).await {
            Ok(patched) => drop(self.sandboxes.learn(patched)),
            Err(error) if is_missing(&error) => {}
            Err(error) if is_conflict(&error) => {
                if let Some(newest) = self.cluster.get(&namespace, &name).await? {
                    self.sandboxes.learn(newest);
                }
            }
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    /// Says how far the update is.
    async fn tell(&self, ops: &SandboxUpdateOps, plan: &Plan) -> Result<(), Failure> {
        let phase = match (plan.is_finished(), plan.failed) {
            (true, 0) => UpdateOpsPhase::Completed,
            (true, _) => UpdateOpsPhase::Failed,
            (false, _) => UpdateOpsPhase::Updating,
        };
        let status = status(ops, phase, plan);
        if plan.is_blocked() {
            let (failed, waiting) = (plan.failed, plan.waiting);
            let why = format!(
                "{failed} failed, which is as many as may be unavailable: {waiting} more do not begin"
            );
            return self.write(ops, status, Truth::False, BLOCKED, &why).await;
        }
        self.write(ops, status, Truth::True, VALID, "").await
    }

    async fn refuse(&self, ops: &SandboxUpdateOps, why: &str) -> Result<Action, Failure> {
        let status = status(ops, UpdateOpsPhase::Failed, &Plan::default());
        self.write(ops, status, Truth::False, INVALID, why).await?;
        Ok(Action::await_change())
    }

    async fn write(
        &self,
        ops: &SandboxUpdateOps,
        mut status: SandboxUpdateOpsStatus,
        truth: Truth,
        reason: &str,
        message: &str,
    ) -> Result<(), Failure> {
        let state = State::new(condition::ACCEPTED, truth, reason, message);
        let generation = ops.metadata.generation;
        conditions::set(&mut status.conditions, &state, generation, Timestamp::now());
        let before = ops.status.as_ref();
        let known = before.and_then(|before| before.phase);
        let written = write::status(&self.cluster, &self.updates, ops, before, &status).await?;
        if written.is_none() || (status.phase == known && truth == Truth::True) {
            return Ok(());
        }
        let note = match message {
            "" => format!(
                "{} of {} sandboxes are updated, {} failed",
                status.updated_replicas, status.replicas, status.failed_replicas
            ),
            message => message.to_owned(),
        };
        let warns = truth == Truth::False || status.failed_replicas > 0;
        let reason = match status.phase.unwrap_or_default() {
            UpdateOpsPhase::Completed => "UpdateCompleted",
            UpdateOpsPhase::Failed => "UpdateFailed",
            UpdateOpsPhase::Updating => "Updating",
            UpdateOpsPhase::Pending => reason,
        };
        self.cluster.event(ops, warns, reason, note);
        Ok(())
    }

    /// Removes the marks of a deleted update, and then its finalizer.
    async fn end(&self, ops: &SandboxUpdateOps) -> Result<Action, Failure> {
        if !has_finalizer(ops) {
            return Ok(Action::await_change());
        }
        let (namespace, name) = key(ops);
        let marked = format!("{}={name}", label::UPDATE_OPS);
        // The watch may be behind a mark that was set a moment ago.
        let marked: Vec<Sandbox> = self.cluster.list(&namespace, &marked).await?;
        let changes: Vec<Change> = marked
            .into_iter()
            .map(|sandbox| Change {
                patch: plan::cleaned(&sandbox, false),
                sandbox: Arc::new(sandbox),
            })
            .collect();
        if self.change(&changes).await? {
            return Ok(Action::requeue(Duration::from_millis(1)));
        }
        self.finalize(ops, false).await?;
        Ok(Action::await_change())
    }

    async fn finalize(&self, ops: &SandboxUpdateOps, keep: bool) -> Result<(), Failure> {
        let mut finalizers = ops.metadata.finalizers.clone().unwrap_or_default();
        finalizers.retain(|known| known != finalizer::UPDATE_OPS);
        if keep {
            finalizers.push(finalizer::UPDATE_OPS.to_owned());
        }
        let (namespace, name) = key(ops);
        let meta = &ops.metadata;
        let patch = json!({"metadata": {
            "uid": meta.uid, "resourceVersion": meta.resource_version, "finalizers": finalizers,
        }});
        match self.cluster.patch(&namespace, &name, &patch).await {
            Ok(patched) => drop(self.updates.learn(patched)),
            Err(error) if is_missing(&error) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }
}

/// The update that has started with a sandbox.
pub(crate) fn update_of(sandbox: &Sandbox) -> Option<&str> {
    sandbox.label(label::UPDATE_OPS)
}

fn is_finished(ops: &SandboxUpdateOps) -> bool {
    let phase = ops.status.as_ref().and_then(|status| status.phase);
    matches!(
        phase,
        Some(UpdateOpsPhase::Completed | UpdateOpsPhase::Failed)
    )
}

fn has_finalizer(ops: &SandboxUpdateOps) -> bool {
    let mut finalizers = ops.metadata.finalizers.iter().flatten();
    finalizers.any(|known| known == finalizer::UPDATE_OPS)
}

fn status(ops: &SandboxUpdateOps, phase: UpdateOpsPhase, plan: &Plan) -> SandboxUpdateOpsStatus {
    let number = |count: usize| i32::try_from(count).unwrap_or(i32::MAX);
    SandboxUpdateOpsStatus {
        observed_generation: ops.metadata.generation.unwrap_or_default(),
        phase: Some(phase),
        replicas: number(plan.all),
        updated_replicas: number(plan.updated),
        failed_replicas: number(plan.failed),
        updating_replicas: number(plan.updating),
        conditions: ops
            .status
            .as_ref()
            .map(|status| status.conditions.clone())
            .unwrap_or_default(),
    }
}
