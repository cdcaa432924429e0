//! Labels, annotations, finalizers, conditions and reasons that clients and other controllers compare.

use crate::hash;

/// The group.
pub const GROUP: &str = "agents.kruise.io";
/// The version.
pub const VERSION: &str = "v1alpha1";
/// The prefix of keys that belong to the controllers.
pub const PREFIX: &str = "agents.kruise.io/";
/// The prefix of keys that belong to the E2B API.
pub const E2B_PREFIX: &str = "e2b.agents.kruise.io/";
/// The RuntimeClass whose pods can be saved and restored.
pub const RUNTIME_CLASS: &str = "shoal";
/// The prefix of keys that the runtime of pods obeys, and of keys between operator and nodes.
pub const SHOAL_PREFIX: &str = "shoal.dev/";

pub mod annotation;

/// Labels.
pub mod label {
    /// The SandboxSet that created the sandbox. A claim keeps it.
    pub const SANDBOX_POOL: &str = "agents.kruise.io/sandbox-pool";
    /// The template: the name of the template reference, or of the SandboxSet with an inline template.
    pub const SANDBOX_TEMPLATE: &str = "agents.kruise.io/sandbox-template";
    /// Whether the sandbox is claimed: `"true"` or `"false"`.
    pub const SANDBOX_CLAIMED: &str = "agents.kruise.io/sandbox-claimed";
    /// The SandboxClaim of the sandbox.
    pub const CLAIM_NAME: &str = "agents.kruise.io/claim-name";
    /// The revision of the SandboxSet.
    pub const TEMPLATE_HASH: &str = "agents.kruise.io/template-hash";
    /// `"true"` keeps a failed sandbox for inspection and hides it from the E2B API.
    pub const RESERVED_FAILED_SANDBOX: &str = "agents.kruise.io/reserved-failed-sandbox";
    /// The short ID of the sandbox.
    pub const SANDBOX_ID: &str = "agents.kruise.io/sandbox-id";
    /// The sandbox of a pod or checkpoint.
    pub const SANDBOX_NAME: &str = "agents.kruise.io/sandbox-name";
    /// Whether the sandbox may reach the internet.
    pub const ALLOW_INTERNET_ACCESS: &str = "agents.kruise.io/allow-internet-access";
    /// The SandboxUpdateOps that updates the sandbox.
    pub const UPDATE_OPS: &str = "agents.kruise.io/update-ops";
    /// Marks a sandbox whose upgrade failed.
    pub const UPGRADE_FAILED: &str = "agents.kruise.io/upgrade-failed";
    /// The contents of a checkpoint, sorted and joined with `-`.
    pub const CHECKPOINT_TYPE: &str = "agents.kruise.io/checkpoint-type";
    /// The ID of a checkpoint.
    pub const CHECKPOINT_ID: &str = "agents.kruise.io/checkpoint-id";
    /// The node of a checkpoint's pod.
    pub const CHECKPOINT_NODE: &str = "shoal.dev/node";
    /// The name of a snapshot, on its checkpoint, as far as it is the value of a label.
    pub const SNAPSHOT: &str = "shoal.dev/snapshot";
    /// The ID of the API key whose quota the sandbox counts against.
    pub const QUOTA_KEY: &str = "agents.kruise.io/quota-key";
    /// The creator of a pod: `sandbox` or `external`. Also an annotation.
    pub const CREATED_BY: &str = "agents.kruise.io/created-by";
    /// The ID of the API key that owns the object. Also an annotation.
    pub const OWNER: &str = "agents.kruise.io/owner";
    /// The revision of the sandbox, on its pod.
    pub const POD_TEMPLATE_HASH: &str = "pod-template-hash";
}

/// Finalizers.
pub mod finalizer {
    /// Of a sandbox.
    pub const SANDBOX: &str = "agents.kruise.io/sandbox";
    /// Of a checkpoint that an executor works on.
    pub const CHECKPOINT: &str = "agents.kruise.io/checkpoint";
    /// Of a checkpoint that has files on a node.
    pub const CHECKPOINT_FILES: &str = "shoal.dev/checkpoint-files";
    /// Of a commit.
    pub const COMMIT: &str = "agents.kruise.io/commit";
    /// Of a SandboxUpdateOps, which removes its marks from sandboxes first.
    pub const UPDATE_OPS: &str = "agents.kruise.io/sandboxupdateops-protection";
}

/// Types of conditions.
pub mod condition {
    /// The sandbox is ready.
    pub const READY: &str = "Ready";
    /// The sandbox is paused.
    pub const SANDBOX_PAUSED: &str = "SandboxPaused";
    /// The sandbox is resumed.
    pub const SANDBOX_RESUMED: &str = "SandboxResumed";
    /// The last in-place update.
    pub const INPLACE_UPDATE: &str = "InplaceUpdate";
    /// The last upgrade.
    pub const UPGRADING: &str = "Upgrading";
    /// The runtime is initialized.
    pub const RUNTIME_INITIALIZED: &str = "RuntimeInitialized";
    /// The command of the sandbox's template has run. The first line of its message names the container.
    pub const STARTED: &str = "StartupCommand";
    /// The return to the pool.
    pub const RECYCLING: &str = "Recycling";
    /// A claim is complete.
    pub const COMPLETED: &str = "Completed";
    /// A claim ran out of time.
    pub const TIMED_OUT: &str = "TimedOut";
    /// A policy or profile is accepted.
    pub const ACCEPTED: &str = "Accepted";
    /// An autoscaler decides about its pool.
    pub const SCALING_ACTIVE: &str = "ScalingActive";
    /// An autoscaler can change its pool.
    pub const ABLE_TO_SCALE: &str = "AbleToScale";
    /// The size that an autoscaler wanted is out of its bounds.
    pub const SCALING_LIMITED: &str = "ScalingLimited";
}

