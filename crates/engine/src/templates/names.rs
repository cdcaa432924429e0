//! The names that a team uses already.

use std::sync::Arc;

use shoal_core::auth::Principal;
use shoal_core::id::TemplateId;
use shoal_core::template::{Template, TemplateName, TemplateRef};

use super::Templates;

/// The owner of a name, so that a team cannot give it to something else.
#[derive(Debug)]
pub(crate) enum NameOwner {
    /// A template of the team.
    Own(Arc<Template>),
    /// A builtin template, built or not.
    Builtin,
    /// Snapshots of the team, including those that are being taken.
    Snapshot,
    /// A template of the team that no build has finished yet.
    Pending(TemplateId),
}

impl Templates {
    /// The owner of `name`, a name or an id, from the point of view of a team. The answer stays valid
    /// while the caller holds [`BuildRecords::changing`](crate::build_records::BuildRecords::changing).
    pub(crate) fn name_owner(
        &self,
        principal: &Principal,
        name: &TemplateName,
    ) -> Option<NameOwner> {
        // Reserved even before its first build: a template that one team publishes must not pass for it.
        if self.builtin.find(name).is_some() {
            return Some(NameOwner::Builtin);
        }
        let called = self.list(principal).into_iter().find(|template| {
            let near = template.team.is_none_or(|team| team == principal.team);
            let id = template.id.as_str() == name.as_str();
            near && (id || template.names.contains(name))
        });
        if let Some(template) = called {
            return Some(match template.team {
                Some(_) => NameOwner::Own(template),
                None => NameOwner::Builtin,
            });
        }
        if self.parts.snapshots.has_name(principal.team, name) {
            return Some(NameOwner::Snapshot);
        }
        let bare = TemplateRef {
            namespace: None,
            name: name.clone(),
            tag: None,
        };
        let pending = self.pending_named(principal, &bare)?;
        Some(NameOwner::Pending(pending.template.clone()))
    }
}
