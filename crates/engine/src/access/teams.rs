//! The short names of tenants, which are the namespaces of their templates.

use std::collections::HashMap;

use parking_lot::RwLock;
use shoal_core::auth::{Principal, TeamSlug};
use shoal_core::id::TeamId;
use shoal_core::store::StoreError;

use super::Access;

/// Every tenant that has ever had a key.
#[derive(Debug, Default)]
pub(crate) struct Slugs {
    by_slug: RwLock<HashMap<TeamSlug, TeamId>>,
}

impl Slugs {
    pub(crate) fn load(teams: Vec<(TeamSlug, TeamId)>) -> Self {
        Self {
            by_slug: RwLock::new(teams.into_iter().collect()),
        }
    }

    pub(crate) fn add(&self, slug: TeamSlug, team: TeamId) {
        self.by_slug.write().insert(slug, team);
    }

    /// The tenant that `namespace` means to `principal`.
    pub(crate) fn of_namespace(&self, principal: &Principal, namespace: &str) -> Option<TeamId> {
        if namespace == principal.slug.as_str() {
            return Some(principal.team);
        }
        let slug: TeamSlug = namespace.parse().ok()?;
        self.by_slug.read().get(&slug).copied()
    }

    fn slug_of(&self, team: TeamId) -> Option<TeamSlug> {
        let teams = self.by_slug.read();
        let found = teams.iter().find(|(_, known)| **known == team);
        found.map(|(slug, _)| slug.clone())
    }
}

impl Access {
    /// Every team, by its slug.
    pub(crate) async fn all_teams(&self) -> Result<Vec<(TeamSlug, TeamId)>, StoreError> {
        self.teams.teams().await
    }

    /// The tenant that `namespace` means to `principal`.
    pub(crate) fn of_namespace(&self, principal: &Principal, namespace: &str) -> Option<TeamId> {
        self.slugs.of_namespace(principal, namespace)
    }

    /// The short name of a tenant.
    pub(crate) fn team_slug(&self, team: TeamId) -> Option<TeamSlug> {
        self.slugs.slug_of(team)
    }
}
