//! Groups, labels and annotations that clients and other controllers compare.

/// The group of `Sandbox`.
pub const GROUP: &str = "agents.x-k8s.io";
/// The group of templates, claims and pools.
pub const EXTENSIONS_GROUP: &str = "extensions.agents.x-k8s.io";

/// Labels.
pub mod label {
    /// The hash of the sandbox's name, on its pod, service and volume claims. The selector of both.
    pub const SANDBOX_NAME_HASH: &str = "agents.x-k8s.io/sandbox-name-hash";
    /// The hash of the pool's name, on its members and their pods. A claim removes it.
    pub const WARM_POOL: &str = "agents.x-k8s.io/warm-pool-sandbox";
    /// The hash of the template's name. Network policies select pods by it.
    pub const TEMPLATE_REF_HASH: &str = "agents.x-k8s.io/sandbox-template-ref-hash";
    /// The hash of the template's pod, on pool members.
    pub const POD_TEMPLATE_HASH: &str = "agents.x-k8s.io/sandbox-pod-template-hash";
    /// The hash of everything that a template gives a sandbox, on pool members.
    pub const TEMPLATE_HASH: &str = "agents.x-k8s.io/sandbox-template-hash";
    /// The UID of the claim, on its sandbox and pod.
    pub const CLAIM_UID: &str = "agents.x-k8s.io/claim-uid";
    /// `cold` or `warm`, written once.
    pub const LAUNCH_TYPE: &str = "agents.x-k8s.io/launch-type";
    /// The kind of client that created the object.
    pub const CREATED_BY: &str = "agents.x-k8s.io/created-by";
    /// `"true"` allows a sandbox to adopt an object without an owner.
    pub const ADOPTABLE: &str = "agents.x-k8s.io/adoptable";
    /// The sandbox of a claim: a label in v1alpha1.
    pub const SANDBOX_NAME: &str = "agents.x-k8s.io/sandbox-name";
}

/// Annotations.
pub mod annotation {
    /// The name of the sandbox's pod.
    pub const POD_NAME: &str = "agents.x-k8s.io/pod-name";
    /// The name of the template, for metrics.
    pub const TEMPLATE_REF: &str = "agents.x-k8s.io/sandbox-template-ref";
    /// The label keys that the pod got from its template.
    pub const PROPAGATED_LABELS: &str = "agents.x-k8s.io/propagated-labels";
    /// The annotation keys that the pod got from its template.
    pub const PROPAGATED_ANNOTATIONS: &str = "agents.x-k8s.io/propagated-annotations";
    /// The sandbox of a claim.
    pub const SANDBOX_NAME: &str = "agents.x-k8s.io/sandbox-name";
    /// When the controller first saw the claim.
    pub const FIRST_OBSERVED: &str = "agents.x-k8s.io/controller-first-observed-at";
    /// When an admission webhook first saw the claim.
    pub const WEBHOOK_FIRST_OBSERVED: &str = "agents.x-k8s.io/webhook-first-observed-at";
    /// When a client requested the claim.
    pub const CLIENT_FIRST_REQUESTED: &str = "agents.x-k8s.io/client-first-requested-at";
    /// When the claim became ready for the first time.
    pub const FIRST_READY: &str = "agents.x-k8s.io/claim-first-ready-at";
    /// The W3C trace context of the object, as a JSON map.
    pub const TRACE_CONTEXT: &str = "opentelemetry.io/trace-context";
    /// Whether the cluster autoscaler may evict the pod.
    pub const SAFE_TO_EVICT: &str = "cluster-autoscaler.kubernetes.io/safe-to-evict";
    /// The v1alpha1 form of a sandbox that was written in that version.
    pub const ALPHA_SANDBOX: &str = "api.agents.x-k8s.io/v1alpha1-sandbox-state";
    /// The v1alpha1 form of a claim that was written in that version.
    pub const ALPHA_CLAIM: &str = "api.agents.x-k8s.io/v1alpha1-sandboxclaim-state";
    /// The v1alpha1 form of a template that was written in that version.
    pub const ALPHA_TEMPLATE: &str = "api.agents.x-k8s.io/v1alpha1-sandboxtemplate-state";
    /// The v1alpha1 form of a pool that was written in that version.
    pub const ALPHA_POOL: &str = "api.agents.x-k8s.io/v1alpha1-sandboxwarmpool-state";
    /// The fields of a sandbox that v1alpha1 lacks, shown in that version only.
    pub const BETA_SANDBOX: &str = "api.agents.x-k8s.io/v1beta1-sandbox-state";
    /// The fields of a claim that v1alpha1 lacks, shown in that version only.
    pub const BETA_CLAIM: &str = "api.agents.x-k8s.io/v1beta1-sandboxclaim-state";
    /// The fields of a pool that v1alpha1 lacks, shown in that version only.
    pub const BETA_POOL: &str = "api.agents.x-k8s.io/v1beta1-sandboxwarmpool-state";
    /// The policy for volume claims of a template, shown in v1alpha1 only.
    pub const BETA_TEMPLATE_POLICY: &str =
        "api.agents.x-k8s.io/v1beta1-volume-claim-templates-policy";
}

/// The prefix of the pool of a template whose v1alpha1 claims name no pool.
pub const SHADOW_POOL: &str = "shadow-pool-";

/// Whether a label or annotation key belongs to the controllers. Templates cannot set such keys.
#[must_use]
pub fn is_reserved(key: &str) -> bool {
    key == annotation::TRACE_CONTEXT
        || key
            .split_once('/')
            .is_some_and(|(domain, _)| domain == GROUP || domain == EXTENSIONS_GROUP)
}
