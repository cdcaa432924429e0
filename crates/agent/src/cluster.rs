//! Calls to the API server.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::api::{Api, ListParams, PartialObjectMeta, Patch, PatchParams};
use kube::{Client, Resource, ResourceExt};
use serde_json::{Map, Value, json};
use shoal_checkpoint::{CheckpointId, Manifest, RESTORE_FROM};
use shoal_crds::kruise::names::{annotation, finalizer, label, label_value};
use shoal_crds::kruise::{Checkpoint, CheckpointPhase};

const MANAGER: &str = "shoal-node";

/// The API server, for this node.
#[derive(Clone)]
pub(crate) struct Cluster {
    client: Client,
    /// The label of the node's checkpoints.
    selector: String,
}

impl Cluster {
    pub(crate) fn new(client: Client, node: &str) -> Self {
        Self {
            client,
            selector: format!("{}={}", label::CHECKPOINT_NODE, label_value(node)),
        }
    }

    pub(crate) fn all(&self) -> Api<Checkpoint> {
        Api::all(self.client.clone())
    }

    pub(crate) fn selector(&self) -> &str {
        &self.selector
    }

    /// The checkpoints that exist now, of all nodes: a label can be lost.
    pub(crate) async fn uids(&self) -> kube::Result<Vec<String>> {
        let api: Api<Checkpoint> = self.all();
        let listed = api.list_metadata(&ListParams::default()).await?;
        Ok(listed.items.iter().filter_map(ResourceExt::uid).collect())
    }

    pub(crate) async fn pod(&self, namespace: &str, name: &str) -> kube::Result<Option<Pod>> {
        let api: Api<Pod> = Api::namespaced(self.client.clone(), namespace);
        api.get_opt(name).await
    }

    pub(crate) fn pods(&self) -> Api<Pod> {
        Api::all(self.client.clone())
    }

    /// The pods of the agents.
    pub(crate) fn agents(&self, namespace: &str) -> Api<Pod> {
        Api::namespaced(self.client.clone(), namespace)
    }

    /// Shows the certificate of this agent in its pod, and returns the pod.
    pub(crate) async fn show(
        &self,
        namespace: &str,
        pod: &str,
        certificate: &str,
    ) -> kube::Result<Pod> {
        let shown =
            json!({"metadata": {"annotations": {annotation::AGENT_CERTIFICATE: certificate}}});
        let patch = Patch::Merge(shown);
        self.agents(namespace).patch(pod, &params(), &patch).await
    }

    /// The node that has a checkpoint.
    pub(crate) async fn holder(
        &self,
        namespace: &str,
        id: &CheckpointId,
    ) -> kube::Result<Option<String>> {
        let api: Api<Checkpoint> = Api::namespaced(self.client.clone(), namespace);
        let with_id = ListParams::default().labels(&format!("{}={id}", label::CHECKPOINT_ID));
        let found = api.list(&with_id).await?;
        Ok(found
            .items
            .iter()
            .find_map(|one| Some(one.node()?.to_owned())))
    }

    /// Whether a pod of the node starts from a checkpoint.
    pub(crate) async fn starts_from(
        &self,
        node: &str,
        namespace: &str,
        id: &CheckpointId,
    ) -> kube::Result<bool> {
        let api: Api<Pod> = Api::namespaced(self.client.clone(), namespace);
        let of_node = ListParams::default().fields(&format!("spec.nodeName={node}"));
        let id = id.to_string();
        let found = api.list_metadata(&of_node).await?;
        let starts =
            |pod: &PartialObjectMeta<Pod>| pod.annotations().get(RESTORE_FROM) == Some(&id);
        Ok(found.items.iter().any(starts))
    }

    /// The UID of the cluster: that of its first namespace, which is never made again.
    pub(crate) async fn uid(&self) -> kube::Result<String> {
        let api: Api<Namespace> = Api::all(self.client.clone());
        let first = api.get_metadata("kube-system").await?;
        Ok(first.metadata.uid.unwrap_or_default())
    }

    /// Takes a checkpoint on: first the finalizer, then the phase. Nothing else may have changed meanwhile.
    pub(crate) async fn take(&self, checkpoint: &Checkpoint) -> kube::Result<Checkpoint> {
        let finalizers = finalizers(checkpoint, true);
        let taken = self
            .patch(
                checkpoint,
                json!({
                    "finalizers": finalizers,
                    "annotations": {annotation::CHECKPOINT_BEGUN: Timestamp::now().to_string()},
                }),
            )
            .await?;
        self.status(&taken, CheckpointPhase::Creating, "", json!({}))
            .await
    }

