use serde::{Deserialize, Serialize};

use crate::parts::{ClaimLifecycle, EnvVar, NameRef, PodMetadata, SandboxClaimStatus, is_default};
use crate::resource::resource;

resource!(
    /// A request for a sandbox, from a pool if it has one ready.
    SandboxClaim, SandboxClaimSpec, SandboxClaimStatus, "extensions.agents.x-k8s.io", "v1alpha1", "sandboxclaims"
);

/// The value of `warmpool` for any pool of the template.
pub const DEFAULT_POOL: &str = "default";
/// The value of `warmpool` for no pool.
pub const NO_POOL: &str = "none";

/// The desired state of a claim.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SandboxClaimSpec {
    /// The template.
    pub sandbox_template_ref: NameRef,
    /// A pool, [`DEFAULT_POOL`] or [`NO_POOL`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warmpool: Option<String>,
    /// When it ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lifecycle: Option<ClaimLifecycle>,
    /// Labels and annotations for the pod.
    #[serde(default, skip_serializing_if = "is_default")]
    pub additional_pod_metadata: PodMetadata,
    /// Variables for the containers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub env: Vec<EnvVar>,
}
