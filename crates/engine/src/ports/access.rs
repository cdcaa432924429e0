//! API keys and teams.

use shoal_core::BoxFuture;
use shoal_core::auth::{ApiKey, KeyRecord, Principal, TeamSlug};
use shoal_core::id::{KeyId, TeamId};
use shoal_core::limits::TeamLimits;
use shoal_core::ports::NotServed;
use shoal_core::ports::access::{KeyError, Keys, NewKey, TeamError, TeamView, Teams};
use shoal_core::store::StoreError;

use crate::engine::Engine;

const QUOTA: NotServed = NotServed {
    what: "a quota of one API key",
    instead: "make a team for the key, and limit the team",
};

impl Keys for Engine {
    fn authenticate<'a>(
        &'a self,
        key: &'a ApiKey,
    ) -> BoxFuture<'a, Result<Option<Principal>, StoreError>> {
        Box::pin(Engine::authenticate(self, key))
    }

    fn deleted(&self, principal: &Principal) -> BoxFuture<'static, ()> {
        let mut lifetime = self.key_lifetime(principal);
        Box::pin(async move { lifetime.ended().await })
    }

    fn create<'a>(
        &'a self,
        by: &'a Principal,
        new: NewKey,
    ) -> BoxFuture<'a, Result<(ApiKey, KeyRecord), KeyError>> {
        Box::pin(async move {
            if new.quota.is_some() {
                return Err(QUOTA.into());
            }
            Engine::create_key(self, by, &new.team, &new.name, new.admin).await
        })
    }

    fn list<'a>(&'a self, by: &'a Principal) -> BoxFuture<'a, Result<Vec<KeyRecord>, KeyError>> {
        Box::pin(Engine::keys(self, by))
    }

    fn rename<'a>(
        &'a self,
        by: &'a Principal,
        id: KeyId,
        name: &'a str,
    ) -> BoxFuture<'a, Result<KeyRecord, KeyError>> {
        Box::pin(Engine::rename_key(self, by, id, name))
    }

    fn delete<'a>(&'a self, by: &'a Principal, id: KeyId) -> BoxFuture<'a, Result<(), KeyError>> {
        Box::pin(Engine::delete_key(self, by, id))
    }
}

impl Teams for Engine {
    fn list<'a>(&'a self, by: &'a Principal) -> BoxFuture<'a, Result<Vec<TeamView>, TeamError>> {
        Box::pin(Engine::teams(self, by))
    }

    fn limits(&self, principal: &Principal) -> TeamLimits {
        Engine::team_limits(self, principal)
    }

    fn set_limits<'a>(
        &'a self,
        by: &'a Principal,
        team: &'a TeamSlug,
        limits: TeamLimits,
    ) -> BoxFuture<'a, Result<(), TeamError>> {
        Box::pin(Engine::set_team_limits(self, by, team, limits))
    }

    fn slug(&self, team: TeamId) -> Option<TeamSlug> {
        Engine::team_slug(self, team)
    }
}
