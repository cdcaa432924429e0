//! Pods with the fields that the controllers of `agents.kruise.io` read.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use shoal_crds::kruise::names::label;

use crate::slim::{PodCondition, core_kind};

core_kind!(
    /// A pod.
    Pod, "pods", {
        spec: PodSpec,
        status: PodStatus,
    }
);

/// A ReplicaSet.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct ReplicaSet {
    #[serde(default)]
    pub(crate) metadata: ObjectMeta,
    #[serde(default)]
    pub(crate) spec: ReplicaSetSpec,
    #[serde(default)]
    pub(crate) status: ReplicaSetStatus,
}

impl k8s_openapi::Resource for ReplicaSet {
    const API_VERSION: &'static str = "apps/v1";
    const GROUP: &'static str = "apps";
    const KIND: &'static str = "ReplicaSet";
    const VERSION: &'static str = "v1";
    const URL_PATH_SEGMENT: &'static str = "replicasets";
    type Scope = k8s_openapi::NamespaceResourceScope;
}

impl k8s_openapi::Metadata for ReplicaSet {
    type Ty = ObjectMeta;

    fn metadata(&self) -> &Self::Ty {
        &self.metadata
    }

    fn metadata_mut(&mut self) -> &mut Self::Ty {
        &mut self.metadata
    }
}

/// The size of a ReplicaSet, and which template its pods have.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct ReplicaSetSpec {
    #[serde(default)]
    pub(crate) replicas: i32,
    #[serde(default)]
    template: PodMetadata,
}

/// The metadata of a pod template.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct PodMetadata {
    #[serde(default)]
    metadata: ObjectMeta,
}

/// How many pods a ReplicaSet has, and why there are not more.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct ReplicaSetStatus {
    #[serde(default)]
    replicas: i32,
    #[serde(default)]
    conditions: Vec<ReplicaSetCondition>,
}

/// A condition of a ReplicaSet. Its message is the API server's, and no user's business.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct ReplicaSetCondition {
    #[serde(default, rename = "type")]
    kind: String,
    #[serde(default)]
    status: String,
    #[serde(default)]
    reason: String,
}

impl ReplicaSet {
    /// Whether it has no pod and makes none.
    pub(crate) fn is_down(&self) -> bool {
        self.spec.replicas == 0 && self.status.replicas == 0
    }

    /// Whether its pods are of this revision.
    pub(crate) fn is_of(&self, revision: &str) -> bool {
        let labels = self.spec.template.metadata.labels.as_ref();
        let of = labels.and_then(|labels| labels.get(label::POD_TEMPLATE_HASH));
        of.is_some_and(|of| of == revision)
    }

    /// Why it makes no pod.
    pub(crate) fn failure(&self) -> Option<String> {
        let mut all = self.status.conditions.iter();
        let failed = all.find(|one| one.kind == "ReplicaFailure" && one.status == "True")?;
        Some(failed.reason.clone())
    }
}

/// The node of a pod, and its containers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PodSpec {
    #[serde(default)]
    pub(crate) node_name: String,
    #[serde(default)]
    pub(crate) containers: Vec<Container>,
    #[serde(default)]
    pub(crate) init_containers: Vec<Container>,
}

/// A container.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Container {
    #[serde(default)]
    pub(crate) name: String,
    #[serde(default)]
    pub(crate) image: String,
    #[serde(default)]
    pub(crate) resources: Value,
}

/// The state of a pod.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PodStatus {
    #[serde(default)]
    pub(crate) phase: String,
    #[serde(default)]
    pub(crate) message: String,
    #[serde(default)]
    pub(crate) reason: String,
    #[serde(default, rename = "podIP")]
    pub(crate) pod_ip: String,
    /// The state of a resize, before Kubernetes 1.33.
    #[serde(default)]
    pub(crate) resize: String,
    #[serde(default)]
    pub(crate) conditions: Vec<PodCondition>,
    #[serde(default)]
    pub(crate) container_statuses: Vec<ContainerStatus>,
    #[serde(default)]
    pub(crate) init_container_statuses: Vec<ContainerStatus>,
}

/// The state of a container.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ContainerStatus {
    #[serde(default)]
    pub(crate) name: String,
    #[serde(default, rename = "imageID")]
    pub(crate) image_id: String,
    #[serde(default, rename = "containerID")]
    pub(crate) container_id: String,
    #[serde(default)]
    pub(crate) state: ContainerState,
    #[serde(default)]
    pub(crate) resources: Value,
}

/// Why a container does not run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct ContainerState {
    #[serde(default)]
    pub(crate) waiting: Option<Waiting>,
    #[serde(default)]
    pub(crate) running: Option<Value>,
}

/// Why a container is waiting.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Waiting {
    #[serde(default)]
    pub(crate) reason: String,
    #[serde(default)]
    pub(crate) message: String,
}

/// Reasons of containers that wait for nothing bad.
const STARTING: [&str; 3] = ["", "ContainerCreating", "PodInitializing"];

impl Pod {
    /// A condition.
    pub(crate) fn condition(&self, kind: &str) -> Option<&PodCondition> {
        self.status
            .conditions
            .iter()
            .find(|condition| condition.kind == kind)
    }

    pub(crate) fn is_ready(&self) -> bool {
        self.condition("Ready")
            .is_some_and(|ready| ready.status == "True")
    }

    pub(crate) fn is_terminating(&self) -> bool {
        self.metadata.deletion_timestamp.is_some()
    }

    /// The id of the first container, in which the daemon runs; none before it has started.
    pub(crate) fn first_container(&self) -> Option<&str> {
        let name = &self.spec.containers.first()?.name;
        let mut all = self.status.container_statuses.iter();
        let id = &all.find(|container| container.name == *name)?.container_id;
        Some(id.as_str()).filter(|id| !id.is_empty())
    }

    pub(crate) fn label(&self, key: &str) -> Option<&str> {
        self.metadata.labels.as_ref()?.get(key).map(String::as_str)
    }

    pub(crate) fn annotation(&self, key: &str) -> Option<&str> {
        let annotations = self.metadata.annotations.as_ref()?;
        annotations.get(key).map(String::as_str)
    }

    /// Why a container cannot start: its reason, with its message.
    pub(crate) fn start_error(&self) -> Option<String> {
        let status = &self.status;
        let all = status
            .init_container_statuses
            .iter()
            .chain(&status.container_statuses);
        let mut failed = all.filter_map(|container| {
            let waiting = container.state.waiting.as_ref()?;
            let bad = !STARTING.contains(&waiting.reason.as_str());
            bad.then(|| told(&container.name, waiting))
        });
        failed.next()
    }

    /// Why it does not run yet, as far as it is known.
    pub(crate) fn delay(&self) -> Option<String> {
        let unscheduled = self
            .condition("PodScheduled")
            .filter(|scheduled| scheduled.status == "False");
        unscheduled
            .map(|scheduled| scheduled.message.clone())
            .or_else(|| self.start_error())
    }
}

fn told(container: &str, waiting: &Waiting) -> String {
    if waiting.message.is_empty() {
        return format!("container {container:?}: {}", waiting.reason);
    }
    format!(
        "container {container:?}: {}: {}",
        waiting.reason, waiting.message
    )
}
