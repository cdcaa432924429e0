use serde::{Deserialize, Serialize};

use super::ConversionError;
use super::kept::{put, remove, take, whole};
use crate::names::annotation::{ALPHA_SANDBOX, BETA_SANDBOX};
use crate::v1beta1::OperatingMode;
use crate::{v1alpha1, v1beta1};

/// The fields that v1alpha1 lacks.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct BetaOnly {
    node_name: String,
}

/// Converts to v1beta1. 0 replicas are `Suspended`, everything else is `Running`.
///
/// # Errors
/// When the object cannot be written as JSON.
pub fn to_v1beta1(mut object: v1alpha1::Sandbox) -> Result<v1beta1::Sandbox, ConversionError> {
    let beta_only: Option<BetaOnly> = take(&mut object.metadata, BETA_SANDBOX);
    let original = whole(&object, ALPHA_SANDBOX)?;
    put(&mut object.metadata, ALPHA_SANDBOX, original);
    let spec = object.spec;
    Ok(v1beta1::Sandbox {
        metadata: object.metadata,
        spec: v1beta1::SandboxSpec {
            pod_template: spec.pod_template,
            volume_claim_templates: spec.volume_claim_templates,
            service: spec.service,
            shutdown_time: spec.shutdown_time,
            shutdown_policy: spec.shutdown_policy,
            operating_mode: Some(match spec.replicas {
                Some(0) => OperatingMode::Suspended,
                _ => OperatingMode::Running,
            }),
        },
        status: object.status.map(|status| v1beta1::SandboxStatus {
            service_fqdn: status.service_fqdn,
            service: status.service,
            conditions: status.conditions,
            selector: status.selector,
            pod_ips: status.pod_ips,
            node_name: beta_only.map(|kept| kept.node_name).unwrap_or_default(),
        }),
    })
}

/// Converts to v1alpha1.
///
/// # Errors
/// When a part cannot be written as JSON.
pub fn to_v1alpha1(mut object: v1beta1::Sandbox) -> Result<v1alpha1::Sandbox, ConversionError> {
    let original: Option<v1alpha1::Sandbox> = take(&mut object.metadata, ALPHA_SANDBOX);
    remove(&mut object.metadata, BETA_SANDBOX);
    if let Some(status) = object
        .status
        .as_ref()
        .filter(|status| !status.node_name.is_empty())
    {
        let kept = BetaOnly {
            node_name: status.node_name.clone(),
        };
        let kept = serde_json::to_string(&kept).map_err(|source| ConversionError::Invalid {
            kind: "Sandbox",
            source,
        })?;
        put(&mut object.metadata, BETA_SANDBOX, kept);
    }
    let spec = object.spec;
    let suspended = spec.operating_mode == Some(OperatingMode::Suspended);
    let replicas = match (&original, suspended) {
        (_, true) => Some(0),
        (Some(original), false) if original.spec.replicas != Some(0) => original.spec.replicas,
        _ => Some(1),
    };
    Ok(v1alpha1::Sandbox {
        metadata: object.metadata,
        spec: v1alpha1::SandboxSpec {
            pod_template: spec.pod_template,
            volume_claim_templates: spec.volume_claim_templates,
            service: spec.service,
            shutdown_time: spec.shutdown_time,
            shutdown_policy: spec.shutdown_policy,
            replicas,
        },
        status: object
            .status
            .map(|status| alpha_status(status, original, suspended)),
    })
}

/// The status in v1alpha1. Its `replicas` are those of the original while nothing else in the status
/// has changed since. After that, an original in v1alpha1 has a selector exactly while it has a pod;
/// any other sandbox has a pod unless it is suspended.
fn alpha_status(
    status: v1beta1::SandboxStatus,
    original: Option<v1alpha1::Sandbox>,
    suspended: bool,
) -> v1alpha1::SandboxStatus {
    let has_pod = if original.is_some() {
        !status.selector.is_empty()
    } else {
        !suspended
    };
    let mut converted = v1alpha1::SandboxStatus {
        service_fqdn: status.service_fqdn,
        service: status.service,
        conditions: status.conditions,
        replicas: None,
        selector: status.selector,
        pod_ips: status.pod_ips,
    };
    let before = original.and_then(|original| original.status);
    converted.replicas = match before {
        Some(before)
            if (v1alpha1::SandboxStatus {
                replicas: None,
                ..before.clone()
            }) == converted =>
        {
            before.replicas
        }
        _ => Some(i32::from(has_pod)),
    };
    converted
}
