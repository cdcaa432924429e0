//! Names of snapshots: who may give which, and what one means while the first of it is being taken.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use parking_lot::Mutex;
use shoal_core::auth::Principal;
use shoal_core::id::{TeamId, TemplateId};
pub use shoal_core::ports::snapshots::SnapshotNameError;
use shoal_core::template::{TemplateName, TemplateRef};

use crate::engine::Engine;
use crate::snapshots::Snapshots;
use crate::template_names::Named;

/// The names that somebody is giving to a snapshot, with what each is to mean.
pub(crate) type Claims = Arc<Mutex<HashMap<(TeamId, TemplateName), Claim>>>;

/// What a name is to mean, and how many are giving it.
#[derive(Debug)]
pub(crate) struct Claim {
    template: TemplateId,
    holders: usize,
}

/// What the name of a snapshot means, as long as this is held: two that are taken at once under one
/// name are two takings of one thing.
#[derive(Debug)]
pub(crate) struct ClaimedName {
    template: TemplateId,
    held: Option<(Claims, (TeamId, TemplateName))>,
}

impl ClaimedName {
    /// Of a snapshot that has no name.
    pub(crate) fn without_name(template: TemplateId) -> Self {
        Self {
            template,
            held: None,
        }
    }

    /// What it means.
    pub(crate) fn template(&self) -> &TemplateId {
        &self.template
    }
}

impl Drop for ClaimedName {
    fn drop(&mut self) {
        let Some((claims, key)) = self.held.take() else {
            return;
        };
        if let Entry::Occupied(mut claim) = claims.lock().entry(key) {
            claim.get_mut().holders -= 1;
            if claim.get().holders == 0 {
                claim.remove();
            }
        };
    }
}

impl Snapshots {
    /// What `name` means to a team, or `fresh` when it means nothing yet.
    fn claim(&self, team: TeamId, name: &TemplateName, fresh: TemplateId) -> ClaimedName {
        let key = (team, name.clone());
        let mut claims = self.claims().lock();
        let claim = claims.entry(key.clone()).or_insert_with(|| Claim {
            template: self.called(team, name).unwrap_or(fresh),
            holders: 0,
        });
        claim.holders += 1;
        ClaimedName {
            template: claim.template.clone(),
            held: Some((self.claims().clone(), key)),
        }
    }

    /// Whether a snapshot of a team is called so, or one that is being taken will be.
    pub(crate) fn has_name(&self, team: TeamId, name: &TemplateName) -> bool {
        // A claim goes when its snapshot is among the others, or never will be.
        let claims = self.claims().lock();
        claims.contains_key(&(team, name.clone())) || self.called(team, name).is_some()
    }
}

impl Engine {
    /// What sandboxes of a snapshot will start from: what has its name already, or `fresh`. The name is
    /// nobody else's to give until the answer is dropped.
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
        // Whoever makes a template of this name has it from when he asks until it is there.
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
