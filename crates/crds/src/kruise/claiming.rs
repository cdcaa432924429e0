//! The claim of a sandbox, as data: the changes of one write. The E2B API and SandboxClaims share it.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::names::{annotation, is_reserved, label, label_value};
use super::sandbox::{Sandbox, SandboxSpec};
use super::sandbox_set::SandboxSet;
use crate::parts::{Pairs, PodMetadata, PodTemplate};

/// The longest prefix of a generated name: the API server adds five characters, and a pod's name is a host
/// name.
const PREFIX_MAX: usize = 58;

/// The settings of the daemon in a claimed sandbox. Kept in an annotation, so that a controller can
/// initialize it again after a resume.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InitRequest {
    /// The environment of every process.
    #[serde(default)]
    pub env_vars: BTreeMap<String, String>,
    /// The token that the daemon requires.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub access_token: String,
    /// The token that the daemon requires after the restore: it is in the memory that the sandbox starts from.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub former_token: String,
}

impl InitRequest {
    /// The settings of the daemon in a claimed sandbox; none if it is not claimed, or has no daemon.
    #[must_use]
    pub fn of(sandbox: &Sandbox) -> Option<Self> {
        let annotations = sandbox.metadata.annotations.as_ref()?;
        serde_json::from_str(annotations.get(annotation::INIT_RUNTIME_REQUEST)?).ok()
    }
}

/// The changes of a claim.
#[derive(Clone, Default)]
pub struct Claiming {
    /// The ID of the sandbox for its users.
    pub id: Option<String>,
    /// The owner: the ID of an API key, or the UID of a SandboxClaim.
    pub owner: String,
    /// A text that no other claim uses.
    pub lock: String,
    /// The API key whose quota it counts against.
    pub quota_key: Option<String>,
    /// The time of the claim.
    pub at: Timestamp,
    /// The SandboxClaim.
    pub claim_name: Option<String>,
    /// When the sandbox is deleted.
    pub shutdown_time: Option<Timestamp>,
    /// When the sandbox is paused.
    pub pause_time: Option<Timestamp>,
    /// Labels of the sandbox and its pod.
    pub labels: Pairs,
    /// Annotations of the sandbox.
    pub annotations: Pairs,
    /// Whether the pod gets the annotations, too, except reserved ones.
    pub annotate_pod: bool,
    /// The settings of the daemon; none when it is not initialized.
    pub init: Option<InitRequest>,
}

/// The keys that a claim changed, so that a sandbox can return to its pool.
#[derive(Serialize)]
struct UpdatedMetadata<'a> {
    labels: Vec<&'a String>,
    annotations: Vec<&'a String>,
}

impl Claiming {
    /// Claims a sandbox. The write must name its resource version: then one of several claims wins.
    pub fn claim(&self, sandbox: &mut Sandbox) {
        // The pool replaces a sandbox that it no longer owns.
        sandbox.metadata.owner_references = None;
        sandbox.spec.shutdown_time = self.shutdown_time.map(Time);
        sandbox.spec.pause_time = self.pause_time.map(Time);
        let labels = sandbox.metadata.labels.get_or_insert_default();
        labels.extend(self.labels.clone());
        labels.insert(label::SANDBOX_CLAIMED.to_owned(), "true".to_owned());
        let named = [
            (label::SANDBOX_ID, &self.id),
            (label::CLAIM_NAME, &self.claim_name),
            (label::QUOTA_KEY, &self.quota_key),
        ];
        for (key, value) in named {
            if let Some(value) = value {
                labels.insert(key.to_owned(), value.clone());
            }
        }
        let annotations = sandbox.metadata.annotations.get_or_insert_default();
        let former_token = annotations.get(annotation::FORMER_TOKEN).cloned();
        annotations.extend(self.annotations.clone());
        annotations.extend(self.records(former_token));
        if let Some(template) = &mut sandbox.spec.template {
            self.change_pod(&mut template.metadata);
        }
    }

