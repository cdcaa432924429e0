//! The pod and the volume claims of a sandbox.

use serde_json::{Map, Value, json};
use shoal_checkpoint::{DAEMON, RUNTIME_PREFIX};
use shoal_crds::kruise::names::{GROUP, RUNTIME_CLASS, VERSION, label, label_value};
use shoal_crds::kruise::{RuntimeRef, Sandbox, revision};
use shoal_crds::parts::Pairs;
use shoal_crds::parts::{PodTemplate, VolumeClaimTemplate};

use super::runtime::RuntimeInjection;

/// The template of a sandbox's pod: its own, or the one that it refers to.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Blueprint {
    pub(super) template: PodTemplate,
    pub(super) volume_claim_templates: Vec<VolumeClaimTemplate>,
    pub(super) runtimes: Vec<RuntimeRef>,
    pub(super) revision: String,
}

impl Blueprint {
    /// The blueprint of a sandbox with an inline template.
    pub(super) fn inline(sandbox: &Sandbox) -> Option<Self> {
        Some(Self {
            template: sandbox.spec.template.clone()?,
            volume_claim_templates: sandbox.spec.volume_claim_templates.clone(),
            runtimes: sandbox.spec.runtimes.clone(),
            revision: revision::of_sandbox(&sandbox.spec)?,
        })
    }

    /// The blueprint of a sandbox with a reference. The sandbox's own fields come first.
    pub(super) fn referred(
        sandbox: &Sandbox,
        template: &shoal_crds::kruise::SandboxTemplate,
    ) -> Option<Self> {
        fn first<T: Clone>(own: &[T], other: &[T]) -> Vec<T> {
            if own.is_empty() { other } else { own }.to_vec()
        }
        Some(Self {
            template: template.spec.template.clone()?,
            volume_claim_templates: first(
                &sandbox.spec.volume_claim_templates,
                &template.spec.volume_claim_templates,
            ),
            runtimes: first(&sandbox.spec.runtimes, &template.spec.runtimes),
            revision: revision::of_sandbox(&sandbox.spec)?,
        })
    }

    /// Whether its pod can be saved.
    pub(super) fn is_savable(&self) -> bool {
        let class = self.template.spec.get("runtimeClassName");
        class.and_then(Value::as_str) == Some(RUNTIME_CLASS)
    }

    /// The checkpoint that the sandbox, or its template, names.
    pub(super) fn restored_from<'a>(&'a self, sandbox: &'a Sandbox) -> Option<&'a str> {
        sandbox.restored_from(Some(&self.template))
    }

    /// The labels of the pod.
    pub(super) fn labels(&self, sandbox: &str) -> Pairs {
        let mut labels = self.template.metadata.labels.clone();
        for (key, value) in [
            (label::CREATED_BY, "sandbox".to_owned()),
            (label::SANDBOX_NAME, label_value(sandbox)),
            (label::POD_TEMPLATE_HASH, self.revision.clone()),
        ] {
            labels.insert(key.to_owned(), value);
        }
        labels
    }

    /// The annotations of the pod.
    pub(super) fn annotations(&self) -> Pairs {
        let mut annotations = self.template.metadata.annotations.clone();
        // The runtime obeys them: they are the operator's.
        annotations.retain(|key, _| !key.starts_with(RUNTIME_PREFIX));
        annotations.insert(label::CREATED_BY.to_owned(), "sandbox".to_owned());
        annotations
    }
}

/// The reference that makes a sandbox the controller of an object.
pub(super) fn controller_ref(sandbox: &Sandbox) -> Value {
    json!({
        "apiVersion": format!("{GROUP}/{VERSION}"),
        "kind": "Sandbox",
        "name": sandbox.metadata.name,
        "uid": sandbox.metadata.uid,
        "controller": true,
        "blockOwnerDeletion": true,
    })
}

/// The name of a volume claim.
pub(super) fn claim_name(template: &VolumeClaimTemplate, sandbox: &str) -> String {
    format!("{}-{sandbox}", template.metadata.name)
}

/// A volume claim. Only the specification comes from the template.
pub(super) fn volume_claim(sandbox: &Sandbox, template: &VolumeClaimTemplate) -> Value {
    let name = sandbox.metadata.name.as_deref().unwrap_or_default();
    json!({
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {
            "name": claim_name(template, name),
            "namespace": sandbox.metadata.namespace,
            "ownerReferences": [controller_ref(sandbox)],
        },
        "spec": template.spec,
    })
}

