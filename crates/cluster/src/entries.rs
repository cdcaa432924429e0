//! Entries of the catalogue as SandboxSets: a name becomes the set whose member a sandbox would be, in the namespace
//! of the caller. Most of these sets are not in the cluster; those with a pool are, so that the operator fills it.

mod saved;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::api::ObjectMeta;
use serde_json::{Value, json};
use shoal_core::catalogue::{
    CUSTOM, Catalogue as Entries, Entry, EntryName, Match, Origin, Substrate,
};
use shoal_core::image::ImageName;
use shoal_core::template::TemplateRef;
use shoal_crds::kruise::names::runtime::AGENT_RUNTIME;
use shoal_crds::kruise::names::{REPLICA_SET, annotation};
use shoal_crds::kruise::{MaxUnavailable, RuntimeRef, SandboxSet, SandboxSetSpec, revision};

use crate::blueprint::{Blueprint, InvalidBlueprint, Rendered};
use crate::saves::{SavedSandbox, Saves};

/// The longest name of an entry that is its set's, too: the names of pods and of ReplicaSets are longer.
const LONGEST_NAME: usize = 40;

/// A sample image, with which the blueprint of a dynamic entry is checked.
const SAMPLE: &str = "sample";

/// An entry, as a set of a namespace.
#[derive(Debug, Clone)]
pub(crate) struct EntrySet {
    pub(crate) entry: Arc<Entry>,
    pub(crate) set: Arc<SandboxSet>,
    /// The resources of the main container once the sandbox is in use.
    pub(crate) resources: Value,
    pub(crate) revision: String,
    /// The snapshot that its sandboxes start from.
    pub(crate) saved: Option<SavedSandbox>,
}

/// Why an entry has no set in a namespace.
#[derive(Debug)]
pub(crate) enum NoSet {
    /// It cannot be rendered.
    Unfit(InvalidBlueprint),
    /// The namespace has no such snapshot.
    NoSnapshot(TemplateRef),
}

impl EntrySet {
    /// The set of an entry with this image.
    pub(crate) fn of(
        entry: &Arc<Entry>,
        image: &ImageName,
        blueprint: &Blueprint,
        namespace: &str,
    ) -> Result<Self, InvalidBlueprint> {
        let Rendered {
            template,
            resources,
        } = blueprint.render(entry, image)?;
        let kept = entry.persistent_contents.clone();
        let spec = SandboxSetSpec {
            persistent_contents: kept.map(Vec::from).unwrap_or_default(),
            runtimes: vec![RuntimeRef {
                name: AGENT_RUNTIME.to_owned(),
            }],
            template: Some(template),
            ..SandboxSetSpec::default()
        };
        Ok(Self::with(entry, spec, resources, namespace))
    }

    /// The set with what a sandbox is made of in this specification.
    fn with(entry: &Arc<Entry>, spec: SandboxSetSpec, resources: Value, namespace: &str) -> Self {
        let spec = SandboxSetSpec {
            replicas: size(entry),
            update_strategy: max_unavailable(entry),
            ..spec
        };
        Self {
            revision: revision::of_set(&spec),
            set: Arc::new(SandboxSet {
                metadata: ObjectMeta {
                    name: Some(set_name(&entry.name)),
                    namespace: Some(namespace.to_owned()),
                    annotations: Some(annotations(entry)),
                    ..ObjectMeta::default()
                },
                spec,
                status: None,
            }),
            entry: entry.clone(),
            resources,
            saved: None,
        }
    }

    /// The set of a match. A snapshot is that of the namespace.
    pub(crate) fn of_match(
        found: &Match,
        blueprint: &Blueprint,
        saves: &Saves,
        namespace: &str,
    ) -> Result<Self, NoSet> {
        match &found.origin {
            Origin::Image(image) => {
                Self::of(&found.entry, image, blueprint, namespace).map_err(NoSet::Unfit)
            }
            Origin::Template(snapshot) => {
                let saved = saves.find_meant(namespace, snapshot);
                let set = saved.and_then(|saved| Self::of_saved(&found.entry, saved, namespace));
                set.ok_or_else(|| NoSet::NoSnapshot(snapshot.clone()))
            }
        }
    }

    /// The set of an image without an entry.
    pub(crate) fn of_image(
        image: &ImageName,
        blueprint: &Blueprint,
        namespace: &str,
    ) -> Result<Self, InvalidBlueprint> {
        Self::of(&Arc::new(custom(image)), image, blueprint, namespace)
    }
}

/// The entry for an image without an entry of its own.
fn custom(image: &ImageName) -> Entry {
    let fields = json!({"name": CUSTOM, "image": image.to_string(), "description": ""});
    let Ok(entry) = serde_json::from_value(fields) else {
        unreachable!("an entry needs no more")
    };
    entry
}

fn sample() -> ImageName {
    let Ok(image) = SAMPLE.parse() else {
        unreachable!("the name is valid")
    };
    image
}

fn annotations(entry: &Entry) -> BTreeMap<String, String> {
    let mut annotations = BTreeMap::from([(
        annotation::TEMPLATE_ENTRY.to_owned(),
        entry.name.to_string(),
    )]);
    if entry.template.is_none() && entry.substrate != Some(Substrate::SandboxSet) {
        annotations.insert(annotation::KEPT_BY.to_owned(), REPLICA_SET.to_owned());
    }
    if let Some(words) = entry.startup_argv() {
        annotations.insert(
            annotation::STARTUP_COMMAND.to_owned(),
            json!(words).to_string(),
        );
    }
    annotations
}

