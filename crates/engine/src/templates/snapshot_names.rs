//! The names that a team may give to snapshots. They share one namespace with templates.

use shoal_core::auth::Principal;
use shoal_core::id::TemplateId;
use shoal_core::template::TemplateRef;

use super::Templates;
use super::names::NameOwner;
use crate::snapshots::{ClaimedName, SnapshotNameError};

impl Templates {
    /// The template id of a snapshot with this name: the id of the snapshots that have it already, or
    /// `fresh`. The name stays reserved until the answer is dropped.
    ///
    /// # Errors
    /// See [`SnapshotNameError`].
    pub(crate) async fn reserve_snapshot_name(
        &self,
        principal: &Principal,
        name: &TemplateRef,
        fresh: TemplateId,
    ) -> Result<ClaimedName, SnapshotNameError> {
        let own = |slug: &String| slug == principal.slug.as_str();
        if !name.namespace.as_ref().is_none_or(own) {
            return Err(SnapshotNameError::Namespace(name.clone()));
        }
        // Another caller that holds this lock may be creating a template of the same name.
        let _changing = self.parts.build_records.changing.lock().await;
        match self.name_owner(principal, &name.name) {
            None | Some(NameOwner::Snapshot) => {
                Ok(self
                    .parts
                    .snapshots
                    .claim(principal.team, &name.name, fresh))
            }
            Some(NameOwner::Own(_) | NameOwner::Builtin | NameOwner::Pending(_)) => {
                let untagged = TemplateRef {
                    tag: None,
                    ..name.clone()
                };
                Err(SnapshotNameError::Taken(untagged))
            }
        }
    }
}
