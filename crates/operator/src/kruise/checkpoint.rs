//! The controller of `Checkpoint`: accepts, describes pods, protects what an executor works on, and expires. Memory and
//! files are kept by an executor, which sets the phases from `Creating` on.

mod delta;
mod plan;

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::runtime::controller::Action;
use serde_json::json;
use shoal_crds::kruise::names::{finalizer, label};
use shoal_crds::kruise::{Checkpoint, CheckpointPhase, CheckpointStatus, Sandbox, SandboxTemplate};
use shoal_crds::parts::PodTemplate;

use self::plan::Next;
use super::{Pod, write};
use crate::cache::{Cache, Key, key};
use crate::cluster::Cluster;
use crate::failure::{Failure, is_missing};

/// The group of the checkpoints of a namespace.
pub(crate) fn checkpoint_group(checkpoint: &Checkpoint) -> Option<String> {
    checkpoint.metadata.namespace.clone()
}

/// Reconciles checkpoints.
pub(crate) struct CheckpointController {
    pub(crate) cluster: Cluster,
    pub(crate) checkpoints: Arc<Cache<Checkpoint>>,
    pub(crate) sandboxes: Arc<Cache<Sandbox>>,
    pub(crate) templates: Arc<Cache<SandboxTemplate>>,
    pub(crate) pods: Arc<Cache<Pod>>,
}

impl CheckpointController {
    /// Brings a checkpoint one step further.
    pub(crate) async fn reconcile(
        self: Arc<Self>,
        checkpoint: Arc<Checkpoint>,
    ) -> Result<Action, Failure> {
        let checkpoint = self
            .checkpoints
            .get(&key(&*checkpoint))
            .unwrap_or(checkpoint);
        let (namespace, _) = key(&*checkpoint);
        let pod = checkpoint
            .spec
            .pod()
            .map(|pod| (namespace.clone(), pod.to_owned()));
        let pod = pod.and_then(|pod| self.pods.get(&pod).or_else(|| self.pod_of(&pod)));
        let others = self.checkpoints.group(&namespace);
        let now = Timestamp::now();
        match plan::next(&checkpoint, pod.as_deref(), &others, now) {
            Next::Nothing => {}
            Next::Until(at) => {
                let wait = Duration::try_from(at.duration_since(now)).unwrap_or_default();
                return Ok(Action::requeue(wait));
            }
            Next::Protect => self.protect(&checkpoint).await?,
            Next::Release => self.release(&checkpoint).await?,
            Next::Phase(phase, message) => {
                let status = CheckpointStatus {
                    phase: Some(phase),
                    message,
                    ..CheckpointStatus::default()
                };
                self.write(&checkpoint, status).await?;
            }
            Next::Describe => {
                let template = self.template(&namespace, &checkpoint);
                let delta = pod
                    .zip(template)
                    .and_then(|(pod, template)| delta::between(&template, &pod));
                let status = CheckpointStatus {
                    phase: Some(CheckpointPhase::Succeeded),
                    pod_template_delta: delta,
                    ..CheckpointStatus::default()
                };
                self.write(&checkpoint, status).await?;
            }
            Next::Delete => {
                write::delete(&self.cluster, &self.checkpoints, &*checkpoint, None, false).await?;
            }
        }
        Ok(Action::await_change())
    }

    /// The pod of a sandbox with this name: a ReplicaSet gives its pod another one.
    fn pod_of(&self, sandbox: &Key) -> Option<Arc<Pod>> {
        let known = self.sandboxes.get(sandbox)?;
        let pod = (sandbox.0.clone(), known.pod_name().to_owned());
        self.pods.get(&pod)
    }

    /// The template of the checkpoint's pod. The pod's label has the name of its sandbox.
    fn template(&self, namespace: &str, checkpoint: &Checkpoint) -> Option<PodTemplate> {
        let named = (namespace.to_owned(), checkpoint.spec.pod()?.to_owned());
        let sandbox = self.sandboxes.get(&named).or_else(|| {
            let pod = self.pods.get(&named)?;
            let name = pod.label(label::SANDBOX_NAME)?.to_owned();
            self.sandboxes.get(&(named.0.clone(), name))
        })?;
        if let Some(template) = &sandbox.spec.template {
            return Some(template.clone());
        }
        let referred = sandbox.spec.template_ref.as_ref()?.name.clone();
        let template = self.templates.get(&(namespace.to_owned(), referred))?;
        template.spec.template.clone()
    }

    async fn write(
        &self,
        checkpoint: &Checkpoint,
        status: CheckpointStatus,
    ) -> Result<(), Failure> {
        let finished = status.phase.is_some_and(CheckpointPhase::is_finished);
        let failed =
            (status.phase == Some(CheckpointPhase::Failed)).then(|| status.message.clone());
        let status = CheckpointStatus {
            observed_generation: checkpoint.metadata.generation.unwrap_or_default(),
            completion_time: finished.then(|| Time(Timestamp::now())),
            ..status
        };
        let (namespace, name) = key(checkpoint);
        let meta = &checkpoint.metadata;
        // An executor that was faster is not overwritten.
        let patch = json!({
            "metadata": {"uid": meta.uid, "resourceVersion": meta.resource_version}, "status": status,
        });
        match self.cluster.patch_status(&namespace, &name, &patch).await {
            Ok(patched) => drop(self.checkpoints.learn(patched)),
            Err(error) if is_missing(&error) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
        if let Some(why) = failed {
            self.cluster
                .event(checkpoint, true, "CheckpointFailed", why);
        }
        Ok(())
    }

    async fn protect(&self, checkpoint: &Checkpoint) -> Result<(), Failure> {
        let mut finalizers = checkpoint.metadata.finalizers.clone().unwrap_or_default();
        finalizers.push(finalizer::CHECKPOINT.to_owned());
        self.finalize(checkpoint, finalizers).await
    }

    async fn release(&self, checkpoint: &Checkpoint) -> Result<(), Failure> {
        let mut finalizers = checkpoint.metadata.finalizers.clone().unwrap_or_default();
        finalizers.retain(|known| known != finalizer::CHECKPOINT);
        self.finalize(checkpoint, finalizers).await
    }

    async fn finalize(
        &self,
        checkpoint: &Checkpoint,
        finalizers: Vec<String>,
    ) -> Result<(), Failure> {
        let (namespace, name) = key(checkpoint);
        let meta = &checkpoint.metadata;
        let patch = json!({"metadata": {
            "uid": meta.uid, "resourceVersion": meta.resource_version, "finalizers": finalizers,
        }});
        match self.cluster.patch(&namespace, &name, &patch).await {
            Ok(patched) => drop(self.checkpoints.learn(patched)),
            Err(error) if is_missing(&error) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }
}
