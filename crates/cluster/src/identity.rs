//! Identifiers that depend on the names of objects alone, so that all replicas agree.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use shoal_core::id::{BuildId, ExecutionId, KeyId, SandboxId, TeamId, TemplateId, entropy_of};
use shoal_crds::kruise::Sandbox;
use shoal_crds::kruise::names::label;

/// The namespace and the name of an object.
pub(crate) type Key = (String, String);

/// The key of an object.
pub(crate) fn key(metadata: &ObjectMeta) -> Key {
    let of = |field: &Option<String>| field.clone().unwrap_or_default();
    (of(&metadata.namespace), of(&metadata.name))
}

/// The team of a namespace.
pub(crate) fn team(namespace: &str) -> TeamId {
    TeamId::from_entropy(entropy_of(&["namespace", namespace]))
}

/// How many characters of an id are random, and how many depend on its namespace.
const RANDOM: usize = 17;
const BOUND: usize = 8;

/// A new id for a sandbox of a namespace: `i`, random characters, and others that bind it to the namespace.
pub(crate) fn new_sandbox_id(namespace: &str, entropy: [u8; 16]) -> Option<SandboxId> {
    let random = SandboxId::from_entropy(entropy);
    let random = random.as_str().get(..RANDOM)?;
    format!("{random}{}", bound(namespace, random)).parse().ok()
}

/// The characters that bind an id to its namespace. A client that may write sandboxes in one namespace
/// cannot label one with an id of another.
fn bound(namespace: &str, random: &str) -> String {
    let id = SandboxId::from_entropy(entropy_of(&["bound", namespace, random]));
    let id = id.as_str();
    id.get(id.len() - BOUND..).unwrap_or_default().to_owned()
}

fn is_of(namespace: &str, id: &str) -> bool {
    id.len() == RANDOM + BOUND
        && id
            .split_at_checked(RANDOM)
            .is_some_and(|(random, rest)| rest == bound(namespace, random))
}

/// The id of a sandbox: that of its label, which a claim sets, or else one of its UID.
pub(crate) fn sandbox_id(sandbox: &Sandbox) -> SandboxId {
    let namespace = sandbox.metadata.namespace.as_deref().unwrap_or_default();
    let labels = sandbox.metadata.labels.as_ref();
    let given = labels.and_then(|labels| labels.get(label::SANDBOX_ID));
    let given = given.filter(|id| is_of(namespace, id));
    given.and_then(|id| id.parse().ok()).unwrap_or_else(|| {
        let uid = sandbox.metadata.uid.as_deref().unwrap_or_default();
        SandboxId::from_entropy(entropy_of(&["sandbox", uid]))
    })
}

/// A run of a sandbox: a pod with its address.
pub(crate) fn execution(pod: &str, address: &str) -> ExecutionId {
    ExecutionId::from_entropy(entropy_of(&["pod", pod, address]))
}

/// The id of a SandboxSet as a template.
pub(crate) fn template(namespace: &str, name: &str) -> TemplateId {
    TemplateId::from_entropy(entropy_of(&["template", namespace, name]))
}

/// The id of a revision of a SandboxSet as a build.
pub(crate) fn build(namespace: &str, name: &str, revision: &str) -> BuildId {
    BuildId::from_entropy(entropy_of(&["build", namespace, name, revision]))
}

/// The id of the first API key.
pub(crate) fn first_key(hash: &str) -> KeyId {
    KeyId::from_entropy(entropy_of(&["first key", hash]))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn sandbox(metadata: serde_json::Value) -> Sandbox {
        serde_json::from_value(json!({"metadata": metadata, "spec": {}})).unwrap()
    }

    #[test]
    fn the_id_of_a_sandbox_is_its_label_or_depends_on_its_uid() {
        let given = new_sandbox_id("team", [7; 16]).unwrap();
        assert_eq!(given.as_str().len(), RANDOM + BOUND);
        let labelled = |namespace: &str, id: &str| {
            let labels = json!({"agents.kruise.io/sandbox-id": id});
            let metadata = json!({"uid": "u", "namespace": namespace, "labels": labels});
            sandbox_id(&sandbox(metadata))
        };
        assert_eq!(labelled("team", given.as_str()), given);
        let plain = sandbox_id(&sandbox(json!({"uid": "u"})));
        assert_eq!(
            plain,
            sandbox_id(&sandbox(json!({"uid": "u", "name": "other"})))
        );
        assert_ne!(plain, sandbox_id(&sandbox(json!({"uid": "v"}))));
        // A label of another namespace's sandbox, and one that no claim has written.
        assert_eq!(labelled("thief", given.as_str()), plain);
        for foreign in ["iabc", "A--b", "", "é", "i", &"i".repeat(RANDOM + BOUND)] {
            assert_eq!(labelled("team", foreign), plain, "{foreign}");
        }
    }

    #[test]
    fn names_cannot_be_shifted_between_the_parts_of_an_id() {
        assert_ne!(template("a", "bc"), template("ab", "c"));
    }
}
