//! The controller of `Sandbox`: pod, volume claims, times, pause and resume, updates in place, and status.

mod act;
mod children;
mod hook;
mod initialize;
mod inplace;
mod kept;
mod phase;
mod pod;
mod recycle;
mod runtime;
mod startup;
mod timers;

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use kube::runtime::controller::Action;
use serde_json::{Value, json};
use shoal_crds::kruise::names::{annotation, condition, finalizer, reason};
use shoal_crds::kruise::{Sandbox, SandboxPhase, SandboxStatus, SandboxTemplate, revision};

use self::phase::{Input, Next};
use self::pod::Blueprint;
pub(crate) use self::runtime::RuntimeInjection;
use self::timers::Due;
use super::Pod;
use super::slim::ReplicaSet;
use crate::cache::{Cache, key};
use crate::cluster::Cluster;
use crate::failure::{Failure, is_missing};
use crate::held::Held;
use crate::saves::{self, Saves};
use crate::write;

/// A reconcile that needs more steps continues later.
const MOST_STEPS: usize = 8;
/// When a pod of another object has the name, no event reports its end.
const LOOK_AGAIN: Duration = Duration::from_secs(10);

/// Reconciles sandboxes.
pub(crate) struct SandboxController {
    pub(crate) cluster: Cluster,
    pub(crate) sandboxes: Arc<Cache<Sandbox>>,
    pub(crate) templates: Arc<Cache<SandboxTemplate>>,
    pub(crate) pods: Arc<Cache<Pod>>,
    pub(crate) saves: Saves,
    pub(crate) replica_sets: Arc<Cache<ReplicaSet>>,
    pub(crate) injection: RuntimeInjection,
    /// Whether resources of running pods change.
    pub(crate) resizes: bool,
    pub(crate) held: Held,
}

impl SandboxController {
    /// Brings a sandbox closer to its specification.
    pub(crate) async fn reconcile(
        self: Arc<Self>,
        sandbox: Arc<Sandbox>,
    ) -> Result<Action, Failure> {
        let key = key(&*sandbox);
        let mut foreign = None;
        for _ in 0..MOST_STEPS {
            let Some(sandbox) = self.sandboxes.get(&key) else {
                return Ok(Action::await_change());
            };
            if sandbox.metadata.deletion_timestamp.is_some() {
                return self.end(&sandbox).await;
            }
            let left = match timers::due(&sandbox, Timestamp::now()) {
                Due::Delete => {
                    write::delete(&self.cluster, &self.sandboxes, &*sandbox, None, true).await?;
                    return Ok(Action::await_change());
                }
                Due::Pause { until } => {
                    let patch = timers::pause(&sandbox, until);
                    self.patch(&sandbox, &patch).await?;
                    continue;
                }
                Due::Later(left) => Some(left),
                Due::Nothing => None,
            };
            match self.step(&sandbox, &mut foreign).await? {
                Step::Again => {}
                Step::Rest(wait) => {
                    let wait = [left, wait].into_iter().flatten().min();
                    return Ok(wait.map_or_else(Action::await_change, Action::requeue));
                }
            }
        }
        Ok(Action::requeue(Duration::from_millis(1)))
    }

    /// One step through the phases. `foreign` is the owner of a pod that has the sandbox's name.
    async fn step(
        &self,
        sandbox: &Arc<Sandbox>,
        foreign: &mut Option<String>,
    ) -> Result<Step, Failure> {
        let finished = matches!(
            phase_of(sandbox),
            SandboxPhase::Succeeded | SandboxPhase::Failed
        );
        if finished {
            // Its user may be done with it all the same.
            let recycled = match self.blueprint(sandbox) {
                Ok(blueprint) => self.recycle(sandbox, &blueprint).await?,
                Err(_) => None,
            };
            return Ok(recycled.unwrap_or(Step::Rest(None)));
        }
        if sandbox.spec.template.is_none() && sandbox.spec.template_ref.is_none() {
            return Ok(Step::Rest(None));
        }
        let blueprint = match self.blueprint(sandbox) {
            Ok(blueprint) => blueprint,
            Err(message) => return self.refuse(sandbox, &message).await,
        };
        if let Some(step) = self.recycle(sandbox, &blueprint).await? {
            return Ok(step);
        }
        if self.mark_immutable_part(sandbox).await? {
            return Ok(Step::Again);
        }
        if sandbox.is_kept() {
            return self.step_kept(sandbox, &blueprint, foreign).await;
        }
        let pod = self.pod(sandbox).await?;
        let seen = children::seen(sandbox, pod.as_ref(), foreign);
        let next = self.next(sandbox, &blueprint, seen);
        self.act(sandbox, &blueprint, pod.as_deref(), next, foreign)
            .await
    }

    /// The message of the phase, and its event.
    fn next(&self, sandbox: &Arc<Sandbox>, blueprint: &Blueprint, pod: phase::Seen<'_>) -> Next {
        let uid = sandbox.metadata.uid.as_deref().unwrap_or_default();
        let own = self.saves.of(uid);
        let saved = saves::complete(&own).filter(|_| phase_of(sandbox) == SandboxPhase::Resuming);
        let pod_uid = sandbox
            .status
            .as_ref()
            .map(|status| &status.pod_info.pod_uid);
        let saved = saved.or_else(|| saves::of_pod(&own, pod_uid?));
        let next = phase::next(&Input {
            sandbox,
            blueprint,
            pod,
            saved: saved.as_deref(),
            resizes: self.resizes,
            now: Timestamp::now(),
        });
        if let Some((warning, reason, note)) = &next.event {
            self.cluster
                .event(&**sandbox, *warning, reason, note.clone());
        }
        next
    }

