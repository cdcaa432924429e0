//! The pod of a sandbox: its contents, and the action that it needs.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Map, Value, json};
use shoal_crds::names::{EXTENSIONS_GROUP, annotation, is_reserved, label};
use shoal_crds::parts::Pairs;

use super::model::Wanted;
use crate::owner::{self, Owner};
use crate::restore;
use crate::slim::Pod;

/// The labels that the controllers themselves copy from a sandbox to its pod.
const COPIED: [&str; 4] = [
    label::WARM_POOL,
    label::TEMPLATE_REF_HASH,
    label::CREATED_BY,
    label::CLAIM_UID,
];

/// The next step for the pod.
#[derive(Debug, PartialEq)]
pub(super) enum Plan {
    /// Nothing to do: it does not exist, and should not.
    Absent,
    /// Create it.
    Create(Value),
    /// It exists. Patch its metadata if they differ.
    Keep(Arc<Pod>, Option<Value>),
    /// Delete it.
    Delete(Arc<Pod>),
    /// The sandbox is suspended, and the pod is not the sandbox's.
    LeaveForeign,
    /// Another object's pod has the name.
    Refuse(String),
    /// Several pods have this sandbox as controller.
    Several(usize),
}

/// Plans for the pods that the sandbox controls, and the one with its pod's name.
pub(super) fn plan(wanted: &Wanted<'_>, owned: &[Arc<Pod>], named: Option<&Arc<Pod>>) -> Plan {
    if owned.len() > 1 {
        return Plan::Several(owned.len());
    }
    let pod = owned.first().or(named);
    if wanted.is_suspended() {
        return match pod {
            None => Plan::Absent,
            Some(pod) if owner::owner(&pod.metadata, wanted.uid) == Owner::Own => {
                Plan::Delete(pod.clone())
            }
            Some(_) => Plan::LeaveForeign,
        };
    }
    let Some(pod) = pod else {
        return Plan::Create(manifest(wanted));
    };
    let name = pod.metadata.name.as_deref().unwrap_or_default();
    match owner::owner(&pod.metadata, wanted.uid) {
        Owner::Own => Plan::Keep(pod.clone(), metadata_patch(wanted, pod, false)),
        Owner::Nobody
            if wanted.is_v1alpha1() || owner::may_adopt(&pod.metadata, &wanted.name_hash) =>
        {
            Plan::Keep(pod.clone(), metadata_patch(wanted, pod, true))
        }
        Owner::Nobody => Plan::Refuse(format!(
            "pod {name:?} has no controller, and no label {} = \"true\" that allows its adoption",
            label::ADOPTABLE
        )),
        Owner::Other(other) => Plan::Refuse(format!(
            "pod {name:?} is owned by {}, not by sandbox {:?}",
            owner::describe(other),
            wanted.name
        )),
    }
}

/// The labels and annotations of the pod that come from the template.
struct Propagated {
    labels: Pairs,
    annotations: Pairs,
}

impl Propagated {
    fn of(wanted: &Wanted<'_>) -> Self {
        let metadata = &wanted.sandbox.spec.pod_template.metadata;
        let allowed = |pairs: &Pairs| -> Pairs {
            pairs
                .iter()
                .filter(|(key, _)| wanted.is_v1alpha1() || !is_reserved(key))
                .map(|(key, value)| (key.clone(), value.clone()))
                .collect()
        };
        Self {
            labels: allowed(&metadata.labels),
            annotations: allowed(&metadata.annotations),
        }
    }
}

/// The labels that the controllers set. They override those of the template.
fn system_labels(wanted: &Wanted<'_>) -> Pairs {
    let mut labels = Pairs::from([(
        label::SANDBOX_NAME_HASH.to_owned(),
        wanted.name_hash.clone(),
    )]);
    if wanted.is_v1alpha1() {
        return labels;
    }
    let own = |key: &str| {
        let metadata = &wanted.sandbox.metadata;
        metadata
            .labels
            .as_ref()
            .and_then(|labels| labels.get(key))
            .cloned()
    };
    let owner = owner::controller(&wanted.sandbox.metadata);
    let owned_by =
        |kind| owner.is_some_and(|owner| owner::is_of_kind(owner, EXTENSIONS_GROUP, kind));
    let (pool, claim) = (owned_by("SandboxWarmPool"), owned_by("SandboxClaim"));
    let mut copy = |key: &str, when: bool, value: Option<String>| {
        if let Some(value) = value.filter(|_| when) {
            labels.insert(key.to_owned(), value);
        }
    };
    copy(label::WARM_POOL, pool, own(label::WARM_POOL));
    copy(
        label::TEMPLATE_REF_HASH,
        pool || claim,
        own(label::TEMPLATE_REF_HASH),
    );
    copy(label::CLAIM_UID, claim, own(label::CLAIM_UID));
    copy(
        label::CREATED_BY,
        true,
        own(label::CREATED_BY).map(|value| normalised(&value)),
    );
    labels
}

/// Unknown creators have one value, because the label is a metric's label, too.
fn normalised(created_by: &str) -> String {
    let known = ["go-client", "python-client", "controller"].contains(&created_by);
    if known { created_by } else { "unknown" }.to_owned()
}

fn keys(pairs: &Pairs) -> String {
    pairs
        .keys()
        .map(String::as_str)
        .collect::<Vec<_>>()
        .join(",")
}

