//! The objects that a pool creates: its sandboxes, and the template of its revision.

use serde_json::{Value, json};
use shoal_crds::kruise::names::{GROUP, VERSION, label, label_value};
use shoal_crds::kruise::{
    SandboxSet, SandboxSetSpec, SandboxTemplate, SandboxTemplateSpec, revision,
};

use crate::failure::Failure;
use crate::pool::generated_name;

/// The longest name of an object, without the hash of a revision.
const LONGEST_PREFIX: usize = 240;

/// The revision of a pool.
pub(super) fn revision(spec: &SandboxSetSpec) -> String {
    revision::of_set(spec)
}

/// The reference that makes a pool the controller of an object.
fn controller_ref(set: &SandboxSet, block: bool) -> Value {
    json!({
        "apiVersion": format!("{GROUP}/{VERSION}"),
        "kind": "SandboxSet",
        "name": set.metadata.name,
        "uid": set.metadata.uid,
        "controller": true,
        "blockOwnerDeletion": block,
    })
}

/// The label selector of the unclaimed sandboxes.
pub(super) fn selector(set: &SandboxSet) -> String {
    let name = set.metadata.name.as_deref().unwrap_or_default();
    format!(
        "{}={},{}=false",
        label::SANDBOX_POOL,
        label_value(name),
        label::SANDBOX_CLAIMED
    )
}

/// The JSON of a new sandbox.
pub(super) fn sandbox(set: &SandboxSet, revision: &str) -> Result<Value, Failure> {
    let name = set.metadata.name.as_deref().unwrap_or_default();
    // With a name of its own: a create whose answer is lost can be recognised.
    let (name, prefix) = generated_name(name)?;
    let mut sandbox = set.member(revision);
    sandbox.metadata.name = Some(name);
    sandbox.metadata.generate_name = Some(prefix);
    let mut manifest = serde_json::to_value(&sandbox)?;
    manifest["metadata"]["ownerReferences"] = json!([controller_ref(set, true)]);
    Ok(manifest)
}

/// The name of the template of the revision.
pub(super) fn template_name(set: &SandboxSet) -> String {
    let name = set.metadata.name.as_deref().unwrap_or_default();
    let cut = name.get(..LONGEST_PREFIX).unwrap_or(name);
    format!("{cut}-{}", revision(&set.spec))
}

/// The template of the revision.
pub(super) fn template(set: &SandboxSet) -> Value {
    let spec = &set.spec;
    let template = SandboxTemplate {
        metadata: k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta {
            name: Some(template_name(set)),
            namespace: set.metadata.namespace.clone(),
            ..Default::default()
        },
        spec: SandboxTemplateSpec {
            template: set.pod_template(),
            volume_claim_templates: spec.volume_claim_templates.clone(),
            persistent_contents: spec.persistent_contents.clone(),
            runtimes: spec.runtimes.clone(),
            pause_strategy: spec.pause_strategy.clone(),
        },
        status: None,
    };
    let mut manifest = json!(template);
    manifest["metadata"]["ownerReferences"] = json!([controller_ref(set, false)]);
    manifest
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(spec: Value) -> SandboxSet {
        let metadata = json!({"name": "pool", "namespace": "ns", "uid": "u"});
        serde_json::from_value(json!({"metadata": metadata, "spec": spec})).unwrap()
    }

    fn template_json() -> Value {
        json!({
            "metadata": {
                "labels": {"app": "x", "agents.kruise.io/sandbox-claimed": "true", "e2b.agents.kruise.io/a": "b"},
                "annotations": {"agents.kruise.io/cleanup-enabled": "true", "agents.kruise.io/lock": "me"},
            },
            "spec": {"containers": [{"name": "c"}]},
        })
    }

    #[test]
    fn a_sandbox_carries_the_labels_of_its_pool() {
        let set = set(
            json!({"replicas": 1, "template": template_json(), "persistentContents": ["memory"]}),
        );
        let made = sandbox(&set, "rev").unwrap();
        let metadata = &made["metadata"];
        assert!(metadata["name"].as_str().unwrap().starts_with("pool-"));
        assert_eq!(metadata["generateName"], "pool-");
        assert_eq!(
            metadata["labels"],
            json!({
                "app": "x",
                "agents.kruise.io/sandbox-pool": "pool",
                "agents.kruise.io/sandbox-template": "pool",
                "agents.kruise.io/sandbox-claimed": "false",
                "agents.kruise.io/template-hash": "rev",
            })
        );
        let annotations = &metadata["annotations"];
        assert_eq!(annotations["agents.kruise.io/cleanup-enabled"], "true");
        assert_eq!(annotations.get("agents.kruise.io/lock"), None);
        assert!(
            annotations
                .get("sandbox.agents.kruise.io/hash-immutable-part")
                .is_some()
        );
        assert_eq!(metadata["ownerReferences"][0]["kind"], "SandboxSet");
        let pod = &made["spec"]["template"]["spec"];
        assert_eq!(pod["automountServiceAccountToken"], false);
        assert_eq!(made["spec"]["persistentContents"], json!(["memory"]));
    }

    #[test]
    fn a_reference_is_copied() {
        let set = set(json!({"replicas": 1, "templateRef": {"name": "shared"}}));
        let made = sandbox(&set, "rev").unwrap();
        assert_eq!(made["spec"]["templateRef"]["name"], "shared");
        assert_eq!(
            made["metadata"]["labels"]["agents.kruise.io/sandbox-template"],
            "shared"
        );
    }

    #[test]
    fn the_template_of_a_revision_is_owned_and_does_not_block() {
        let set = set(json!({"replicas": 1, "template": template_json()}));
        let made = template(&set);
        assert_eq!(made["metadata"]["name"], template_name(&set));
        assert_eq!(
            made["metadata"]["ownerReferences"][0]["blockOwnerDeletion"],
            false
        );
        assert_eq!(
            made["spec"]["template"]["spec"]["containers"][0]["name"],
            "c"
        );
    }
}