    /// The template of the sandbox, or why there is none.
    fn blueprint(&self, sandbox: &Sandbox) -> Result<Blueprint, String> {
        if let Some(blueprint) = Blueprint::inline(sandbox) {
            return Ok(blueprint);
        }
        let reference = sandbox.spec.template_ref.as_ref();
        let name = reference.map_or("", |reference| reference.name.as_str());
        let namespace = sandbox.metadata.namespace.clone().unwrap_or_default();
        let template = self.templates.get(&(namespace, name.to_owned()));
        template
            .and_then(|template| Blueprint::referred(sandbox, &template))
            .ok_or_else(|| format!("SandboxTemplate {name:?} not found"))
    }

    /// Remembers what an in-place update cannot change. Whether it wrote.
    async fn mark_immutable_part(&self, sandbox: &Arc<Sandbox>) -> Result<bool, Failure> {
        let Some(template) = &sandbox.spec.template else {
            return Ok(false);
        };
        let hash = revision::of_immutable_part(template);
        // A pod that is replaced can have another one.
        match sandbox.annotation(annotation::HASH_IMMUTABLE_PART) {
            Some(known) if known == hash || phase_of(sandbox) != SandboxPhase::Upgrading => {
                return Ok(false);
            }
            _ => {}
        }
        let patch = json!({"metadata": {
            "uid": sandbox.metadata.uid,
            "annotations": {annotation::HASH_IMMUTABLE_PART: hash},
        }});
        self.patch(sandbox, &patch).await
    }

    /// A paused sandbox keeps a finalizer until it is resumed.
    async fn keep_finalizer(
        &self,
        sandbox: &Arc<Sandbox>,
        phase: SandboxPhase,
    ) -> Result<(), Failure> {
        let wanted = matches!(phase, SandboxPhase::Paused | SandboxPhase::Resuming);
        let known = sandbox.metadata.finalizers.iter().flatten();
        let mut finalizers: Vec<&str> = known.map(String::as_str).collect();
        let present = finalizers.contains(&finalizer::SANDBOX);
        if wanted == present {
            return Ok(());
        }
        if wanted {
            finalizers.push(finalizer::SANDBOX);
        } else {
            finalizers.retain(|known| *known != finalizer::SANDBOX);
        }
        let patch = json!({"metadata": {
            "resourceVersion": sandbox.metadata.resource_version,
            "finalizers": finalizers,
        }});
        self.patch(sandbox, &patch).await?;
        Ok(())
    }

    /// Deletes the pod of a deleted sandbox, and then removes the sandbox's finalizer.
    async fn end(&self, sandbox: &Arc<Sandbox>) -> Result<Action, Failure> {
        self.held
            .clear(sandbox.metadata.uid.as_deref().unwrap_or_default());
        if sandbox.is_kept() && !self.end_kept(sandbox).await? {
            return Ok(Action::await_change());
        }
        if let Some(pod) = self.pod(sandbox).await?
            && let phase::Seen::Own(pod) = children::seen(sandbox, Some(&pod), &None)
        {
            if !pod.is_terminating() {
                let note = "the sandbox is being deleted".to_owned();
                self.cluster
                    .event(&**sandbox, false, "SandboxTerminating", note);
                write::delete(&self.cluster, &self.pods, pod, None, false).await?;
            }
            if self.pods.get(&key(pod)).is_some() {
                return Ok(Action::await_change());
            }
        }
        self.keep_finalizer(sandbox, SandboxPhase::Terminating)
            .await?;
        Ok(Action::await_change())
    }

    /// Applies a merge patch. Whether the sandbox was there.
    async fn patch(&self, sandbox: &Sandbox, patch: &Value) -> Result<bool, Failure> {
        let (namespace, name) = key(sandbox);
        match self.cluster.patch(&namespace, &name, patch).await {
            Ok(patched) => {
                self.sandboxes.learn(patched);
                Ok(true)
            }
            Err(error) if is_missing(&error) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Writes the status if it differs. A status that only reports progress waits for a moment; returns how long.
    async fn write_status(
        &self,
        sandbox: &Arc<Sandbox>,
        status: &SandboxStatus,
    ) -> Result<Option<Duration>, Failure> {
        let uid = sandbox.metadata.uid.as_deref().unwrap_or_default();
        let before = sandbox.status.as_ref();
        if before != Some(status)
            && before.is_none_or(is_starting)
            && is_starting(status)
            && let Some(wait) = self.held.wait(uid)
        {
            return Ok(Some(wait));
        }
        self.held.clear(uid);
        let written =
            write::status(&self.cluster, &self.sandboxes, &**sandbox, before, status).await?;
        let phase = status.phase.unwrap_or_default();
        if written.is_some() && phase != phase_of(sandbox) {
            let reason = format!("Sandbox{}", phase.as_str());
            self.cluster
                .event(&**sandbox, false, &reason, status.message.clone());
        }
        Ok(None)
    }
}

/// The result of a step.
enum Step {
    /// The next one.
    Again,
    /// A change of an object, or the end of a wait.
    Rest(Option<Duration>),
}

fn phase_of(sandbox: &Sandbox) -> SandboxPhase {
    let status = sandbox.status.as_ref();
    status.and_then(|status| status.phase).unwrap_or_default()
}

/// Whether a status is that of a sandbox that is starting without errors.
fn is_starting(status: &SandboxStatus) -> bool {
    let phase = status.phase.unwrap_or_default();
    matches!(phase, SandboxPhase::Pending | SandboxPhase::Running)
        && status.conditions.iter().all(|known| {
            known.type_ == condition::READY
                && known.status != "True"
                && known.reason == reason::POD_READY
        })
}

#[cfg(test)]
mod tests;