/// The pod to create.
pub(super) fn manifest(wanted: &Wanted<'_>) -> Value {
    let propagated = Propagated::of(wanted);
    let mut labels = propagated.labels.clone();
    labels.extend(system_labels(wanted));
    let mut annotations = propagated.annotations.clone();
    for (list, pairs) in [
        (annotation::PROPAGATED_LABELS, &propagated.labels),
        (annotation::PROPAGATED_ANNOTATIONS, &propagated.annotations),
    ] {
        if !pairs.is_empty() {
            annotations.insert(list.to_owned(), keys(pairs));
        }
    }
    let mut pod = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": wanted.name,
            "namespace": wanted.namespace,
            "labels": labels,
            "annotations": annotations,
            "ownerReferences": [wanted.controller_ref()],
        },
        "spec": spec(wanted),
    });
    restore::keep_volumes(&mut pod);
    pod
}

/// The template's specification, with the sandbox's volume claims as volumes.
fn spec(wanted: &Wanted<'_>) -> Map<String, Value> {
    let mut spec = Map::clone(&wanted.sandbox.spec.pod_template.spec);
    let claims = wanted.sandbox.spec.volume_claim_templates.iter().flatten();
    for claim in claims {
        let volume = json!({
            "name": claim.metadata.name,
            "persistentVolumeClaim": {"claimName": claim_name(&claim.metadata.name, wanted.name)},
        });
        let volumes = spec.entry("volumes").or_insert_with(|| json!([]));
        if let Some(volumes) = volumes.as_array_mut() {
            match volumes
                .iter_mut()
                .find(|known| known.get("name") == volume.get("name"))
            {
                Some(known) => *known = volume,
                None => volumes.push(volume),
            }
        }
    }
    spec
}

/// The name of a sandbox's volume claim.
pub(super) fn claim_name(template: &str, sandbox: &str) -> String {
    format!("{template}-{sandbox}")
}

/// The patch of an existing pod's metadata, if it needs one: labels and annotations of the template, and
/// those that the template no longer has. The pod's specification never changes.
fn metadata_patch(wanted: &Wanted<'_>, pod: &Pod, adopt: bool) -> Option<Value> {
    let propagated = Propagated::of(wanted);
    let empty = BTreeMap::new();
    let labels = pod.metadata.labels.as_ref().unwrap_or(&empty);
    let annotations = pod.metadata.annotations.as_ref().unwrap_or(&empty);
    let mut wanted_labels = propagated.labels.clone();
    wanted_labels.extend(system_labels(wanted));
    let mut label_patch = changes(labels, &wanted_labels);
    let mut annotation_patch = changes(annotations, &propagated.annotations);
    prune(
        annotations,
        annotation::PROPAGATED_LABELS,
        &wanted_labels,
        labels,
        &mut label_patch,
    );
    let annotated = &propagated.annotations;
    prune(
        annotations,
        annotation::PROPAGATED_ANNOTATIONS,
        annotated,
        annotations,
        &mut annotation_patch,
    );
    for (list, pairs) in [
        (annotation::PROPAGATED_LABELS, &propagated.labels),
        (annotation::PROPAGATED_ANNOTATIONS, &propagated.annotations),
    ] {
        if annotations.get(list).map_or("", String::as_str) != keys(pairs) {
            annotation_patch.insert(list.to_owned(), keys(pairs).into());
        }
    }
    if !wanted.is_v1alpha1() {
        for key in COPIED.iter().filter(|key| labels.contains_key(**key)) {
            if !wanted_labels.contains_key(*key) {
                label_patch.insert((*key).to_owned(), Value::Null);
            }
        }
    }
    let mut metadata = Map::new();
    if !label_patch.is_empty() {
        metadata.insert("labels".to_owned(), label_patch.into());
    }
    if !annotation_patch.is_empty() {
        metadata.insert("annotations".to_owned(), annotation_patch.into());
    }
    if adopt {
        metadata.insert(
            "ownerReferences".to_owned(),
            owner::with_owner(&pod.metadata, wanted.controller_ref()).into(),
        );
    }
    if metadata.is_empty() {
        return None;
    }
    // The patch is for this pod, not for a new one of the same name.
    metadata.insert("uid".to_owned(), json!(pod.metadata.uid));
    Some(json!({"metadata": metadata}))
}

/// Removes the keys of `list` that the template no longer has.
fn prune(
    annotations: &Pairs,
    list: &str,
    wanted: &Pairs,
    present: &Pairs,
    patch: &mut Map<String, Value>,
) {
    const LISTS: [&str; 2] = [
        annotation::PROPAGATED_LABELS,
        annotation::PROPAGATED_ANNOTATIONS,
    ];
    let recorded = annotations.get(list).map_or("", String::as_str);
    for key in recorded
        .split(',')
        .filter(|key| !key.is_empty() && !LISTS.contains(key))
    {
        if !wanted.contains_key(key) && present.contains_key(key) {
            patch.insert(key.to_owned(), Value::Null);
        }
    }
}

fn changes(present: &Pairs, wanted: &Pairs) -> Map<String, Value> {
    wanted
        .iter()
        .filter(|(key, value)| present.get(*key) != Some(*value))
        .map(|(key, value)| (key.clone(), Value::from(value.clone())))
        .collect()
}