/// Reasons of conditions.
pub mod reason {
    /// `Ready`: as the pod.
    pub const POD_READY: &str = "PodReady";
    /// `Ready` and `InplaceUpdate`: an in-place update is under way.
    pub const INPLACE_UPDATING: &str = "InplaceUpdating";
    /// `Ready`: an upgrade is under way.
    pub const UPGRADING: &str = "Upgrading";
    /// `Ready`: a container cannot start.
    pub const START_CONTAINER_FAILED: &str = "StartContainerFailed";
    /// `Ready`: the pod cannot be created.
    pub const POD_CREATE_FAILED: &str = "PodCreateFailed";
    /// Not started, or waiting.
    pub const PENDING: &str = "Pending";
    /// Done.
    pub const SUCCEEDED: &str = "Succeeded";
    /// Given up.
    pub const FAILED: &str = "Failed";
    /// `SandboxPaused`: an image differs from the template.
    pub const IMAGE_CHANGED: &str = "ImageChanged";
    /// `SandboxPaused`: a checkpoint is being created.
    pub const CHECKPOINT_CREATING: &str = "CheckpointCreating";
    /// `SandboxPaused`: the checkpoint is complete.
    pub const CHECKPOINT_SUCCEEDED: &str = "CheckpointSucceeded";
    /// `SandboxPaused` and `Upgrading`: the checkpoint failed.
    pub const CHECKPOINT_FAILED: &str = "CheckpointFailed";
    /// `SandboxPaused`: paused with a checkpoint.
    pub const SNAPSHOT_PAUSE_SUCCEED: &str = "SnapshotPauseSucceed";
    /// `SandboxPaused`: paused without a checkpoint.
    pub const STOP_PAUSE_SUCCEED: &str = "StopPauseSucceed";
    /// `SandboxResumed`: the pod is being created.
    pub const CREATE_POD: &str = "CreatePod";
    /// `SandboxResumed`: the pod runs.
    pub const RESUME_POD: &str = "ResumePod";
    /// `Upgrading`: the sandbox is resumed first.
    pub const RESUMING: &str = "Resuming";
    /// `Upgrading`: the sandbox is resumed.
    pub const RESUME_SUCCEED: &str = "ResumeSucceed";
    /// `Upgrading`: the hook before it runs.
    pub const PRE_UPGRADE: &str = "PreUpgrade";
    /// `Upgrading`: the hook before it failed.
    pub const PRE_UPGRADE_FAILED: &str = "PreUpgradeFailed";
    /// `Upgrading`: a checkpoint is being created.
    pub const CHECKPOINTING: &str = "Checkpointing";
    /// `Upgrading`: the pod is being replaced.
    pub const UPGRADE_POD: &str = "UpgradePod";
    /// `Upgrading`: the new pod cannot start.
    pub const UPGRADE_POD_FAILED: &str = "UpgradePodFailed";
    /// `Upgrading`: the hook after it runs.
    pub const POST_UPGRADE: &str = "PostUpgrade";
    /// `Upgrading`: the hook after it failed.
    pub const POST_UPGRADE_FAILED: &str = "PostUpgradeFailed";
    /// `Recycling`: it has begun.
    pub const RECYCLING_STARTED: &str = "RecyclingStarted";
    /// `Recycling`: the pod is ready again.
    pub const RECYCLING_COMPLETED: &str = "RecyclingCompleted";
    /// `Recycling`: the sandbox is in its pool.
    pub const RECYCLING_SUCCEEDED: &str = "RecyclingSucceeded";
    /// `Recycling`: it failed.
    pub const RECYCLING_FAILED: &str = "RecyclingFailed";
    /// `Recycling`: it took too long.
    pub const RECYCLING_TIMEOUT: &str = "RecyclingTimeout";
    /// `Recycling`: the sandbox cannot return to a pool.
    pub const RECYCLING_REJECTED: &str = "RecyclingRejected";
    /// `Completed`: all sandboxes are claimed.
    pub const ALL_REPLICAS_CLAIMED: &str = "AllReplicasClaimed";
    /// `Completed`: the timeout expired.
    pub const TIMEOUT_REACHED: &str = "TimeoutReached";
    /// `Completed`: there is no such SandboxSet.
    pub const SANDBOX_SET_NOT_FOUND: &str = "SandboxSetNotFound";
    /// `Completed`: a feature is turned off.
    pub const FEATURE_GATE_DISABLED: &str = "FeatureGateDisabled";
    /// `Completed`: the claim can never be carried out.
    pub const INVALID_CLAIM: &str = "InvalidClaim";
    /// `ScalingActive`: it does.
    pub const VALID_POLICY: &str = "ValidPolicy";
    /// `ScalingActive`: its policy contradicts itself.
    pub const INVALID_POLICY: &str = "InvalidPolicy";
    /// `ScalingActive`: its user has suspended it.
    pub const SUSPENDED: &str = "Suspended";
    /// `ScalingActive` and `AbleToScale`: there is no such pool.
    pub const FAILED_GET_TARGET: &str = "FailedGetTarget";
    /// `ScalingActive`: an older one has the pool.
    pub const CONFLICTING_AUTOSCALER: &str = "ConflictingAutoscaler";
    /// `ScalingActive`: it has not watched the pool for long enough.
    pub const INSUFFICIENT_OBSERVATION_WINDOW: &str = "InsufficientObservationWindow";
    /// `AbleToScale`: it can.
    pub const READY_TO_SCALE: &str = "ReadyToScale";
    /// `AbleToScale`: the API server refused.
    pub const FAILED_SCALE: &str = "FailedScale";
    /// `AbleToScale`: too many sandboxes of the pool do not start.
    pub const STARTUP_BUDGET_EXHAUSTED: &str = "StartupBudgetExhausted";
    /// `ScalingLimited`: more was wanted.
    pub const TOO_MANY_REPLICAS: &str = "TooManyReplicas";
    /// `ScalingLimited`: less was wanted.
    pub const TOO_FEW_REPLICAS: &str = "TooFewReplicas";
    /// `ScalingLimited`: no.
    pub const DESIRED_WITHIN_RANGE: &str = "DesiredWithinRange";
    /// `TimedOut`: the timeout expired.
    pub const CLAIM_TIMEOUT_REACHED: &str = "ClaimTimeoutReached";
}

