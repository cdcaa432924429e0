//! API keys and the tenants they speak for.

use std::collections::HashMap;

use parking_lot::RwLock;
use shoal_core::auth::{ApiKey, ApiKeyHash, KeyRecord, Principal, TeamSlug};
use shoal_core::id::{KeyId, TeamId};
use shoal_core::store::StoreError;

use crate::engine::Engine;
use crate::entropy::{self, NoEntropy};

/// How many keys are remembered between requests; more are looked up each time.
const REMEMBERED: usize = 4096;

/// The longest name of a key.
const NAME_MAX: usize = 128;

/// Keys that were good a moment ago, so that a request does not wait for the store.
#[derive(Debug, Default)]
pub(crate) struct KeyCache(RwLock<HashMap<ApiKeyHash, Principal>>);

/// Why a key was not made or changed.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// It is not known, or another tenant's.
    #[error("API key {0} was not found")]
    NotFound(KeyId),
    /// Only an admin key may do it.
    #[error("only an admin key may do this")]
    Forbidden,
    /// The name is empty or too long.
    #[error("the name of a key has 1 to {NAME_MAX} characters")]
    InvalidName,
    /// The key that is asked to be removed is the one that asks.
    #[error("a key cannot remove itself")]
    Itself,
    /// The store did not take it.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The system has no randomness.
    #[error(transparent)]
    Entropy(#[from] NoEntropy),
}

fn principal_of(key: &KeyRecord) -> Principal {
    Principal {
        team: key.team,
        slug: key.slug.clone(),
        key: key.id,
        admin: key.admin,
    }
}

impl Engine {
    /// Who holds `key`; nobody when it is not known.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn authenticate(&self, key: &ApiKey) -> Result<Option<Principal>, StoreError> {
        let hash = key.hash();
        let cache = &self.shared.keys.0;
        if let Some(principal) = cache.read().get(&hash) {
            return Ok(Some(principal.clone()));
        }
        let Some(record) = self.shared.store.key_by_hash(&hash).await? else {
            return Ok(None);
        };
        let principal = principal_of(&record);
        let mut remembered = cache.write();
        if remembered.len() >= REMEMBERED {
            remembered.clear();
        }
        remembered.insert(hash, principal.clone());
        Ok(Some(principal))
    }

    /// Makes a key for the tenant `slug`, which is made when there is none. The secret is returned
    /// this once.
    ///
    /// # Errors
    /// [`KeyError::Forbidden`] when `by` is of another tenant and no admin.
    pub async fn create_key(
        &self,
        by: &Principal,
        slug: &TeamSlug,
        name: &str,
        admin: bool,
    ) -> Result<(ApiKey, KeyRecord), KeyError> {
        if !by.admin && (admin || *slug != by.slug) {
            return Err(KeyError::Forbidden);
        }
        self.mint_key(slug, name, admin).await
    }

    /// The first key of an installation: for its owner, who has no key to ask with yet.
    ///
    /// # Errors
    /// When the store does not take it.
    pub async fn mint_first_key(&self) -> Result<Option<ApiKey>, KeyError> {
        if !self.shared.store.keys(None).await?.is_empty() {
            return Ok(None);
        }
        let slug = "default".parse().map_err(|_| KeyError::InvalidName)?;
        Ok(Some(self.mint_key(&slug, "first key", true).await?.0))
    }

    async fn mint_key(
        &self,
        slug: &TeamSlug,
        name: &str,
        admin: bool,
    ) -> Result<(ApiKey, KeyRecord), KeyError> {
        if name.is_empty() || name.chars().count() > NAME_MAX {
            return Err(KeyError::InvalidName);
        }
        let store = &self.shared.store;
        let team = store
            .team(slug, TeamId::from_entropy(entropy::bytes()?))
            .await?;
        let secret = ApiKey::from_entropy(entropy::bytes()?);
        let record = KeyRecord {
            id: KeyId::from_entropy(entropy::bytes()?),
            team,
            slug: slug.clone(),
            admin,
            name: name.to_owned(),
            mask: secret.mask(),
            hash: secret.hash(),
            created_at: self.shared.clock.now(),
        };
        store.put_key(record.clone()).await?;
        Ok((secret, record))
    }

    /// The keys that `by` may see: those of its tenant, or all for an admin.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn keys(&self, by: &Principal) -> Result<Vec<KeyRecord>, KeyError> {
        let team = (!by.admin).then_some(by.team);
        Ok(self.shared.store.keys(team).await?)
    }

    /// Renames a key.
    ///
    /// # Errors
    /// See [`KeyError`].
    pub async fn rename_key(
        &self,
        by: &Principal,
        id: KeyId,
        name: &str,
    ) -> Result<KeyRecord, KeyError> {
        if name.is_empty() || name.chars().count() > NAME_MAX {
            return Err(KeyError::InvalidName);
        }
        let keys = self.keys(by).await?;
        let key = keys
            .into_iter()
            .find(|key| key.id == id)
            .ok_or(KeyError::NotFound(id))?;
        let renamed = KeyRecord {
            name: name.to_owned(),
            ..key
        };
        self.shared.store.put_key(renamed.clone()).await?;
        Ok(renamed)
    }

    /// Removes a key: it opens nothing from then on.
    ///
    /// # Errors
    /// See [`KeyError`].
    pub async fn delete_key(&self, by: &Principal, id: KeyId) -> Result<(), KeyError> {
        if id == by.key {
            return Err(KeyError::Itself);
        }
        let keys = self.keys(by).await?;
        let key = keys
            .into_iter()
            .find(|key| key.id == id)
            .ok_or(KeyError::NotFound(id))?;
        self.shared.store.delete_key(&id).await?;
        self.shared.keys.0.write().remove(&key.hash);
        Ok(())
    }
}
