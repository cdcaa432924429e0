//! The controller of `Checkpoint`: accepts, describes pods, protects the objects of an executor, and expires. Memory and
//! files are kept by an executor, which sets the phases from `Creating` on.

mod attend;
mod delta;
mod plan;

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::Api;
use kube::api::DynamicObject;
use kube::runtime::controller::Action;
use serde_json::{Value, json};
use shoal_crds::kruise::names::{annotation, finalizer, label, label_value};
use shoal_crds::kruise::{Checkpoint, CheckpointPhase, CheckpointStatus, Sandbox, SandboxTemplate};
use shoal_crds::parts::PodTemplate;

use self::attend::Node;
use self::plan::Next;
use super::Pod;
use crate::cache::{Cache, Key, key};
use crate::cluster::Cluster;
use crate::failure::{Failure, is_missing};
use crate::write;

/// How often the node of a checkpoint is looked at.
const ATTEND: Duration = Duration::from_secs(30);

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
        let pod = match pod {
            Some(named) => self.pod(&checkpoint, &named).await?,
            None => None,
        };
        let others = self.checkpoints.group(&namespace);
        let now = Timestamp::now();
        match plan::next(&checkpoint, pod.as_deref(), &others, now) {
            Next::Nothing => {}
            Next::Until(at) => {
                let wait = Duration::try_from(at.duration_since(now)).unwrap_or_default();
                return Ok(Action::requeue(wait));
            }
            Next::Protect { node, pod } => self.protect(&checkpoint, &node, &pod).await?,
            Next::Attend => return self.attend(&checkpoint, now).await,
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

    /// The pod of a checkpoint. One that belongs to no sandbox of the group is in no cache: it is looked up for a
    /// checkpoint that begins.
    async fn pod(&self, checkpoint: &Checkpoint, named: &Key) -> Result<Option<Arc<Pod>>, Failure> {
        if let Some(pod) = self.pods.get(named) {
            return Ok(Some(pod));
        }
        if checkpoint.status.is_none() {
            let found = self.cluster.get::<Pod>(&named.0, &named.1).await?;
            if let Some(pod) = found {
                return Ok(Some(Arc::new(pod)));
            }
        }
        Ok(self.pod_of(named))
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

    /// Accepts a checkpoint: from now on, only the agent of its node works on it.
    async fn protect(&self, checkpoint: &Checkpoint, node: &str, pod: &str) -> Result<(), Failure> {
        let mut finalizers = checkpoint.metadata.finalizers.clone().unwrap_or_default();
        finalizers.push(finalizer::CHECKPOINT.to_owned());
        let mut change = json!({
            "finalizers": finalizers,
            "labels": {label::CHECKPOINT_NODE: label_value(node)},
            "annotations": {label::CHECKPOINT_NODE: node, annotation::CHECKPOINT_POD: pod},
        });
        if let Some(settings) = self.daemon_settings(checkpoint, pod) {
            change["annotations"][annotation::INIT_RUNTIME_REQUEST] = settings.into();
        }
        self.change(checkpoint, change).await
    }

    /// The settings of the daemon in the memory of a checkpoint that does not say them: its clones need the token.
    fn daemon_settings(&self, checkpoint: &Checkpoint, pod: &str) -> Option<String> {
        let known = checkpoint.annotation(annotation::INIT_RUNTIME_REQUEST);
        if known.is_some() || !checkpoint.spec.has_memory() {
            return None;
        }
        let (namespace, _) = key(checkpoint);
        let pod = self.pods.get(&(namespace.clone(), pod.to_owned()))?;
        let sandbox = pod.label(label::SANDBOX_NAME)?.to_owned();
        let sandbox = self.sandboxes.get(&(namespace, sandbox))?;
        sandbox
            .annotation(annotation::INIT_RUNTIME_REQUEST)
            .map(str::to_owned)
    }

    /// Fails a checkpoint that has no executor any more.
    async fn attend(&self, checkpoint: &Checkpoint, now: Timestamp) -> Result<Action, Failure> {
        let Some(name) = checkpoint.node() else {
            return Ok(Action::await_change());
        };
        let node = self.node(name).await?;
        let Some(why) = attend::lost(checkpoint, name, node.as_ref(), now) else {
            return Ok(Action::requeue(ATTEND));
        };
        let phase = checkpoint.status.as_ref().and_then(|status| status.phase);
        let working = matches!(
            phase,
            Some(CheckpointPhase::Pending | CheckpointPhase::Creating)
        );
        if working {
            let status = CheckpointStatus {
                phase: Some(CheckpointPhase::Failed),
                message: why,
                ..CheckpointStatus::default()
            };
            self.write(checkpoint, status).await?;
        } else {
            // The agent deletes unknown files when the node is back.
            self.finalize(checkpoint, finalizer::CHECKPOINT_FILES)
                .await?;
        }
        Ok(Action::await_change())
    }

    async fn node(&self, name: &str) -> Result<Option<Node>, Failure> {
        let nodes = kube::api::ApiResource::erase::<k8s_openapi::api::core::v1::Node>(&());
        let api: Api<DynamicObject> = Api::all_with(self.cluster.client.clone(), &nodes);
        match api.get_opt(name).await? {
            Some(found) => Ok(Some(serde_json::from_value(found.data)?)),
            None => Ok(None),
        }
    }

    async fn release(&self, checkpoint: &Checkpoint) -> Result<(), Failure> {
        self.finalize(checkpoint, finalizer::CHECKPOINT).await
    }

    /// Removes a finalizer.
    async fn finalize(&self, checkpoint: &Checkpoint, done: &str) -> Result<(), Failure> {
        let mut finalizers = checkpoint.metadata.finalizers.clone().unwrap_or_default();
        finalizers.retain(|known| known != done);
        self.change(checkpoint, json!({"finalizers": finalizers}))
            .await
    }

    /// Changes the metadata, unless another client did meanwhile.
    async fn change(&self, checkpoint: &Checkpoint, mut change: Value) -> Result<(), Failure> {
        let (namespace, name) = key(checkpoint);
        let meta = &checkpoint.metadata;
        change["uid"] = json!(meta.uid);
        change["resourceVersion"] = json!(meta.resource_version);
        let patch = json!({"metadata": change});
        match self.cluster.patch(&namespace, &name, &patch).await {
            Ok(patched) => drop(self.checkpoints.learn(patched)),
            Err(error) if is_missing(&error) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }
}