    /// `former_token` is that of the daemon in a member's memory.
    fn records(&self, former_token: Option<String>) -> Vec<(String, String)> {
        let updated = UpdatedMetadata {
            labels: self.labels.keys().collect(),
            annotations: self.annotations.keys().collect(),
        };
        let mut records = vec![
            (annotation::OWNER, self.owner.clone()),
            (annotation::LOCK, self.lock.clone()),
            (
                annotation::CLAIM_TIMESTAMP,
                milliseconds(self.at).to_string(),
            ),
            (annotation::UPDATED_METADATA_IN_CLAIM, json(&updated)),
        ];
        if let Some(init) = &self.init {
            let mut told = init.clone();
            if let Some(token) = former_token.filter(|_| told.former_token.is_empty()) {
                told.former_token = token;
            }
            records.push((annotation::INIT_RUNTIME_REQUEST, json(&told)));
            if !init.access_token.is_empty() {
                records.push((annotation::RUNTIME_ACCESS_TOKEN, init.access_token.clone()));
            }
        }
        records
            .into_iter()
            .map(|(key, value)| (key.to_owned(), value))
            .collect()
    }

    fn change_pod(&self, pod: &mut PodMetadata) {
        pod.labels.extend(self.labels.clone());
        if self.annotate_pod {
            let free = self.annotations.iter().filter(|(key, _)| !is_reserved(key));
            pod.annotations
                .extend(free.map(|(key, value)| (key.clone(), value.clone())));
        }
    }
}

/// Lists are in the order of claims, of which there are many in a second.
fn milliseconds(at: Timestamp) -> Timestamp {
    Timestamp::from_millisecond(at.as_millisecond()).unwrap_or(at)
}

/// Maps of texts have no value that JSON cannot hold.
fn json<T: Serialize>(value: &T) -> String {
    serde_json::to_string(value).unwrap_or_default()
}

/// Keys of the controllers that a template may give to its sandboxes.
const ALLOWED: [&str; 2] = [
    annotation::CLEANUP_ENABLED,
    annotation::CLEANUP_RETAIN_ON_FAILURE,
];

/// Labels or annotations that sandboxes get from their template.
fn copied(pairs: Option<&Pairs>) -> Pairs {
    let pairs = pairs.into_iter().flatten();
    let pairs = pairs.filter(|(key, _)| !is_reserved(key) || ALLOWED.contains(&key.as_str()));
    pairs
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect()
}

impl SandboxSet {
    /// The pod of its sandboxes. Without a word in the template, pods get no token of a service account.
    #[must_use]
    pub fn pod_template(&self) -> Option<PodTemplate> {
        let mut template = self.spec.template.clone()?;
        template
            .spec
            .entry("automountServiceAccountToken")
            .or_insert(Value::Bool(false));
        Some(template)
    }

    /// A sandbox of this pool, which does not own it yet. The API server chooses its name.
    #[must_use]
    pub fn member(&self, revision: &str) -> Sandbox {
        let name = self.metadata.name.as_deref().unwrap_or_default();
        let template = self.spec.template_ref.as_ref();
        let template = template.map_or(name, |template| template.name.as_str());
        let of_pod = self.spec.template.as_ref().map(|pod| &pod.metadata);
        // Users see what sandboxes have. The pods of a catalogue entry have labels of the installation.
        let of_pod = of_pod.filter(|_| !self.is_of_entry());
        let mut labels = copied(of_pod.map(|pod| &pod.labels));
        for (key, value) in [
            (label::SANDBOX_POOL, label_value(name)),
            (label::SANDBOX_TEMPLATE, label_value(template)),
            (label::SANDBOX_CLAIMED, "false".to_owned()),
            (label::TEMPLATE_HASH, revision.to_owned()),
        ] {
            labels.insert(key.to_owned(), value);
        }
        let mut annotations = copied(of_pod.map(|pod| &pod.annotations));
        annotations.extend(self.handed_on());
        let template = self.pod_template();
        if let Some(template) = &template {
            let hash = super::revision::of_immutable_part(template);
            annotations.insert(annotation::HASH_IMMUTABLE_PART.to_owned(), hash);
        }
        Sandbox {
            metadata: ObjectMeta {
                generate_name: Some(generate_name(name)),
                namespace: self.metadata.namespace.clone(),
                labels: Some(labels),
                annotations: Some(annotations).filter(|annotations| !annotations.is_empty()),
                ..ObjectMeta::default()
            },
            spec: SandboxSpec {
                pause_strategy: self.spec.pause_strategy.clone(),
                persistent_contents: self.spec.persistent_contents.clone(),
                runtimes: self.spec.runtimes.clone(),
                template_ref: self.spec.template_ref.clone(),
                template,
                volume_claim_templates: self.spec.volume_claim_templates.clone(),
                ..SandboxSpec::default()
            },
            status: None,
        }
    }
}