    /// Says that the pod of a complete checkpoint is about to end, unless the checkpoint has been given up meanwhile.
    pub(crate) async fn begin_end(&self, checkpoint: &Checkpoint) -> kube::Result<Checkpoint> {
        if checkpoint
            .annotation(annotation::CHECKPOINT_ENDING)
            .is_some()
        {
            return Ok(checkpoint.clone());
        }
        let now = Timestamp::now().to_string();
        let mark = json!({"annotations": {annotation::CHECKPOINT_ENDING: now}});
        self.patch(checkpoint, mark).await
    }

    pub(crate) async fn succeed(
        &self,
        checkpoint: &Checkpoint,
        id: &CheckpointId,
        manifest: &Manifest,
    ) -> kube::Result<()> {
        let containers = manifest.containers.iter();
        let containers: Vec<&str> = containers.map(|one| one.name.as_str()).collect();
        let images = manifest.containers.iter().filter_map(|one| {
            let image = json!({"image": one.named, "digest": one.image_digest()?});
            Some((one.name.clone(), image))
        });
        let images: Map<String, Value> = images.collect();
        let source = json!({
            "containers": containers, "serviceAccountToken": manifest.service_account_token, "images": images,
        });
        let marks = json!({
            "labels": {label::CHECKPOINT_ID: id.to_string()},
            "annotations": {annotation::CHECKPOINT_SOURCE: source.to_string()},
        });
        let marked = self.patch(checkpoint, marks).await?;
        let more = json!({"checkpointId": id.to_string()});
        self.status(&marked, CheckpointPhase::Succeeded, "", more)
            .await
            .map(drop)
    }

    /// Says that the object store has a copy.
    pub(crate) async fn mark_stored(&self, checkpoint: &Checkpoint) -> kube::Result<()> {
        let now = Timestamp::now().to_string();
        let patch = Patch::Merge(json!({"metadata": {
            "uid": checkpoint.meta().uid, "annotations": {annotation::CHECKPOINT_STORED: now},
        }}));
        let (api, params) = (self.of(checkpoint), params());
        let marked = api.patch(&checkpoint.name_any(), &params, &patch).await;
        marked.map(drop)
    }

    /// Tells the operator whether other nodes can fetch a checkpoint from this one.
    pub(crate) async fn mark_served(
        &self,
        checkpoint: &Checkpoint,
        served: bool,
    ) -> kube::Result<()> {
        let mark = served.then_some("true");
        let mark = json!({"annotations": {annotation::CHECKPOINT_SERVED: mark}});
        self.patch(checkpoint, mark).await.map(drop)
    }

    pub(crate) async fn fail(&self, checkpoint: &Checkpoint, why: &str) -> kube::Result<()> {
        self.status(checkpoint, CheckpointPhase::Failed, why, json!({}))
            .await
            .map(drop)
    }

    /// Lets a checkpoint go, whose files are deleted.
    pub(crate) async fn release(&self, checkpoint: &Checkpoint) -> kube::Result<()> {
        let finalizers = finalizers(checkpoint, false);
        self.patch(checkpoint, json!({"finalizers": finalizers}))
            .await
            .map(drop)
    }

    async fn patch(&self, checkpoint: &Checkpoint, mut change: Value) -> kube::Result<Checkpoint> {
        change["uid"] = json!(checkpoint.meta().uid);
        change["resourceVersion"] = json!(checkpoint.meta().resource_version);
        let patch = Patch::Merge(json!({"metadata": change}));
        let (api, params) = (self.of(checkpoint), params());
        api.patch(&checkpoint.name_any(), &params, &patch).await
    }

    async fn status(
        &self,
        checkpoint: &Checkpoint,
        phase: CheckpointPhase,
        message: &str,
        mut status: Value,
    ) -> kube::Result<Checkpoint> {
        status["phase"] = json!(phase);
        status["message"] = message.into();
        status["observedGeneration"] = json!(checkpoint.meta().generation);
        if phase.is_finished() {
            status["completionTime"] = json!(Timestamp::now().strftime("%FT%TZ").to_string());
        }
        let meta = checkpoint.meta();
        let patch = Patch::Merge(json!({
            "metadata": {"uid": meta.uid, "resourceVersion": meta.resource_version}, "status": status,
        }));
        let (api, params) = (self.of(checkpoint), params());
        api.patch_status(&checkpoint.name_any(), &params, &patch)
            .await
    }

    fn of(&self, checkpoint: &Checkpoint) -> Api<Checkpoint> {
        let namespace = checkpoint.namespace().unwrap_or_default();
        Api::namespaced(self.client.clone(), &namespace)
    }
}

fn params() -> PatchParams {
    PatchParams {
        field_manager: Some(MANAGER.to_owned()),
        ..PatchParams::default()
    }
}

/// The finalizers with the agent's own, or without it.
fn finalizers(checkpoint: &Checkpoint, own: bool) -> Vec<String> {
    let mut all = checkpoint.finalizers().to_vec();
    all.retain(|known| known != finalizer::CHECKPOINT_FILES);
    if own {
        all.push(finalizer::CHECKPOINT_FILES.to_owned());
    }
    all
}
