//! Snapshots and pauses of sandboxes: Checkpoints, each with the SandboxTemplate of its name, from which clones are made.

use std::sync::Arc;

use jiff::Timestamp as Time;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use shoal_core::clock::Timestamp;
use shoal_core::id::{SandboxId, SnapshotId, entropy_of};
use shoal_core::snapshot::{Contents, Saved, SnapshotRecord};
use shoal_core::template::DEFAULT_TAG;
use shoal_crds::kruise::names::annotation;
use shoal_crds::kruise::{
    Checkpoint, CheckpointPhase, InitRequest, SandboxSet, SandboxSetSpec, SandboxTemplate, duration,
};

use crate::identity::{self, key};
use crate::watched::Watched;
use crate::{pod, record};

/// The ids of checkpoints are hexadecimal digits of these lengths, with a hyphen between.
const ID: (usize, usize) = (32, 24);

/// The checkpoints of all namespaces, and their templates.
pub(crate) struct Saves {
    pub(crate) checkpoints: Arc<Watched<Checkpoint>>,
    pub(crate) templates: Arc<Watched<SandboxTemplate>>,
}

/// A complete checkpoint, and what clones of it are made of.
#[derive(Debug, Clone)]
pub(crate) struct SavedSandbox {
    checkpoint: Arc<Checkpoint>,
    /// The template, as a set of which a clone is the only member.
    set: Arc<SandboxSet>,
}

/// The other names of a checkpoint: its ids, here and as a template.
pub(crate) fn index(checkpoint: &Checkpoint) -> Vec<String> {
    let (namespace, _) = key(&checkpoint.metadata);
    let id = id_of(checkpoint);
    if id.is_empty() {
        return Vec::new();
    }
    let template = identity::template(&namespace, id);
    let ids = [id, template.as_str()];
    ids.map(|id| id_index(&namespace, id)).into()
}

fn id_index(namespace: &str, id: &str) -> String {
    format!("{namespace}/{id}")
}

fn id_of(checkpoint: &Checkpoint) -> &str {
    let status = checkpoint.status.as_ref();
    status.map_or("", |status| status.checkpoint_id.as_str())
}

impl Saves {
    pub(crate) fn new() -> Self {
        Self {
            checkpoints: Arc::new(Watched::new(index)),
            templates: Arc::new(Watched::new(|_| Vec::new())),
        }
    }

    /// The complete checkpoint with this id in a namespace.
    pub(crate) fn find(&self, namespace: &str, text: &str) -> Option<SavedSandbox> {
        let text = text.to_lowercase();
        let id = text.strip_suffix(":default").unwrap_or(&text);
        self.with_template(self.checkpoints.find(&id_index(namespace, id))?)
    }

    /// The complete checkpoints of a namespace that are snapshots, the newest first.
    pub(crate) fn list(&self, namespace: &str) -> Vec<SavedSandbox> {
        let own = |checkpoint: &Checkpoint| {
            checkpoint.metadata.namespace.as_deref() == Some(namespace) && !is_copy(checkpoint)
        };
        let own = self.checkpoints.filter(own).into_iter();
        let mut all: Vec<_> = own.filter_map(|one| self.with_template(one)).collect();
        let order = |one: &SavedSandbox| {
            let meta = &one.checkpoint.metadata;
            let created = meta.creation_timestamp.as_ref().map(|at| at.0);
            (created, meta.name.clone())
        };
        all.sort_by_key(|one| std::cmp::Reverse(order(one)));
        all
    }

    fn with_template(&self, checkpoint: Arc<Checkpoint>) -> Option<SavedSandbox> {
        let phase = checkpoint.status.as_ref()?.phase;
        let complete = phase == Some(CheckpointPhase::Succeeded) && !id_of(&checkpoint).is_empty();
        let stays = checkpoint.metadata.deletion_timestamp.is_none() && !is_expired(&checkpoint);
        if !complete || !stays {
            return None;
        }
        let template = self.templates.get(&key(&checkpoint.metadata))?;
        // Another template with this name does not count.
        let owners = template.metadata.owner_references.iter().flatten();
        let uid = checkpoint.metadata.uid.as_ref();
        let owned = owners.into_iter().any(|owner| Some(&owner.uid) == uid);
        owned.then(|| SavedSandbox::of(checkpoint, &template))
    }
}

