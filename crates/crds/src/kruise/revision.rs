//! Revisions of templates.

use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use super::sandbox::SandboxSpec;
use super::sandbox_set::SandboxSetSpec;
use crate::hash;
use crate::parts::PodTemplate;

/// The hexadecimal digits of a revision.
const DIGITS: usize = 9;

/// The characters of generated names, as the API server uses them: they form no words.
const SAFE: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

/// Encodes a text in characters that form no words.
#[must_use]
pub fn safe_encoded(text: &str) -> String {
    text.bytes()
        .map(|byte| char::from(SAFE[usize::from(byte) % SAFE.len()]))
        .collect()
}

fn of_json(value: &Value) -> String {
    let digest = Sha256::digest(value.to_string().as_bytes());
    let digits: String = digest
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect::<String>()
        .chars()
        .take(DIGITS)
        .collect();
    safe_encoded(&digits)
}

fn as_json(template: &PodTemplate) -> Value {
    json!({"metadata": template.metadata, "spec": template.spec})
}

/// The revision of a sandbox: of its inline template, or of its reference. `None` without both.
#[must_use]
pub fn of_sandbox(spec: &SandboxSpec) -> Option<String> {
    if let Some(template) = &spec.template {
        return Some(of_json(&as_json(template)));
    }
    let reference = spec.template_ref.as_ref()?;
    Some(of_json(&json!([
        reference.api_version,
        reference.kind,
        reference.name
    ])))
}

/// The revision of a SandboxSet: of everything that it gives to its sandboxes.
#[must_use]
pub fn of_set(spec: &SandboxSetSpec) -> String {
    let all = json!([
        spec.template,
        spec.template_ref,
        spec.volume_claim_templates,
        spec.persistent_contents,
        spec.runtimes,
        spec.pause_strategy,
    ]);
    safe_encoded(&hash::of_name(&all.to_string()))
}

/// The revision of a pod template.
#[must_use]
pub fn of_template(template: &PodTemplate) -> String {
    of_json(&as_json(template))
}

/// The revision of what an in-place update cannot change: all but labels, annotations, and the images and
/// resources of containers.
#[must_use]
pub fn of_immutable_part(template: &PodTemplate) -> String {
    let mut spec: Map<String, Value> = Map::clone(&template.spec);
    for list in ["containers", "initContainers"] {
        let containers = spec.get_mut(list).and_then(Value::as_array_mut);
        for container in containers.into_iter().flatten() {
            if let Some(container) = container.as_object_mut() {
                container.remove("image");
                container.remove("resources");
            }
        }
    }
    of_json(&Value::Object(spec))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn template(value: Value) -> PodTemplate {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn a_revision_is_a_label_value_of_nine_safe_characters() {
        let revision = of_template(&template(json!({"spec": {"containers": []}})));
        assert_eq!(revision.len(), DIGITS);
        assert!(revision.bytes().all(|byte| SAFE.contains(&byte)));
    }

    #[test]
    fn images_resources_and_metadata_change_the_revision_but_not_the_immutable_part() {
        let first = template(json!({
            "metadata": {"labels": {"a": "b"}},
            "spec": {"containers": [{"name": "c", "image": "one", "resources": {"limits": {"cpu": "1"}}}]},
        }));
        let second = template(json!({"spec": {"containers": [{"name": "c", "image": "two"}]}}));
        assert_ne!(of_template(&first), of_template(&second));
        assert_eq!(of_immutable_part(&first), of_immutable_part(&second));
        let third =
            template(json!({"spec": {"containers": [{"name": "c", "image": "two", "env": []}]}}));
        assert_ne!(of_immutable_part(&third), of_immutable_part(&second));
    }

    #[test]
    fn a_reference_has_a_revision_of_its_own() {
        let mut spec = SandboxSpec::default();
        assert_eq!(of_sandbox(&spec), None);
        spec.template_ref = serde_json::from_value(json!({"name": "t"})).unwrap();
        let first = of_sandbox(&spec).unwrap();
        spec.template_ref = serde_json::from_value(json!({"name": "u"})).unwrap();
        assert_ne!(of_sandbox(&spec).unwrap(), first);
    }
}
