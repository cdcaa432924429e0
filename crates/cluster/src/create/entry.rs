//! Creates of the catalogue's entries: the changes of a claim in a member of the pool, and in a new sandbox.

use serde_json::{Value, json};
use shoal_core::auth::Principal;
use shoal_core::ports::create::SandboxRequest;
use shoal_crds::kruise::Sandbox;
use shoal_crds::kruise::names::annotation;
use shoal_crds::parts::Pairs;

use crate::blueprint::{can_become, is_same, requested};
use crate::entries::EntrySet;
use crate::pod;

/// The changes of a member that becomes a sandbox of an entry.
pub(super) struct OfEntry {
    revision: String,
    /// The resources of a member that waits, and of one in use.
    before: Value,
    after: Value,
    /// The labels by which Agent-Sandbox's tools know it.
    labels: Pairs,
    /// The command that runs in it, as the annotation has it.
    startup: Option<String>,
}

/// The entry's values, where the request says none.
pub(super) fn fill(new: &mut SandboxRequest, of: &EntrySet) {
    for (key, value) in &of.entry.metadata {
        new.metadata
            .entry(key.clone())
            .or_insert_with(|| value.clone());
    }
    for (key, value) in &of.entry.env {
        new.env.entry(key.clone()).or_insert_with(|| value.clone());
    }
}

impl OfEntry {
    pub(super) fn of(
        entry: &EntrySet,
        new: &SandboxRequest,
        principal: &Principal,
        id: Option<&str>,
    ) -> Self {
        let labels = [
            ("sbx-pool", "false".to_owned()),
            ("sbx-user", principal.key.to_string()),
            ("sbx-id", id.unwrap_or_default().to_owned()),
        ];
        let startup = entry.entry.startup_argv();
        Self {
            revision: entry.revision.clone(),
            before: pod::container_resources(entry.set.spec.template.as_ref()),
            after: requested(entry.resources.clone(), &new.resources),
            labels: labels
                .into_iter()
                .map(|(key, value)| (key.to_owned(), value))
                .collect(),
            startup: startup.map(|words| json!(words).to_string()),
        }
    }

    pub(super) fn revision(&self) -> &str {
        &self.revision
    }

    /// Whether a member that waits gets other resources.
    pub(super) fn raises(&self) -> bool {
        !is_same(&self.before, &self.after)
    }

    /// Whether a member that waits can get its resources.
    pub(super) fn can_raise(&self) -> bool {
        !self.raises() || can_become(&self.before, &self.after)
    }

    /// Makes a member what its user gets.
    pub(super) fn change(&self, sandbox: &mut Sandbox) {
        if let Some(template) = &mut sandbox.spec.template {
            template.metadata.labels.extend(self.labels.clone());
            pod::set_resources(template, &self.after);
        }
        let annotations = sandbox.metadata.annotations.get_or_insert_default();
        // The newest command, though the member may be older.
        match &self.startup {
            Some(command) => {
                annotations.insert(annotation::STARTUP_COMMAND.to_owned(), command.clone());
            }
            None => drop(annotations.remove(annotation::STARTUP_COMMAND)),
        }
    }
}