/// Whether a text has the form of a checkpoint's id.
pub(crate) fn is_id(text: &str) -> bool {
    let digits = |part: &str, count| {
        let digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        part.len() == count && part.bytes().all(digit)
    };
    let parts = text.split_once('-');
    parts.is_some_and(|(key, digest)| digits(key, ID.0) && digits(digest, ID.1))
}

/// Whether it is the copy of a fork, which is not listed.
fn is_copy(checkpoint: &Checkpoint) -> bool {
    checkpoint.annotation(annotation::COPY_OF_FORK) == Some("true")
}

/// When it expires.
fn expiry(checkpoint: &Checkpoint) -> Option<Time> {
    let completed = checkpoint.status.as_ref()?.completion_time.as_ref()?.0;
    let kept = duration::parse_with_days(checkpoint.spec.ttl_after_finished.as_deref()?)?;
    completed.checked_add(kept).ok()
}

fn is_expired(checkpoint: &Checkpoint) -> bool {
    expiry(checkpoint).is_some_and(|at| at <= Time::now())
}

impl SavedSandbox {
    fn of(checkpoint: Arc<Checkpoint>, template: &SandboxTemplate) -> Self {
        let template_spec = template.spec.clone();
        let set = SandboxSet {
            metadata: ObjectMeta {
                name: template.metadata.name.clone(),
                namespace: template.metadata.namespace.clone(),
                ..Default::default()
            },
            spec: SandboxSetSpec {
                template: template_spec.template,
                volume_claim_templates: template_spec.volume_claim_templates,
                persistent_contents: template_spec.persistent_contents,
                runtimes: template_spec.runtimes,
                pause_strategy: template_spec.pause_strategy,
                ..SandboxSetSpec::default()
            },
            status: None,
        };
        Self {
            checkpoint,
            set: Arc::new(set),
        }
    }

    /// The set whose only member is the clone.
    pub(crate) fn set(&self) -> &Arc<SandboxSet> {
        &self.set
    }

    /// The checkpoint.
    pub(crate) fn checkpoint(&self) -> &Checkpoint {
        &self.checkpoint
    }

    /// The id by which users name it.
    pub(crate) fn id(&self) -> &str {
        id_of(&self.checkpoint)
    }

    /// Whether it has memory.
    pub(crate) fn contents(&self) -> Contents {
        Contents::with_memory(self.checkpoint.spec.has_memory())
    }

    /// The settings of the daemon in its memory.
    pub(crate) fn init(&self) -> Option<InitRequest> {
        let kept = self
            .checkpoint
            .annotation(annotation::INIT_RUNTIME_REQUEST)?;
        serde_json::from_str(kept).ok()
    }

