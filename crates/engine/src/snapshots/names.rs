//! Names of snapshots, including those of snapshots that are being taken.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use parking_lot::Mutex;
use shoal_core::id::{TeamId, TemplateId};
pub use shoal_core::ports::snapshots::SnapshotNameError;
use shoal_core::template::TemplateName;

use super::Snapshots;

/// The names of snapshots that are being taken, each with its template.
pub(crate) type Claims = Arc<Mutex<HashMap<(TeamId, TemplateName), Claim>>>;

/// The template that a name will refer to, and how many snapshots are being taken under it.
#[derive(Debug)]
pub(crate) struct Claim {
    template: TemplateId,
    holders: usize,
}

/// The template of a snapshot's name, reserved while this is held: snapshots that are taken at once under
/// one name become versions of one template.
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

    /// Its meaning.
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
    /// The meaning of `name` for a team, or `fresh` when it has none yet.
    pub(crate) fn claim(
        &self,
        team: TeamId,
        name: &TemplateName,
        fresh: TemplateId,
    ) -> ClaimedName {
        let key = (team, name.clone());
        let mut claims = self.claims.lock();
        let claim = claims.entry(key.clone()).or_insert_with(|| Claim {
            template: self.called(team, name).unwrap_or(fresh),
            holders: 0,
        });
        claim.holders += 1;
        ClaimedName {
            template: claim.template.clone(),
            held: Some((self.claims.clone(), key)),
        }
    }

    /// Whether a snapshot of a team is called so, or one that is being taken will be.
    pub(crate) fn has_name(&self, team: TeamId, name: &TemplateName) -> bool {
        // A claim goes when its snapshot is among the others, or never will be.
        let claims = self.claims.lock();
        claims.contains_key(&(team, name.clone())) || self.called(team, name).is_some()
    }
}