fn size(entry: &Entry) -> i32 {
    let pool = entry.pool.as_ref().filter(|_| !entry.is_dynamic());
    pool.and_then(|pool| i32::try_from(pool.size).ok())
        .unwrap_or_default()
}

/// So many stay while others are replaced as the entry says.
fn max_unavailable(entry: &Entry) -> Option<MaxUnavailable> {
    let pool = entry.pool.as_ref()?;
    let most = pool.size.saturating_sub(pool.min_ready?).max(1);
    Some(MaxUnavailable {
        max_unavailable: Some(IntOrString::Int(i32::try_from(most).unwrap_or(i32::MAX))),
    })
}

/// Whether sandboxes of an entry are made ahead.
pub(crate) fn has_pool(entry: &Entry) -> bool {
    size(entry) > 0
}

/// The name of an entry's set. A hash replaces the characters that names of objects cannot have.
pub(crate) fn set_name(name: &EntryName) -> String {
    let text = name.as_str();
    let plain: String = text
        .to_ascii_lowercase()
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c } else { '-' })
        .collect();
    let fits = text.len() <= LONGEST_NAME && !text.contains(['.', '_']) && !text.ends_with('-');
    if fits {
        // Names are compared without case.
        return plain;
    }
    let id = name.template_id();
    let id = id.as_str();
    let kept = plain
        .get(..LONGEST_NAME - 9)
        .unwrap_or(&plain)
        .trim_end_matches('-');
    format!(
        "{kept}-{}",
        id.get(id.len().saturating_sub(8)..).unwrap_or(id)
    )
}

/// Whether all entries can be rendered.
pub(crate) fn check(entries: &Entries, blueprint: &Blueprint) -> Result<(), InvalidBlueprint> {
    let mut names = HashMap::new();
    for entry in entries.entries() {
        match entry.origin().filter(|_| !entry.is_dynamic()) {
            Some(Origin::Image(image)) => drop(EntrySet::of(entry, &image, blueprint, "")?),
            Some(Origin::Template(snapshot)) => saved::check(entry, &snapshot)?,
            None => drop(EntrySet::of(entry, &sample(), blueprint, "")?),
        }
        if let Some(other) = names.insert(set_name(&entry.name), &entry.name) {
            return Err(InvalidBlueprint::names(&entry.name, other));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(fields: &Value) -> Arc<Entry> {
        let mut all = json!({"name": "code", "image": "example.org/code:1", "description": "d"});
        all.as_object_mut()
            .unwrap()
            .extend(fields.as_object().unwrap().clone());
        Arc::new(serde_json::from_value(all).unwrap())
    }

    fn set(fields: &Value) -> EntrySet {
        let blueprint = Blueprint::parse(crate::blueprint::DEFAULT).unwrap();
        EntrySet::of(
            &entry(fields),
            &"example.org/code:1".parse().unwrap(),
            &blueprint,
            "team",
        )
        .unwrap()
    }

    #[test]
    fn a_sandbox_of_an_entry_says_what_keeps_its_pod_and_shows_no_label_of_it() {
        let made = set(&json!({"pool": {"size": 2, "startupCmd": "start,it now"}}));
        let member = made.set.member(&made.revision);
        assert!(member.is_kept());
        assert_eq!(member.startup_command().unwrap(), ["start", "it", "now"]);
        assert_eq!(
            member.annotation("agents.kruise.io/template-entry"),
            Some("code")
        );
        assert_eq!(member.label("sbx-pool"), None, "the pod has it");
        assert_eq!(
            member.spec.template.unwrap().metadata.labels["sbx-pool"],
            "true"
        );
        assert_eq!(made.set.spec.replicas, 2);
        let plain = set(&json!({"substrate": "SandboxSet"}));
        assert!(!plain.set.member("r").is_kept());
    }

    #[test]
    fn a_revision_is_that_of_everything_a_member_is_made_of() {
        let base = json!({"pool": {"size": 2, "resources": {"cpu": "0"}}});
        let revision = |change: &Value| {
            let mut fields = base.clone();
            fields
                .as_object_mut()
                .unwrap()
                .extend(change.as_object().unwrap().clone());
            set(&fields).revision
        };
        let same = revision(&json!({}));
        assert_eq!(
            revision(&json!({"description": "other", "metadata": {"a": "b"}})),
            same
        );
        let other_size = json!({"pool": {"size": 9, "resources": {"cpu": "0"}, "startupCmd": "x"}});
        assert_eq!(revision(&other_size), same, "the claim applies it");
        for change in [
            json!({"pool": {"size": 2, "resources": {"cpu": "100m"}}}),
            json!({"network": {"allowInternetAccess": false}}),
            json!({"env": {"A": "b"}}),
            json!({"runtime": "gvisor"}),
        ] {
            assert_ne!(revision(&change), same, "{change}");
        }
    }

    #[test]
    fn names_become_names_of_objects() {
        let name = |text: &str| set_name(&EntryName::try_from(text.to_owned()).unwrap());
        assert_eq!(name("code-interpreter"), "code-interpreter");
        assert_eq!(name("Code"), "code");
        let (dotted, other) = (name("python-3.11"), name("python-3_11"));
        assert!(
            dotted.starts_with("python-3-11-") && dotted != other,
            "{dotted} {other}"
        );
        assert!(name(&"a".repeat(128)).len() <= LONGEST_NAME);
        assert!(!name("ends-").ends_with('-'));
    }
}
