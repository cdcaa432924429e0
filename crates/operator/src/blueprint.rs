//! The settings of a template for the sandboxes of pools and claims, with secure defaults.

use serde_json::{Value, json};
use shoal_crds::convert::{sandbox_to_v1beta1, written_in_v1alpha1};
use shoal_crds::hash;
use shoal_crds::parts::{NetworkPolicyManagement, PodTemplate, VolumeClaimTemplate};
use shoal_crds::v1alpha1;
use shoal_crds::v1beta1::{Sandbox, SandboxSpec, SandboxTemplate};

use crate::failure::Failure;

/// Resolvers outside the cluster: the default network policy does not reach the cluster's own.
const NAMESERVERS: [&str; 2] = ["8.8.8.8", "1.1.1.1"];

/// The parts of a template that a sandbox is created from.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Blueprint {
    pub(crate) pod_template: PodTemplate,
    pub(crate) volume_claim_templates: Option<Vec<VolumeClaimTemplate>>,
    pub(crate) service: Option<bool>,
}

impl Blueprint {
    /// The blueprint of a template: no service account token unless the template says so, and public
    /// resolvers where the default network policy applies.
    pub(crate) fn of(template: &SandboxTemplate) -> Self {
        let spec = &template.spec;
        let mut pod_template = spec.pod_template.clone();
        let pod = &mut pod_template.spec;
        if pod
            .get("automountServiceAccountToken")
            .is_none_or(Value::is_null)
        {
            pod.insert("automountServiceAccountToken".to_owned(), false.into());
        }
        let managed =
            spec.network_policy_management.unwrap_or_default() == NetworkPolicyManagement::Managed;
        let dns = pod
            .get("dnsPolicy")
            .and_then(Value::as_str)
            .unwrap_or_default();
        if managed && spec.network_policy.is_none() && dns.is_empty() {
            pod.insert("dnsPolicy".to_owned(), "None".into());
            pod.insert("dnsConfig".to_owned(), json!({"nameservers": NAMESERVERS}));
        }
        Self {
            pod_template,
            volume_claim_templates: spec
                .volume_claim_templates
                .clone()
                .filter(|claims| !claims.is_empty()),
            service: spec.service,
        }
    }

    /// A hash of everything that makes a member outdated when it changes. Metadata does not.
    pub(crate) fn hash(&self) -> String {
        let claims: Vec<Value> = self
            .volume_claim_templates
            .iter()
            .flatten()
            .map(|claim| json!([claim.metadata.name, claim.spec]))
            .collect();
        hash::of_name(&json!([self.pod_template.spec, claims, self.service]).to_string())
    }

    /// Whether a sandbox has the same pod, volume claims and service.
    pub(crate) fn matches(&self, sandbox: &SandboxSpec) -> bool {
        let claims = |claims: &Option<Vec<VolumeClaimTemplate>>| -> Vec<Value> {
            let each = claims.iter().flatten();
            each.map(|claim| json!([claim.metadata.name, claim.spec]))
                .collect()
        };
        self.pod_template.spec == sandbox.pod_template.spec
            && claims(&self.volume_claim_templates) == claims(&sandbox.volume_claim_templates)
            && self.service == sandbox.service
    }
}

/// The JSON of a new sandbox. One for an owner that was written in v1alpha1 is written in that version, too.
pub(crate) fn manifest(sandbox: Sandbox, v1alpha1: bool) -> Result<Value, Failure> {
    if !v1alpha1 {
        return Ok(serde_json::to_value(&sandbox)?);
    }
    let original = v1alpha1::Sandbox {
        metadata: sandbox.metadata,
        spec: v1alpha1::SandboxSpec {
            pod_template: sandbox.spec.pod_template,
            volume_claim_templates: sandbox.spec.volume_claim_templates,
            service: sandbox.spec.service,
            shutdown_time: sandbox.spec.shutdown_time,
            shutdown_policy: sandbox.spec.shutdown_policy,
            replicas: Some(1),
        },
        status: None,
    };
    let converted =
        sandbox_to_v1beta1(original).map_err(|error| Failure::Refused(error.to_string()))?;
    Ok(serde_json::to_value(&converted)?)
}

/// The reference that makes an object of the extensions group the controller of another.
pub(crate) fn controller_ref<K>(object: &K) -> Value
where
    K: kube::Resource<DynamicType = ()>,
{
    let meta = object.meta();
    let version = if written_in_v1alpha1(meta) {
        "v1alpha1"
    } else {
        "v1beta1"
    };
    json!({
        "apiVersion": format!("{}/{version}", shoal_crds::names::EXTENSIONS_GROUP),
        "kind": K::kind(&()),
        "name": meta.name,
        "uid": meta.uid,
        "controller": true,
        "blockOwnerDeletion": true,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blueprint(spec: &Value) -> Blueprint {
        let mut template = json!({"metadata": {"name": "t"}, "spec": {"podTemplate": {"spec": {"containers": []}}}});
        for (field, value) in spec.as_object().unwrap() {
            template["spec"][field] = value.clone();
        }
        Blueprint::of(&serde_json::from_value(template).unwrap())
    }

    #[test]
    fn pods_have_no_token_and_public_resolvers_by_default() {
        let pod = blueprint(&json!({})).pod_template.spec;
        assert_eq!(pod["automountServiceAccountToken"], false);
        assert_eq!(pod["dnsPolicy"], "None");
        assert_eq!(
            pod["dnsConfig"]["nameservers"],
            json!(["8.8.8.8", "1.1.1.1"])
        );
    }

    #[test]
    fn what_a_template_says_is_respected() {
        let pod = json!({"spec": {"containers": [], "automountServiceAccountToken": true, "dnsPolicy": "ClusterFirst"}});
        let pod = blueprint(&json!({"podTemplate": pod})).pod_template.spec;
        assert_eq!(pod["automountServiceAccountToken"], true);
        assert_eq!(pod["dnsPolicy"], "ClusterFirst");
        for spec in [
            json!({"networkPolicyManagement": "Unmanaged"}),
            json!({"networkPolicy": {}}),
        ] {
            assert!(
                blueprint(&spec)
                    .pod_template
                    .spec
                    .get("dnsPolicy")
                    .is_none(),
                "{spec}"
            );
        }
    }

    #[test]
    fn metadata_is_no_part_of_the_hash() {
        let labelled = json!({"podTemplate": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": []}}});
        assert_eq!(blueprint(&labelled).hash(), blueprint(&json!({})).hash());
        assert_ne!(
            blueprint(&json!({"service": true})).hash(),
            blueprint(&json!({})).hash()
        );
    }
}