/// The pod to create. `savable` is whether the pod can be saved and restored.
pub(super) fn manifest(
    sandbox: &Sandbox,
    blueprint: &Blueprint,
    injection: &RuntimeInjection,
    savable: bool,
) -> Result<Value, String> {
    let name = sandbox.metadata.name.as_deref().unwrap_or_default();
    let mut spec = blueprint.template.spec.clone();
    add_volumes(&mut spec, &blueprint.volume_claim_templates, name)?;
    let uid = sandbox.metadata.uid.as_deref().unwrap_or_default();
    let daemon = injection.apply(&mut spec, &blueprint.runtimes, uid, savable)?;
    let mut annotations = blueprint.annotations();
    if let Some(container) = daemon {
        annotations.insert(DAEMON.to_owned(), container);
    }
    Ok(json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": sandbox.metadata.namespace,
            "labels": blueprint.labels(name),
            "annotations": annotations,
            "ownerReferences": [controller_ref(sandbox)],
        },
        "spec": spec,
    }))
}

fn add_volumes(
    spec: &mut Map<String, Value>,
    templates: &[VolumeClaimTemplate],
    sandbox: &str,
) -> Result<(), String> {
    for template in templates {
        let volume = json!({
            "name": template.metadata.name,
            "persistentVolumeClaim": {"claimName": claim_name(template, sandbox)},
        });
        let volumes = spec.entry("volumes").or_insert_with(|| json!([]));
        let volumes = volumes
            .as_array_mut()
            .ok_or("volumes of the template is no list")?;
        volumes.retain(|known| known.get("name") != volume.get("name"));
        volumes.push(volume);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sandbox(spec: &Value) -> Sandbox {
        let metadata = json!({"name": "s", "namespace": "ns", "uid": "u"});
        serde_json::from_value(json!({"metadata": metadata, "spec": spec})).unwrap()
    }

    fn template() -> Value {
        json!({
            "metadata": {"labels": {"app": "x"}, "annotations": {"note": "y", "shoal.dev/restore-from": "other"}},
            "spec": {"containers": [{"name": "c"}], "volumes": [{"name": "data", "emptyDir": {}}], "unknown": 1},
        })
    }

    #[test]
    fn a_pod_has_the_metadata_of_its_template_and_of_its_sandbox() {
        let sandbox = sandbox(&json!({"template": template()}));
        let blueprint = Blueprint::inline(&sandbox).unwrap();
        let pod = manifest(&sandbox, &blueprint, &RuntimeInjection::default(), false).unwrap();
        let metadata = &pod["metadata"];
        assert_eq!(metadata["name"], "s");
        assert_eq!(metadata["labels"]["app"], "x");
        assert_eq!(metadata["labels"]["agents.kruise.io/created-by"], "sandbox");
        assert_eq!(metadata["labels"]["agents.kruise.io/sandbox-name"], "s");
        assert_eq!(metadata["labels"]["pod-template-hash"], blueprint.revision);
        assert_eq!(metadata["annotations"]["note"], "y");
        assert!(
            metadata["annotations"]
                .get(RUNTIME_PREFIX.to_owned() + "restore-from")
                .is_none()
        );
        assert_eq!(
            metadata["annotations"]["agents.kruise.io/created-by"],
            "sandbox"
        );
        assert_eq!(metadata["ownerReferences"][0]["uid"], "u");
        assert_eq!(pod["spec"]["unknown"], 1);
    }

    #[test]
    fn volume_claims_replace_volumes_of_their_name() {
        let claim = json!({"metadata": {"name": "data", "labels": {"a": "b"}}, "spec": {"accessModes": ["ReadWriteOnce"]}});
        let sandbox = sandbox(&json!({"template": template(), "volumeClaimTemplates": [claim]}));
        let blueprint = Blueprint::inline(&sandbox).unwrap();
        let pod = manifest(&sandbox, &blueprint, &RuntimeInjection::default(), false).unwrap();
        let volume = json!({"name": "data", "persistentVolumeClaim": {"claimName": "data-s"}});
        assert_eq!(pod["spec"]["volumes"], json!([volume]));
        let claim = volume_claim(&sandbox, &blueprint.volume_claim_templates[0]);
        assert_eq!(claim["metadata"]["name"], "data-s");
        assert_eq!(claim["metadata"].get("labels"), None);
        assert_eq!(claim["spec"], json!({"accessModes": ["ReadWriteOnce"]}));
    }

    #[test]
    fn a_sandbox_with_a_reference_uses_that_template() {
        let sandbox = sandbox(&json!({"templateRef": {"name": "t"}}));
        assert_eq!(Blueprint::inline(&sandbox), None);
        let referred = serde_json::from_value(json!({
            "metadata": {"name": "t"},
            "spec": {"template": template(), "runtimes": [{"name": "agent-runtime"}]},
        }))
        .unwrap();
        let blueprint = Blueprint::referred(&sandbox, &referred).unwrap();
        assert_eq!(blueprint.runtimes[0].name, "agent-runtime");
        assert_eq!(
            Some(blueprint.revision),
            revision::of_sandbox(&sandbox.spec)
        );
    }
}
