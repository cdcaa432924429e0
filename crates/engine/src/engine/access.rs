//! Keys, teams and tokens, as callers of the engine see them.

use std::io;

use shoal_core::auth::{ApiKey, KeyRecord, Principal, TeamSlug, Token};
use shoal_core::id::{KeyId, TeamId};
use shoal_core::limits::TeamLimits;
use shoal_core::sandbox::SandboxRecord;
use shoal_core::store::StoreError;

use super::Engine;
use crate::access::{FirstKeyError, KeyError, KeyLifetime, TeamError};

impl Engine {
    /// The principal that holds `key`; none when the key is not known.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn authenticate(&self, key: &ApiKey) -> Result<Option<Principal>, StoreError> {
        self.shared.access.authenticate(key).await
    }

    /// Creates a key for the team `slug`, which is created when there is none. Returns the secret,
    /// which is shown this once.
    ///
    /// # Errors
    /// [`KeyError::Forbidden`] when `by` is no admin and the key is an admin's or another team's.
    pub async fn create_key(
        &self,
        by: &Principal,
        slug: &TeamSlug,
        name: &str,
        admin: bool,
    ) -> Result<(ApiKey, KeyRecord), KeyError> {
        self.shared.access.create_key(by, slug, name, admin).await
    }

    /// Creates the first key of an installation when there is none: its owner has no key to ask with
    /// yet. `keep` stores it for the owner before it is valid: a valid key that is lost would lock the
    /// owner out.
    ///
    /// # Errors
    /// When `keep` fails, or the store does.
    pub async fn mint_first_key(
        &self,
        keep: impl FnOnce(&ApiKey) -> io::Result<()>,
    ) -> Result<Option<ApiKey>, FirstKeyError> {
        self.shared.access.mint_first_key(keep).await
    }

    /// The keys that `by` may see: those of its team, or all for an admin.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn keys(&self, by: &Principal) -> Result<Vec<KeyRecord>, KeyError> {
        self.shared.access.list_keys(by).await
    }

    /// Renames a key.
    ///
    /// # Errors
    /// [`KeyError::NotFound`] for keys that `by` may not see.
    pub async fn rename_key(
        &self,
        by: &Principal,
        id: KeyId,
        name: &str,
    ) -> Result<KeyRecord, KeyError> {
        self.shared.access.rename_key(by, id, name).await
    }

    /// Deletes a key: it opens nothing from then on.
    ///
    /// # Errors
    /// [`KeyError::NotFound`] for keys that `by` may not see, [`KeyError::Itself`] for the caller's
    /// own.
    pub async fn delete_key(&self, by: &Principal, id: KeyId) -> Result<(), KeyError> {
        self.shared.access.delete_key(by, id).await
    }

    /// The lifetime of the key of `principal`.
    #[must_use]
    pub fn key_lifetime(&self, principal: &Principal) -> KeyLifetime {
        KeyLifetime::of(&self.shared.access, principal.key)
    }

    /// The slug of a team.
    #[must_use]
    pub fn team_slug(&self, team: TeamId) -> Option<TeamSlug> {
        self.shared.access.team_slug(team)
    }

    /// The limits of the team of `principal`.
    #[must_use]
    pub fn team_limits(&self, principal: &Principal) -> TeamLimits {
        self.shared.access.limits_of(principal.team)
    }

    /// Sets the limits of a team, which is created when there is none. Absent limits are the
    /// installation's.
    ///
    /// # Errors
    /// [`TeamError::Forbidden`] when `by` is no admin.
    pub async fn set_team_limits(
        &self,
        by: &Principal,
        slug: &TeamSlug,
        limits: TeamLimits,
    ) -> Result<(), TeamError> {
        self.shared.access.set_team_limits(by, slug, limits).await
    }

    /// The token that clients send to the daemon inside; none when the sandbox is not secured.
    #[must_use]
    pub fn envd_access_token(&self, record: &SandboxRecord) -> Option<Token> {
        self.shared.access.envd_access_token(record)
    }

    /// The token that the gateway asks for; none when the sandbox is public.
    #[must_use]
    pub fn traffic_access_token(&self, record: &SandboxRecord) -> Option<Token> {
        self.shared.access.traffic_access_token(record)
    }
}
