//! The template of a pool's revision. Claims of snapshots and clones refer to it.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::{Resource, ResourceExt};
use serde_json::json;
use shoal_crds::kruise::names::annotation;
use shoal_crds::kruise::{SandboxSet, SandboxTemplate};

use super::{SandboxSetController, member};
use crate::cache::key;
use crate::failure::{Failure, is_conflict, is_missing};

/// Materialized templates beyond this are marked for removal.
const MOST_TEMPLATES: usize = 10;

/// The time until the next look at a name that another object has.
const TAKEN: Duration = Duration::from_secs(60);

/// The time until the next look at a template that is being collected, or that the watch has not shown yet.
const SOON: Duration = Duration::from_secs(2);

/// The template of a revision.
pub(super) struct Materialized {
    /// Its name; empty while another object has it.
    pub(super) name: String,
    /// The time until the next attempt, if this one failed.
    pub(super) again: Option<Duration>,
}

impl Materialized {
    fn later(again: Duration) -> Self {
        Self {
            name: String::new(),
            again: Some(again),
        }
    }
}

impl SandboxSetController {
    /// Keeps a template of the revision.
    pub(super) async fn materialize(
        &self,
        set: &SandboxSet,
        uid: &str,
    ) -> Result<Materialized, Failure> {
        if let Some(reference) = &set.spec.template_ref {
            return Ok(Materialized {
                name: reference.name.clone(),
                again: None,
            });
        }
        let name = member::template_name(set);
        match owner(self.template(set, &name).await?.as_deref(), set, uid) {
            Owner::ThisSet => {}
            Owner::FormerSet | Owner::Unknown => return Ok(Materialized::later(SOON)),
            Owner::Other => {
                self.cluster
                    .event(set, true, "TemplateNameTaken", taken(&name));
                return Ok(Materialized::later(TAKEN));
            }
        }
        let mut known = self.templates.owned_by(uid);
        let old = known.len().saturating_sub(MOST_TEMPLATES);
        known.sort_by_key(|known| known.metadata.creation_timestamp.as_ref().map(|at| at.0));
        for template in known.iter().take(old) {
            self.mark(template).await?;
        }
        Ok(Materialized { name, again: None })
    }

    /// The template of this name, which is made if there is none. It may be somebody else's. None if the watch has not
    /// shown it yet.
    async fn template(
        &self,
        set: &SandboxSet,
        name: &str,
    ) -> Result<Option<Arc<SandboxTemplate>>, Failure> {
        let namespace = set.metadata.namespace.clone().unwrap_or_default();
        let template_key = (namespace.clone(), name.to_owned());
        if let Some(known) = self.templates.get(&template_key) {
            return Ok(Some(known));
        }
        let manifest = member::template(set);
        match self.cluster.create(&namespace, &manifest).await {
            Ok(created) => Ok(Some(self.templates.learn(created))),
            Err(error) if is_conflict(&error) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    async fn mark(&self, template: &SandboxTemplate) -> Result<(), Failure> {
        let annotations = template.metadata.annotations.as_ref();
        if annotations.is_some_and(|known| known.contains_key(annotation::CLEANUP_CANDIDATE)) {
            return Ok(());
        }
        let (namespace, name) = key(template);
        let patch = json!({"metadata": {"annotations": {annotation::CLEANUP_CANDIDATE: "true"}}});
        match self.cluster.patch(&namespace, &name, &patch).await {
            Ok(patched) => drop(self.templates.learn(patched)),
            Err(error) if is_missing(&error) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }
}

/// The owner of a template that has the name of a set's.
#[derive(Debug, PartialEq, Eq)]
enum Owner {
    ThisSet,
    /// A deleted set of this name, whose template is being collected.
    FormerSet,
    /// The watch has not shown it yet.
    Unknown,
    Other,
}

fn owner(template: Option<&SandboxTemplate>, set: &SandboxSet, uid: &str) -> Owner {
    let Some(template) = template else {
        return Owner::Unknown;
    };
    let owners = template.owner_references();
    if owners.iter().any(|owner| owner.uid == uid) {
        return Owner::ThisSet;
    }
    let of_name = |owner: &&OwnerReference| {
        owner.kind == SandboxSet::kind(&()) && Some(&owner.name) == set.metadata.name.as_ref()
    };
    match owners.iter().find(of_name) {
        Some(_) => Owner::FormerSet,
        None => Owner::Other,
    }
}

fn taken(name: &str) -> String {
    format!(
        "the SandboxTemplate `{name}` belongs to something else, so this set has no current revision: delete it, or \
         rename the set"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_template_of_the_set_counts_as_its_own() {
        let set: SandboxSet =
            serde_json::from_value(json!({"metadata": {"name": "pool"}, "spec": {}})).unwrap();
        let template = |owners: serde_json::Value| -> SandboxTemplate {
            let metadata = json!({"name": "pool-1", "ownerReferences": owners});
            serde_json::from_value(json!({"metadata": metadata, "spec": {}})).unwrap()
        };
        let by = |kind: &str, name: &str, uid: &str| json!([{"apiVersion": "agents.kruise.io/v1alpha1", "kind": kind, "name": name, "uid": uid}]);
        for (owners, expected) in [
            (by("SandboxSet", "pool", "u"), Owner::ThisSet),
            (by("SandboxSet", "pool", "former"), Owner::FormerSet),
            (by("SandboxSet", "other", "o"), Owner::Other),
            (by("Deployment", "pool", "o"), Owner::Other),
            (json!([]), Owner::Other),
        ] {
            let found = owner(Some(&template(owners.clone())), &set, "u");
            assert_eq!(found, expected, "{owners}");
        }
        assert_eq!(owner(None, &set, "u"), Owner::Unknown);
    }
}
