use super::ConversionError;
use super::kept::{put, remove, take, whole};
use crate::names::annotation::{ALPHA_TEMPLATE, BETA_TEMPLATE_POLICY};
use crate::parts::InjectionPolicy;
use crate::{v1alpha1, v1beta1};

/// Converts to v1beta1.
///
/// # Errors
/// When the annotation with the policy for volume claims is invalid, or the object cannot be written as
/// JSON.
pub fn to_v1beta1(
    mut object: v1alpha1::SandboxTemplate,
) -> Result<v1beta1::SandboxTemplate, ConversionError> {
    let policy = remove(&mut object.metadata, BETA_TEMPLATE_POLICY)
        .map(|value| match value.as_str() {
            "Allowed" => Ok(InjectionPolicy::Allowed),
            "Overrides" => Ok(InjectionPolicy::Overrides),
            "Disallowed" => Ok(InjectionPolicy::Disallowed),
            _ => Err(ConversionError::Policy {
                key: BETA_TEMPLATE_POLICY,
                value,
            }),
        })
        .transpose()?;
    let original = whole(&object, ALPHA_TEMPLATE)?;
    put(&mut object.metadata, ALPHA_TEMPLATE, original);
    let spec = object.spec;
    Ok(v1beta1::SandboxTemplate {
        metadata: object.metadata,
        spec: v1beta1::SandboxTemplateSpec {
            pod_template: spec.pod_template,
            volume_claim_templates: spec.volume_claim_templates,
            network_policy: spec.network_policy,
            network_policy_management: spec.network_policy_management,
            env_vars_injection_policy: spec.env_vars_injection_policy,
            volume_claim_templates_policy: policy,
            service: spec.service,
        },
        status: None,
    })
}

/// Converts to v1alpha1. The policy for volume claims becomes an annotation.
///
/// # Errors
/// None today: every v1beta1 template has a v1alpha1 form.
pub fn to_v1alpha1(
    mut object: v1beta1::SandboxTemplate,
) -> Result<v1alpha1::SandboxTemplate, ConversionError> {
    let original: Option<v1alpha1::SandboxTemplate> = take(&mut object.metadata, ALPHA_TEMPLATE);
    remove(&mut object.metadata, BETA_TEMPLATE_POLICY);
    let spec = object.spec;
    if let Some(policy) = spec.volume_claim_templates_policy {
        let policy = match policy {
            InjectionPolicy::Allowed => "Allowed",
            InjectionPolicy::Overrides => "Overrides",
            InjectionPolicy::Disallowed => "Disallowed",
        };
        put(
            &mut object.metadata,
            BETA_TEMPLATE_POLICY,
            policy.to_owned(),
        );
    }
    Ok(v1alpha1::SandboxTemplate {
        metadata: object.metadata,
        spec: v1alpha1::SandboxTemplateSpec {
            pod_template: spec.pod_template,
            volume_claim_templates: spec.volume_claim_templates,
            network_policy: spec.network_policy,
            network_policy_management: spec.network_policy_management,
            env_vars_injection_policy: spec.env_vars_injection_policy,
            service: spec.service,
        },
        status: original.and_then(|original| original.status),
    })
}
