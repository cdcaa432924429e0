//! The sandbox of a claim: a new one, or the patch that takes one from a pool.

use serde_json::{Map, Value, json};
use shoal_crds::convert::written_in_v1alpha1;
use shoal_crds::hash;
use shoal_crds::names::{annotation, label};
use shoal_crds::parts::PodMetadata;
use shoal_crds::v1beta1::{OperatingMode, Sandbox, SandboxClaim, SandboxTemplate};

use super::refusal::Refusal;
use super::{inject, metadata};
use crate::blueprint::{Blueprint, controller_ref};

/// The metadata of the pod: the template's, the claim's, and the labels of the controllers.
fn pod_metadata(claim: &SandboxClaim, template: &SandboxTemplate) -> Result<PodMetadata, Refusal> {
    let mut merged = metadata::merge(
        &template.spec.pod_template.metadata,
        &claim.spec.additional_pod_metadata,
    )?;
    let uid = claim.metadata.uid.clone().unwrap_or_default();
    let template_hash = hash::of_name(template.metadata.name.as_deref().unwrap_or_default());
    merged.labels.insert(label::CLAIM_UID.to_owned(), uid);
    merged
        .labels
        .insert(label::TEMPLATE_REF_HASH.to_owned(), template_hash);
    if let Some(created_by) = label_of(claim, label::CREATED_BY) {
        merged
            .labels
            .insert(label::CREATED_BY.to_owned(), created_by.to_owned());
    }
    Ok(merged)
}

fn label_of<'a>(claim: &'a SandboxClaim, key: &str) -> Option<&'a str> {
    claim.metadata.labels.as_ref()?.get(key).map(String::as_str)
}

fn trace_context(claim: &SandboxClaim) -> Option<&str> {
    claim
        .metadata
        .annotations
        .as_ref()?
        .get(annotation::TRACE_CONTEXT)
        .map(String::as_str)
}

/// A new sandbox with the claim's name.
///
/// # Errors
/// When the template does not allow an addition of the claim.
pub(super) fn cold(claim: &SandboxClaim, template: &SandboxTemplate) -> Result<Sandbox, Refusal> {
    let v1alpha1 = written_in_v1alpha1(&claim.metadata);
    let mut blueprint = Blueprint::of(template);
    blueprint.pod_template.metadata = pod_metadata(claim, template)?;
    let policy = template.spec.env_vars_injection_policy.unwrap_or_default();
    inject::env(
        &mut blueprint.pod_template.spec,
        &claim.spec.env,
        policy,
        v1alpha1,
    )?;
    let policy = template
        .spec
        .volume_claim_templates_policy
        .unwrap_or_default();
    let volume_claims = inject::volume_claims(
        blueprint.volume_claim_templates,
        &claim.spec.volume_claim_templates,
        policy,
    )?;
    let template_name = template.metadata.name.as_deref().unwrap_or_default();
    let mut object = json!({
        "name": claim.metadata.name,
        "namespace": claim.metadata.namespace,
        "labels": {
            label::CLAIM_UID: claim.metadata.uid,
            label::LAUNCH_TYPE: "cold",
            label::TEMPLATE_REF_HASH: hash::of_name(template_name),
        },
        "annotations": {
            annotation::TEMPLATE_REF: template_name,
            annotation::POD_NAME: claim.metadata.name,
        },
        "ownerReferences": [controller_ref(claim)],
    });
    if let Some(created_by) = label_of(claim, label::CREATED_BY) {
        object["labels"][label::CREATED_BY] = created_by.into();
    }
    if let Some(context) = trace_context(claim) {
        object["annotations"][annotation::TRACE_CONTEXT] = context.into();
    }
    let mut sandbox = Sandbox {
        metadata: serde_json::from_value(object)?,
        ..Sandbox::default()
    };
    sandbox.spec.pod_template = blueprint.pod_template;
    sandbox.spec.volume_claim_templates = volume_claims;
    sandbox.spec.service = blueprint.service;
    sandbox.spec.operating_mode = Some(OperatingMode::Running);
    Ok(sandbox)
}

/// The patch that makes a pool's member the claim's. It fails if the member has changed.
///
/// # Errors
/// When the claim's metadata contradicts the template's.
pub(super) fn adoption(
    claim: &SandboxClaim,
    template: &SandboxTemplate,
    member: &Sandbox,
) -> Result<Value, Refusal> {
    let v1alpha1 = written_in_v1alpha1(&claim.metadata);
    let wanted = pod_metadata(claim, template)?;
    let mut labels = json!({
        label::WARM_POOL: null,
        label::POD_TEMPLATE_HASH: null,
        label::TEMPLATE_HASH: null,
        label::CLAIM_UID: claim.metadata.uid,
        label::LAUNCH_TYPE: "warm",
        label::CREATED_BY: label_of(claim, label::CREATED_BY),
    });
    if v1alpha1 {
        labels[label::TEMPLATE_REF_HASH] = Value::Null;
    }
    let mut annotations = json!({annotation::POD_NAME: member.metadata.name});
    if let Some(context) = trace_context(claim) {
        annotations[annotation::TRACE_CONTEXT] = context.into();
    }
    Ok(json!({
        "metadata": {
            "uid": member.metadata.uid,
            "resourceVersion": member.metadata.resource_version,
            "labels": labels,
            "annotations": annotations,
            "ownerReferences": [controller_ref(claim)],
        },
        "spec": {"podTemplate": {"metadata": replacement(&member.spec.pod_template.metadata, &wanted)?}},
    }))
}

/// The patch of a claimed sandbox's pod metadata after the claim or the template has changed.
///
/// # Errors
/// When the claim's metadata contradicts the template's.
pub(super) fn sync(
    claim: &SandboxClaim,
    template: &SandboxTemplate,
    sandbox: &Sandbox,
) -> Result<Option<Value>, Refusal> {
    let wanted = pod_metadata(claim, template)?;
    if wanted == sandbox.spec.pod_template.metadata {
        return Ok(None);
    }
    let metadata = replacement(&sandbox.spec.pod_template.metadata, &wanted)?;
    Ok(Some(json!({
        "metadata": {"uid": sandbox.metadata.uid},
        "spec": {"podTemplate": {"metadata": metadata}},
    })))
}

/// The merge patch from one metadata to another.
fn replacement(from: &PodMetadata, to: &PodMetadata) -> Result<Value, Refusal> {
    let change = crate::patch::between(&serde_json::to_value(from)?, &serde_json::to_value(to)?);
    Ok(change.unwrap_or_else(|| Map::new().into()))
}
