use serde::{Deserialize, Serialize};

use crate::parts::{
    ClaimLifecycle, EnvVar, NameRef, PodMetadata, SandboxClaimStatus, VolumeClaimTemplate,
    is_default,
};
use crate::resource::resource;

resource!(
    /// A request for a sandbox, from a pool if it has one ready.
    SandboxClaim, SandboxClaimSpec, SandboxClaimStatus, "extensions.agents.x-k8s.io", "v1beta1", "sandboxclaims"
);

/// The desired state of a claim.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SandboxClaimSpec {
    /// The pool.
    pub warm_pool_ref: NameRef,
    /// When it ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lifecycle: Option<ClaimLifecycle>,
    /// Labels and annotations for the pod.
    #[serde(default, skip_serializing_if = "is_default")]
    pub additional_pod_metadata: PodMetadata,
    /// Variables for the containers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub env: Vec<EnvVar>,
    /// Volume claims for the pod.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub volume_claim_templates: Vec<VolumeClaimTemplate>,
}