/// The value of the annotation `lock` on a sandbox that its SandboxSet is about to delete.
pub const SCALE_DOWN_LOCK: &str = "__manager_scale_down";

/// The value of the annotation `kept-by` on a sandbox whose pod belongs to a ReplicaSet of one.
pub const REPLICA_SET: &str = "ReplicaSet";

/// The prefix of labels that Agent-Sandbox's tools select sandboxes by. Only this program sets them.
pub const SBX_PREFIX: &str = "sbx-";

/// The runtimes of `spec.runtimes`.
pub mod runtime {
    /// The daemon that serves commands and files.
    pub const AGENT_RUNTIME: &str = "agent-runtime";
    /// The CSI sidecar.
    pub const CSI: &str = "csi";
    /// The traffic proxy.
    pub const TRAFFIC_PROXY: &str = "traffic-proxy";
}

/// Contents of checkpoints and of `spec.persistentContents`.
pub mod content {
    /// The address of the pod.
    pub const IP: &str = "ip";
    /// The memory of all processes.
    pub const MEMORY: &str = "memory";
    /// The writable layer.
    pub const FILESYSTEM: &str = "filesystem";
    /// The difference between the pod and its template.
    pub const POD_INFO: &str = "podInfo";
}

/// Whether a label or annotation key belongs to the controllers or to the E2B API.
#[must_use]
pub fn is_reserved(key: &str) -> bool {
    [PREFIX, E2B_PREFIX, SHOAL_PREFIX]
        .iter()
        .any(|prefix| key.starts_with(prefix))
}

/// Whether a text can be the key of a label or annotation: a name, behind a domain and a slash or not.
#[must_use]
pub fn is_key(text: &str) -> bool {
    let (domain, name) = match text.split_once('/') {
        Some((domain, name)) => (Some(domain), name),
        None => (None, text),
    };
    let is_part = |part: &str| is_label_value(part) && !part.is_empty();
    let is_domain_part = |part: &str| is_part(part) && !part.contains(['_', '.']);
    let is_domain = |domain: &str| {
        domain.len() <= LONGEST_DOMAIN
            && domain == domain.to_lowercase()
            && domain.split('.').all(is_domain_part)
    };
    is_part(name) && domain.is_none_or(is_domain)
}

/// Whether a text can be the value of a label.
#[must_use]
pub fn is_label_value(text: &str) -> bool {
    let is_end = |end: Option<char>| end.is_none_or(|end| end.is_ascii_alphanumeric());
    text.len() <= LONGEST_LABEL
        && is_end(text.chars().next())
        && is_end(text.chars().next_back())
        && text
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
}

/// The longest domain of a key.
const LONGEST_DOMAIN: usize = 253;

/// The longest value of a label.
const LONGEST_LABEL: usize = 63;

/// A name as the value of a label. A long one is cut, and its hash makes it unique.
#[must_use]
pub fn label_value(name: &str) -> String {
    if name.len() <= LONGEST_LABEL {
        return name.to_owned();
    }
    // Names of objects are ASCII.
    let kept = name.get(..LONGEST_LABEL - 9).unwrap_or_default();
    format!("{kept}-{}", hash::of_name(name))
}

#[cfg(test)]
mod tests;
