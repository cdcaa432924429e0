use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::names::{annotation, content, label};
use crate::parts::is_default;
use crate::resource::resource;

resource!(
    /// The state of a sandbox, to start others from.
    Checkpoint, CheckpointSpec, CheckpointStatus, "agents.kruise.io", "v1alpha1", "checkpoints"
);

/// The desired state of a checkpoint.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CheckpointSpec {
    /// The sandbox.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox_name: Option<String>,
    /// The pod. It has the name of its sandbox.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_name: Option<String>,
    /// Whether the pod runs on: it does if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keep_running: Option<bool>,
    /// Its contents: memory and filesystem if absent.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub persistent_contents: Vec<String>,
    /// How long the finished checkpoint stays: `30s`, `30m`, `30h` or `30d`. For ever if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl_after_finished: Option<String>,
}

impl CheckpointSpec {
    /// The pod: the one named, or that of the sandbox.
    #[must_use]
    pub fn pod(&self) -> Option<&str> {
        [&self.pod_name, &self.sandbox_name]
            .into_iter()
            .flatten()
            .map(String::as_str)
            .find(|name| !name.is_empty())
    }

    /// Whether it keeps only the difference between the pod and its template.
    #[must_use]
    pub fn is_pod_info(&self) -> bool {
        matches!(self.persistent_contents.as_slice(), [only] if only == content::POD_INFO)
    }

    /// Whether it keeps the memory of the pod, as it does if nothing is named.
    #[must_use]
    pub fn has_memory(&self) -> bool {
        let kept = &self.persistent_contents;
        kept.is_empty() || kept.iter().any(|one| one == content::MEMORY)
    }
}

impl Checkpoint {
    /// The pod that was found for it when it was accepted; before that the one that it names.
    #[must_use]
    pub fn pod(&self) -> Option<&str> {
        let found = self.annotation(annotation::CHECKPOINT_POD);
        found.or_else(|| self.spec.pod())
    }

    /// The value of an annotation.
    #[must_use]
    pub fn annotation(&self, key: &str) -> Option<&str> {
        let annotations = self.metadata.annotations.as_ref()?;
        annotations.get(key).map(String::as_str)
    }

    /// The node that keeps it, once its pod was found.
    #[must_use]
    pub fn node(&self) -> Option<&str> {
        self.annotation(label::CHECKPOINT_NODE)
    }
}

/// The phases of a checkpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum CheckpointPhase {
    /// No executor has begun.
    #[default]
    Pending,
    /// An executor works on it.
    Creating,
    /// It is complete.
    Succeeded,
    /// It was given up.
    Failed,
    /// It is being deleted.
    Terminating,
}

impl CheckpointPhase {
    /// Whether it has ended.
    #[must_use]
    pub fn is_finished(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed)
    }
}

/// The observed state of a checkpoint.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CheckpointStatus {
    /// The generation that this state is about.
    #[serde(default, skip_serializing_if = "is_default")]
    pub observed_generation: i64,
    /// The phase.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<CheckpointPhase>,
    /// Why it has this phase.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completion_time: Option<Time>,
    /// Its ID: the snapshot ID of the E2B API.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub checkpoint_id: String,
    /// The strategic merge patch from the template to the pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_template_delta: Option<Value>,
}