impl SandboxSet {
    /// Whether it was made for an entry of the template catalogue.
    #[must_use]
    pub fn is_of_entry(&self) -> bool {
        let annotations = self.metadata.annotations.as_ref();
        annotations.is_some_and(|known| known.contains_key(annotation::TEMPLATE_ENTRY))
    }

    /// The annotations that its sandboxes get from it.
    fn handed_on(&self) -> impl Iterator<Item = (String, String)> {
        let own = self.metadata.annotations.iter().flatten();
        own.filter(|(key, _)| HANDED_ON.contains(&key.as_str()))
            .map(|(key, value)| (key.clone(), value.clone()))
    }
}

/// Annotations of a set that its sandboxes have, too.
const HANDED_ON: [&str; 3] = [
    annotation::KEPT_BY,
    annotation::STARTUP_COMMAND,
    annotation::TEMPLATE_ENTRY,
];

/// The prefix of generated names. The API server adds five characters, up to the 63 of a DNS label.
#[must_use]
pub fn generate_name(name: &str) -> String {
    // Names of objects are ASCII.
    let kept = name.get(..name.len().min(PREFIX_MAX - 1)).unwrap_or(name);
    format!("{kept}-")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn set() -> SandboxSet {
        serde_json::from_value(json!({
            "metadata": {"name": "code", "namespace": "team"},
            "spec": {
                "replicas": 2,
                "runtimes": [{"name": "agent-runtime"}],
                "template": {
                    "metadata": {
                        "labels": {"app": "code", "agents.kruise.io/other": "x"},
                        "annotations": {"agents.kruise.io/cleanup-enabled": "true", "note": "n"},
                    },
                    "spec": {"containers": [{"name": "main", "image": "i"}]},
                },
            },
        }))
        .unwrap()
    }

    fn claiming() -> Claiming {
        Claiming {
            id: Some("iabc".to_owned()),
            owner: "key".to_owned(),
            lock: "lock".to_owned(),
            at: "2026-01-02T03:04:05.678Z".parse().unwrap(),
            shutdown_time: Some("2026-01-02T04:04:05Z".parse().unwrap()),
            labels: Pairs::from([("tier".to_owned(), "gold".to_owned())]),
            annotations: Pairs::from([("purpose".to_owned(), "test".to_owned())]),
            init: Some(InitRequest {
                env_vars: BTreeMap::from([("A".to_owned(), "b".to_owned())]),
                access_token: "token".to_owned(),
                former_token: String::new(),
            }),
            ..Claiming::default()
        }
    }

    #[test]
    fn a_member_has_the_labels_of_its_pool_and_no_reserved_ones_of_its_template() {
        let member = set().member("r1");
        let labels = member.metadata.labels.unwrap();
        let expected = json!({
            "app": "code",
            "agents.kruise.io/sandbox-pool": "code",
            "agents.kruise.io/sandbox-template": "code",
            "agents.kruise.io/sandbox-claimed": "false",
            "agents.kruise.io/template-hash": "r1",
        });
        assert_eq!(json!(labels), expected);
        let annotations = member.metadata.annotations.unwrap();
        assert_eq!(annotations["agents.kruise.io/cleanup-enabled"], "true");
        assert_eq!(annotations["note"], "n");
        assert!(annotations.contains_key("sandbox.agents.kruise.io/hash-immutable-part"));
        assert_eq!(member.metadata.generate_name.as_deref(), Some("code-"));
        let pod = member.spec.template.unwrap().spec;
        assert_eq!(pod["automountServiceAccountToken"], false, "not asked for");
        assert_eq!(
            pod["containers"],
            set().spec.template.unwrap().spec["containers"]
        );
    }

    #[test]
    fn a_claim_frees_the_sandbox_from_its_pool_and_records_the_owner() {
        let mut sandbox = set().member("r1");
        sandbox.metadata.owner_references = Some(vec![Default::default()]);
        claiming().claim(&mut sandbox);
        assert_eq!(sandbox.metadata.owner_references, None);
        let label = |key: &str| sandbox.metadata.labels.as_ref().unwrap()[key].clone();
        assert_eq!(label("agents.kruise.io/sandbox-claimed"), "true");
        assert_eq!(label("agents.kruise.io/sandbox-pool"), "code");
        assert_eq!(label("agents.kruise.io/sandbox-id"), "iabc");
        assert_eq!(label("tier"), "gold");
        let annotations = sandbox.metadata.annotations.as_ref().unwrap();
        let at = &annotations["agents.kruise.io/claim-timestamp"];
        assert_eq!(at, "2026-01-02T03:04:05.678Z");
        assert_eq!(
            annotations["agents.kruise.io/runtime-access-token"],
            "token"
        );
        let init: InitRequest =
            serde_json::from_str(&annotations["agents.kruise.io/init-runtime-request"]).unwrap();
        assert_eq!(init.env_vars["A"], "b");
        let updated = &annotations["agents.kruise.io/updated-metadata-in-claim"];
        assert_eq!(updated, r#"{"labels":["tier"],"annotations":["purpose"]}"#);
        assert!(sandbox.spec.shutdown_time.is_some());
    }

    #[test]
    fn a_claim_of_a_clone_tells_the_token_that_its_daemon_still_requires() {
        let former = |of_member: Option<&str>, of_request: &str| {
            let mut sandbox = set().member("r1");
            let annotations = sandbox.metadata.annotations.as_mut().unwrap();
            annotations.extend(
                of_member.map(|token| (annotation::FORMER_TOKEN.to_owned(), token.to_owned())),
            );
            let mut claiming = claiming();
            of_request.clone_into(&mut claiming.init.as_mut().unwrap().former_token);
            claiming.claim(&mut sandbox);
            InitRequest::of(&sandbox).unwrap().former_token
        };
        assert_eq!(former(None, ""), "");
        assert_eq!(former(Some("old"), ""), "old");
        assert_eq!(former(Some("old"), "of the snapshot"), "of the snapshot");
    }

    #[test]
    fn the_pod_gets_labels_and_annotations_only_if_asked() {
        let pod = |annotate_pod: bool| {
            let mut sandbox = set().member("r1");
            let claiming = Claiming {
                annotate_pod,
                annotations: Pairs::from([
                    ("purpose".to_owned(), "test".to_owned()),
                    ("e2b.agents.kruise.io/image".to_owned(), "x".to_owned()),
                ]),
                ..claiming()
            };
            claiming.claim(&mut sandbox);
            sandbox.spec.template.unwrap().metadata
        };
        assert_eq!(pod(false).labels["tier"], "gold");
        assert!(!pod(false).annotations.contains_key("purpose"));
        assert_eq!(pod(true).annotations["purpose"], "test");
        assert!(
            !pod(true)
                .annotations
                .contains_key("e2b.agents.kruise.io/image")
        );
    }

    #[test]
    fn a_long_name_leaves_room_for_the_generated_part() {
        let mut set = set();
        set.metadata.name = Some("a".repeat(63));
        let prefix = set.member("r").metadata.generate_name.unwrap();
        assert_eq!(prefix.len(), PREFIX_MAX);
    }
}
