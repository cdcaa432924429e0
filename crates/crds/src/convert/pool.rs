use serde::{Deserialize, Serialize};

use super::ConversionError;
use super::kept::{put, remove, take, whole};
use crate::names::annotation::{ALPHA_POOL, BETA_POOL};
use crate::{v1alpha1, v1beta1};

/// The fields that v1alpha1 lacks.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct BetaOnly {
    observed_generation: i64,
}

/// Converts to v1beta1.
///
/// # Errors
/// When the object cannot be written as JSON.
pub fn to_v1beta1(
    mut object: v1alpha1::SandboxWarmPool,
) -> Result<v1beta1::SandboxWarmPool, ConversionError> {
    let beta_only: Option<BetaOnly> = take(&mut object.metadata, BETA_POOL);
    let original = whole(&object, ALPHA_POOL)?;
    put(&mut object.metadata, ALPHA_POOL, original);
    let spec = object.spec;
    Ok(v1beta1::SandboxWarmPool {
        metadata: object.metadata,
        spec: v1beta1::SandboxWarmPoolSpec {
            replicas: Some(spec.replicas),
            sandbox_template_ref: spec.sandbox_template_ref,
            update_strategy: spec.update_strategy,
        },
        status: object.status.map(|status| v1beta1::SandboxWarmPoolStatus {
            replicas: status.replicas,
            ready_replicas: status.ready_replicas,
            selector: status.selector,
            observed_generation: beta_only.map(|kept| kept.observed_generation),
        }),
    })
}

/// Converts to v1alpha1. Absent replicas are 1.
///
/// # Errors
/// When a part cannot be written as JSON.
pub fn to_v1alpha1(
    mut object: v1beta1::SandboxWarmPool,
) -> Result<v1alpha1::SandboxWarmPool, ConversionError> {
    remove(&mut object.metadata, ALPHA_POOL);
    remove(&mut object.metadata, BETA_POOL);
    if let Some(observed_generation) = object
        .status
        .as_ref()
        .and_then(|status| status.observed_generation)
    {
        let kept = serde_json::to_string(&BetaOnly {
            observed_generation,
        })
        .map_err(|source| ConversionError::Invalid {
            kind: "SandboxWarmPool",
            source,
        })?;
        put(&mut object.metadata, BETA_POOL, kept);
    }
    let spec = object.spec;
    Ok(v1alpha1::SandboxWarmPool {
        metadata: object.metadata,
        spec: v1alpha1::SandboxWarmPoolSpec {
            replicas: spec.replicas.unwrap_or(1),
            sandbox_template_ref: spec.sandbox_template_ref,
            update_strategy: spec.update_strategy,
        },
        status: object.status.map(|status| v1alpha1::SandboxWarmPoolStatus {
            replicas: status.replicas,
            ready_replicas: status.ready_replicas,
            selector: status.selector,
        }),
    })
}
