//! Snapshots and pauses of sandboxes: Checkpoints, each with the SandboxTemplate of its name, from which clones are made.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp as Time;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use shoal_core::clock::Timestamp;
use shoal_core::id::{SandboxId, SnapshotId, entropy_of};
use shoal_core::snapshot::{Contents, Saved, SnapshotRecord};
use shoal_core::template::{DEFAULT_TAG, TemplateName, TemplateRef};
use shoal_crds::kruise::names::annotation;
use shoal_crds::kruise::{
    Checkpoint, CheckpointPhase, InitRequest, SandboxSet, SandboxSetSpec, SandboxTemplate, duration,
};

use crate::identity::{self, key};
use crate::versions::{self, Tags};
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
    /// The tags that it has, if it has a name.
    tags: Tags,
    /// The template, as a set of which a clone is the only member.
    set: Arc<SandboxSet>,
}

/// The other names of a checkpoint: its ids, here and as a template, and the name of its snapshot.
pub(crate) fn index(checkpoint: &Checkpoint) -> Vec<String> {
    let (namespace, _) = key(&checkpoint.metadata);
    let id = id_of(checkpoint);
    if id.is_empty() {
        return Vec::new();
    }
    let template = identity::template(&namespace, id);
    let ids = [id, template.as_str()];
    let mut names: Vec<String> = ids.map(|id| id_index(&namespace, id)).into();
    names.extend(versions::name_of(checkpoint).map(|name| name_index(&namespace, &name)));
    names
}

fn id_index(namespace: &str, id: &str) -> String {
    format!("{namespace}/{id}")
}

fn name_index(namespace: &str, name: &TemplateName) -> String {
    format!("{namespace}/name/{name}")
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

    /// Waits until all checkpoints and their templates are known.
    pub(crate) async fn synced(&self) {
        self.checkpoints.synced().await;
        self.templates.synced().await;
    }

    /// The complete checkpoint with this id, or with this name and tag, in a namespace.
    pub(crate) fn find(&self, namespace: &str, text: &str) -> Option<SavedSandbox> {
        self.find_meant(namespace, &text.parse().ok()?)
    }

    /// The complete checkpoint that a reference means in a namespace.
    pub(crate) fn find_meant(
        &self,
        namespace: &str,
        reference: &TemplateRef,
    ) -> Option<SavedSandbox> {
        if reference
            .namespace
            .as_deref()
            .is_some_and(|of| of != namespace)
        {
            return None;
        }
        let tag = reference.tag.as_deref().unwrap_or(DEFAULT_TAG);
        if tag == DEFAULT_TAG
            && let Some(found) = self
                .checkpoints
                .find(&id_index(namespace, reference.name.as_str()))
        {
            return self.with_template(found);
        }
        let versions = self.versions(namespace, &reference.name);
        let meant = versions
            .iter()
            .find(|version| versions::current(version, &versions).contains_key(tag))?;
        self.with_template(meant.clone())
    }

    /// The complete checkpoints of a name in a namespace.
    pub(crate) fn versions(&self, namespace: &str, name: &TemplateName) -> Vec<Arc<Checkpoint>> {
        let mut all = self.checkpoints.find_all(&name_index(namespace, name));
        all.retain(|checkpoint| is_complete(checkpoint));
        all
    }

    /// The tags that a checkpoint has, if it has a name.
    fn tags(&self, checkpoint: &Checkpoint) -> Option<Tags> {
        let (namespace, _) = key(&checkpoint.metadata);
        let name = versions::name_of(checkpoint)?;
        let versions = self.versions(&namespace, &name);
        Some(versions::current(checkpoint, &versions))
    }

    /// The complete checkpoints of a namespace that are snapshots, the newest first. A version that has lost all of its
    /// tags is about to be deleted.
    pub(crate) fn list(&self, namespace: &str) -> Vec<SavedSandbox> {
        let own = |checkpoint: &Checkpoint| {
            checkpoint.metadata.namespace.as_deref() == Some(namespace) && !is_copy(checkpoint)
        };
        let own = self.checkpoints.filter(own).into_iter();
        let mut all: Vec<_> = own.filter_map(|one| self.with_template(one)).collect();
        all.retain(|one| !one.tags.is_empty() || versions::name_of(&one.checkpoint).is_none());
        let order = |one: &SavedSandbox| {
            let meta = &one.checkpoint.metadata;
            let created = meta.creation_timestamp.as_ref().map(|at| at.0);
            // Times of Kubernetes are seconds; a version is given its first tag when it is made.
            let given = versions::given(&one.checkpoint).into_values().min();
            (created, given, meta.name.clone())
        };
        all.sort_by_key(|one| std::cmp::Reverse(order(one)));
        all
    }

    fn with_template(&self, checkpoint: Arc<Checkpoint>) -> Option<SavedSandbox> {
        if !is_complete(&checkpoint) {
            return None;
        }
        let template = self.templates.get(&key(&checkpoint.metadata))?;
        // Another template with this name does not count.
        let owners = template.metadata.owner_references.iter().flatten();
        let uid = checkpoint.metadata.uid.as_ref();
        let owned = owners.into_iter().any(|owner| Some(&owner.uid) == uid);
        let tags = self.tags(&checkpoint).unwrap_or_default();
        owned.then(|| SavedSandbox::of(checkpoint, tags, &template))
    }
}

/// Whether a checkpoint can be cloned.
fn is_complete(checkpoint: &Checkpoint) -> bool {
    let phase = checkpoint.status.as_ref().and_then(|status| status.phase);
    let complete = phase == Some(CheckpointPhase::Succeeded) && !id_of(checkpoint).is_empty();
    complete && checkpoint.metadata.deletion_timestamp.is_none() && !is_expired(checkpoint)
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
    fn of(checkpoint: Arc<Checkpoint>, tags: Tags, template: &SandboxTemplate) -> Self {
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
            tags,
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
        let mut tags: BTreeMap<String, Timestamp> = self
            .tags
            .iter()
            .map(|(tag, time)| (tag.clone(), at(*time)))
            .collect();
        let tag = match tags.remove_entry(DEFAULT_TAG).or_else(|| tags.pop_first()) {
            Some((tag, _)) => tag,
            None => DEFAULT_TAG.to_owned(),
        };
        SnapshotRecord {
            id: SnapshotId::from_entropy(entropy_of(&["checkpoint", &uid])),
            template: identity::template(&namespace, self.id()),
            tag,
            more_tags: tags,
            name: versions::name_of(&self.checkpoint),
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
pub(crate) mod tests;
