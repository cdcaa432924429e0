//! Who may give which name to a snapshot.

use shoal_core::auth::Principal;
use shoal_core::id::TemplateId;
use shoal_core::template::TemplateRef;

use crate::engine::Engine;
use crate::snapshots::{ClaimedName, SnapshotNameError};
use crate::template_names::Named;

impl Engine {
    /// The template id of a snapshot with this name: the id of the snapshots that have it already, or
    /// `fresh`. The name stays reserved until the answer is dropped.
    pub(crate) async fn claim_name(
        &self,
        principal: &Principal,
        name: &TemplateRef,
        fresh: TemplateId,
    ) -> Result<ClaimedName, SnapshotNameError> {
        let own = |slug: &String| slug == principal.slug.as_str();
        if !name.namespace.as_ref().is_none_or(own) {
            return Err(SnapshotNameError::Namespace(name.clone()));
        }
        // A template of this name is being made while another caller holds this.
        let _changing = self.shared.builds.changing.lock().await;
        match self.named(principal, &name.name) {
            None | Some(Named::Snapshot) => {
                let snapshots = &self.shared.snapshots;
                Ok(snapshots.claim(principal.team, &name.name, fresh))
            }
            Some(Named::Own(_) | Named::Stock | Named::ToCome(_)) => {
                let untagged = TemplateRef {
                    tag: None,
                    ..name.clone()
                };
                Err(SnapshotNameError::Taken(untagged))
            }
        }
    }
}
