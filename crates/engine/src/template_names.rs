//! What a team's name for a template means already.

use std::sync::Arc;

use shoal_core::auth::Principal;
use shoal_core::id::TemplateId;
use shoal_core::template::{Template, TemplateName, TemplateRef};

use crate::engine::Engine;

/// What has a name, as far as a team cannot give it to something else.
#[derive(Debug)]
pub(crate) enum Named {
    /// A template of the team's own.
    Own(Arc<Template>),
    /// A template of the installation, built or not.
    Stock,
    /// Snapshots of the team, taken or being taken.
    Snapshot,
    /// A template of the team that no build has finished yet.
    ToCome(TemplateId),
}

impl Engine {
    /// What `name` is to a team already: by its name or its id. It stays so as long as the caller has
    /// [`BuildRecords::changing`](crate::build_records::BuildRecords::changing).
    pub(crate) fn named(&self, principal: &Principal, name: &TemplateName) -> Option<Named> {
        // Before it is built, too: what one team opens to others must not be taken for it.
        if self.shared.stock.find(name).is_some() {
            return Some(Named::Stock);
        }
        let called = self.templates(principal).into_iter().find(|template| {
            let near = template.team.is_none_or(|team| team == principal.team);
            let id = template.id.as_str() == name.as_str();
            near && (id || template.names.contains(name))
        });
        if let Some(template) = called {
            return Some(match template.team {
                Some(_) => Named::Own(template),
                None => Named::Stock,
            });
        }
        if self.shared.snapshots.has_name(principal.team, name) {
            return Some(Named::Snapshot);
        }
        let bare = TemplateRef {
            namespace: None,
            name: name.clone(),
            tag: None,
        };
        let coming = self.template_to_come(principal, &bare)?;
        Some(Named::ToCome(coming.template.clone()))
    }
}