    /// The record that the API layer reads.
    pub(crate) fn record(&self) -> SnapshotRecord {
        let (namespace, _) = key(&self.checkpoint.metadata);
        let uid = self.checkpoint.metadata.uid.clone().unwrap_or_default();
        let member = self.set.member("");
        let spec = record::of(&member, Time::now()).spec;
        let source = self.checkpoint.annotation(annotation::SANDBOX_ID);
        let source = source.and_then(|id| id.parse().ok());
        let created = self.checkpoint.metadata.creation_timestamp.as_ref();
        let at = |time: Time| Timestamp::from_unix_millis(time.as_millisecond());
        SnapshotRecord {
            id: SnapshotId::from_entropy(entropy_of(&["checkpoint", &uid])),
            template: identity::template(&namespace, self.id()),
            tag: DEFAULT_TAG.to_owned(),
            more_tags: std::collections::BTreeMap::new(),
            name: None,
            team: identity::team(&namespace),
            source: source.unwrap_or_else(|| SandboxId::from_entropy(entropy_of(&["of", &uid]))),
            spec,
            guest_token: None,
            saved: Saved {
                contents: self.contents(),
                runtime: pod::runtime(self.set.spec.template.as_ref()),
                freeze: std::time::Duration::ZERO,
                memory_bytes: 0,
                file_bytes: 0,
                copied: String::new(),
            },
            created_at: at(created.map_or(Time::UNIX_EPOCH, |time| time.0)),
            expires_at: expiry(&self.checkpoint).map(at),
            backend_id: Some(self.id().to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const KEY: &str = "0123456789abcdef0123456789abcdef-0123456789abcdef01234567";

    fn saved(change: &Value) -> (Checkpoint, SandboxTemplate) {
        let mut checkpoint = json!({
            "metadata": {
                "name": "s-x", "namespace": "team", "uid": "u", "creationTimestamp": "2026-01-02T03:04:05Z",
                "annotations": {"agents.kruise.io/init-runtime-request": r#"{"accessToken": "old"}"#},
            },
            "spec": {"podName": "s"},
            "status": {"phase": "Succeeded", "checkpointId": KEY, "completionTime": "2026-01-02T03:04:06Z"},
        });
        for (pointer, value) in change.as_object().into_iter().flatten() {
            let (parent, field) = pointer.rsplit_once('/').unwrap();
            checkpoint.pointer_mut(parent).unwrap()[field] = value.clone();
        }
        let template = json!({
            "metadata": {"name": "s-x", "namespace": "team", "ownerReferences": [
                {"apiVersion": "agents.kruise.io/v1alpha1", "kind": "Checkpoint", "name": "s-x", "uid": "u"},
            ]},
            "spec": {"template": {"spec": {"containers": [{"name": "main", "image": "app:1"}]}}},
        });
        let checkpoint = serde_json::from_value(checkpoint).unwrap();
        (checkpoint, serde_json::from_value(template).unwrap())
    }

    fn found(change: &Value, owner: &str) -> Option<SavedSandbox> {
        let (checkpoint, mut template) = saved(change);
        template.metadata.owner_references.as_mut().unwrap()[0].uid = owner.to_owned();
        let saves = Saves::new();
        saves.checkpoints.put(checkpoint);
        saves.templates.put(template);
        saves.find("team", KEY)
    }

    #[test]
    fn a_complete_checkpoint_is_found_by_its_id_in_its_namespace() {
        let known = found(&json!({}), "u").unwrap();
        let record = known.record();
        assert_eq!(record.reference("team"), KEY);
        assert!(record.is_meant_by(&KEY.parse().unwrap()));
        assert!(record.saved.contents.has_memory());
        assert_eq!(known.init().unwrap().access_token, "old");
        let (checkpoint, _) = saved(&json!({}));
        assert!(!index(&checkpoint).contains(&id_index("other", KEY)));
    }

    #[test]
    fn what_is_not_complete_or_not_its_own_is_not_found() {
        for change in [
            json!({"/status/phase": "Creating"}),
            json!({"/status/phase": "Failed"}),
            json!({"/metadata/deletionTimestamp": "2026-01-02T03:04:05Z"}),
            json!({"/spec/ttlAfterFinished": "30m"}),
        ] {
            assert!(found(&change, "u").is_none(), "{change}");
        }
        assert!(found(&json!({}), "another").is_none());
        assert!(found(&json!({"/spec/ttlAfterFinished": "100000d"}), "u").is_some());
    }

    #[test]
    fn ids_are_told_from_names() {
        assert!(is_id(KEY));
        for other in [
            "code",
            "",
            "0123-4567",
            &KEY.replace('a', "g"),
            &format!("{KEY}0"),
        ] {
            assert!(!is_id(other), "{other}");
        }
    }
}
