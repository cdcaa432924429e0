//! Entries over a snapshot: each sandbox starts from it, with the pod that was saved.

use std::sync::Arc;

use shoal_core::catalogue::{Entry, Substrate};
use shoal_core::template::TemplateRef;
use shoal_crds::kruise::SandboxSetSpec;
use shoal_crds::kruise::names::annotation;

use super::EntrySet;
use crate::blueprint::{self, InvalidBlueprint};
use crate::pod;
use crate::saves::SavedSandbox;

/// Labels that a saved pod may have from the claim of another entry.
const OF_CLAIM: [&str; 2] = ["sbx-id", "sbx-user"];

impl EntrySet {
    /// The set of an entry over a snapshot; none if the snapshot has no pod.
    ///
    /// The snapshot's id is in the template of the pods: with another snapshot, the set has another revision.
    pub(super) fn of_saved(
        entry: &Arc<Entry>,
        saved: SavedSandbox,
        namespace: &str,
    ) -> Option<Self> {
        let kept = saved.set().spec.clone();
        let mut template = kept.template?;
        let labels = &mut template.metadata.labels;
        labels.retain(|key, _| !OF_CLAIM.contains(&key.as_str()));
        blueprint::label(labels, entry);
        template
            .metadata
            .annotations
            .insert(annotation::RESTORE_FROM.to_owned(), saved.id().to_owned());
        let resources = pod::container_resources(Some(&template));
        let spec = SandboxSetSpec {
            template: Some(template),
            persistent_contents: match &entry.persistent_contents {
                Some(contents) => contents.clone().into(),
                None => kept.persistent_contents,
            },
            ..kept
        };
        let set = Self::with(entry, spec, resources, namespace);
        Some(Self {
            saved: Some(saved),
            ..set
        })
    }
}

/// Refuses fields that would change the saved pod.
pub(super) fn check(entry: &Entry, snapshot: &TemplateRef) -> Result<(), InvalidBlueprint> {
    let pool = entry.pool.as_ref();
    let of_pool = |said: fn(&shoal_core::catalogue::Pool) -> bool| pool.is_some_and(said);
    let fields = [
        ("port", entry.port.is_some()),
        ("noStartupProbe", entry.no_startup_probe.is_some()),
        ("resources", entry.resources.is_some()),
        ("runtime", entry.runtime.is_some()),
        ("user", entry.user.is_some()),
        ("workdir", entry.workdir.is_some()),
        ("pool.probePort", of_pool(|pool| pool.probe_port.is_some())),
        ("pool.warmupCmd", of_pool(|pool| pool.warmup_cmd.is_some())),
        ("pool.resources", of_pool(|pool| pool.resources.is_some())),
    ];
    if let Some((field, _)) = fields.into_iter().find(|(_, said)| *said) {
        return Err(InvalidBlueprint::of(
            entry,
            &format!(
                "`{field}` cannot be said beside `template`: its sandboxes have the pod that was saved"
            ),
        ));
    }
    if entry.substrate == Some(Substrate::ReplicaSet) {
        return Err(InvalidBlueprint::of(
            entry,
            "`substrate` is \"ReplicaSet\": pods of ReplicaSets start from no snapshot",
        ));
    }
    let name = snapshot.name.as_str();
    if snapshot.namespace.is_none() && name.eq_ignore_ascii_case(entry.name.as_str()) {
        return Err(InvalidBlueprint::of(
            entry,
            "`template` is a snapshot of the same name, which the name means first: give the entry another one",
        ));
    }
    blueprint::check(entry)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::saves;

    fn entry(fields: &Value) -> Arc<Entry> {
        let mut all = json!({"name": "warm", "template": "work:v1", "description": "d"});
        let known = all.as_object_mut().unwrap();
        known.extend(fields.as_object().unwrap().clone());
        Arc::new(serde_json::from_value(all).unwrap())
    }

    fn set(fields: &Value) -> EntrySet {
        EntrySet::of_saved(&entry(fields), saves::tests::any(), "team").unwrap()
    }

    #[test]
    fn members_have_the_saved_pod_and_start_from_its_checkpoint() {
        let saved = saves::tests::any();
        let made = set(&json!({"pool": {"size": 2, "startupCmd": "start"}}));
        assert_eq!(made.set.spec.replicas, 2);
        let member = made.set.member(&made.revision);
        assert!(
            !member.is_kept(),
            "pods of ReplicaSets start from no checkpoint"
        );
        assert_eq!(member.startup_command().unwrap(), ["start"]);
        let template = member.spec.template.as_ref();
        assert_eq!(member.restored_from(template), Some(saved.id()));
        let labels = &template.unwrap().metadata.labels;
        assert_eq!(
            (labels["sbx-template"].as_str(), labels["sbx-pool"].as_str()),
            ("warm", "true")
        );
        let source = saved.set().spec.template.as_ref().unwrap();
        assert_eq!(
            template.unwrap().spec["containers"],
            source.spec["containers"]
        );
    }

    #[test]
    fn a_revision_is_of_the_snapshot_and_not_of_what_a_claim_applies() {
        let revision = set(&json!({"pool": {"size": 2}})).revision;
        let other = json!({"pool": {"size": 3, "startupCmd": "x"}, "env": {"A": "b"}, "metadata": {"c": "d"}});
        assert_eq!(set(&other).revision, revision);
        let closed = json!({"network": {"allowInternetAccess": false}});
        assert_ne!(set(&closed).revision, revision);
        let newer = saves::tests::with_id(&format!("{:032x}-{:024x}", 7, 7));
        let newer = EntrySet::of_saved(&entry(&json!({})), newer, "team").unwrap();
        assert_ne!(newer.revision, revision);
    }

    #[test]
    fn what_would_change_the_pod_is_refused_by_name() {
        let told = |fields: Value| {
            let entry = entry(&fields);
            let snapshot = entry.template.clone().unwrap();
            check(&entry, &snapshot).map_err(|error| error.to_string())
        };
        let allowed = json!({
            "pool": {"size": 2, "minReady": 1, "startupCmd": "x"}, "env": {"A": "b"}, "metadata": {"c": "d"},
            "network": {"allowInternetAccess": false}, "substrate": "SandboxSet", "persistentContents": ["filesystem"],
        });
        assert_eq!(told(allowed), Ok(()));
        for (fields, word) in [
            (json!({"port": 80}), "`port`"),
            (json!({"resources": {"cpu": "1"}}), "`resources`"),
            (json!({"user": "1000"}), "`user`"),
            (
                json!({"pool": {"size": 1, "warmupCmd": "x"}}),
                "`pool.warmupCmd`",
            ),
            (
                json!({"pool": {"size": 1, "probePort": 80}}),
                "`pool.probePort`",
            ),
            (json!({"substrate": "ReplicaSet"}), "`substrate`"),
            (json!({"name": "Work"}), "another one"),
            (json!({"network": {"denyOut": ["10.0.0.0/8"]}}), "`network`"),
            (json!({"metadata": {"sbx-id": "x"}}), "reserved"),
        ] {
            let error = told(fields).unwrap_err();
            assert!(
                error.contains(word) && error.contains("template \""),
                "{error}"
            );
        }
    }
}
