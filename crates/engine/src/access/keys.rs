//! API keys and the tenants they speak for.

use std::io;
use std::sync::Arc;

use shoal_core::auth::{ApiKey, KeyRecord, Principal, TeamSlug};
use shoal_core::id::{KeyId, TeamId};
use shoal_core::ports::access::KEY_NAME_MAX;
pub use shoal_core::ports::access::KeyError;
use shoal_core::store::StoreError;

use super::Access;
use crate::random;

/// Why an installation has no first key yet.
#[derive(Debug, thiserror::Error)]
pub enum FirstKeyError {
    /// The key could not be written to its owner's file.
    #[error("the first key cannot be written to its file")]
    NotKept(#[source] io::Error),
    /// The key could not be made.
    #[error(transparent)]
    Key(#[from] KeyError),
}

fn principal_of(key: &KeyRecord) -> Principal {
    Principal {
        team: key.team,
        slug: key.slug.clone(),
        key: key.id,
        admin: key.admin,
    }
}

impl Access {
    /// The holder of `key`; none when it is unknown.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub(crate) async fn authenticate(&self, key: &ApiKey) -> Result<Option<Principal>, StoreError> {
        let hash = key.hash();
        let cache = &self.cache;
        if let Some(principal) = cache.get(&hash) {
            return Ok(Some(principal));
        }
        let removals = cache.removals();
        let Some(record) = self.keys.key_by_hash(&hash).await? else {
            return Ok(None);
        };
        let principal = principal_of(&record);
        cache.remember(hash, principal.clone(), removals);
        Ok(Some(principal))
    }

    /// Makes a key for the tenant `slug`, which is made when there is none. The secret is returned
    /// this once.
    ///
    /// # Errors
    /// [`KeyError::Forbidden`] when `by` is of another tenant and no admin.
    pub(crate) async fn create_key(
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

    /// Makes the first key of an installation, if there is none: its owner has no key to create one
    /// with. `keep` saves the key before it becomes valid: a valid key that was lost would prevent
    /// another first key.
    ///
    /// # Errors
    /// When it is not kept, or the store does not take it.
    pub(crate) async fn mint_first_key(
        &self,
        keep: impl FnOnce(&ApiKey) -> io::Result<()>,
    ) -> Result<Option<ApiKey>, FirstKeyError> {
        let known = self.keys.keys(None).await.map_err(KeyError::from)?;
        if !known.is_empty() {
            return Ok(None);
        }
        let slug = "default".parse().map_err(|_| KeyError::InvalidName)?;
        let secret = ApiKey::from_entropy(random::bytes().map_err(KeyError::from)?);
        keep(&secret).map_err(FirstKeyError::NotKept)?;
        self.put_key(&slug, "first key", true, &secret).await?;
        Ok(Some(secret))
    }

    async fn mint_key(
        &self,
        slug: &TeamSlug,
        name: &str,
        admin: bool,
    ) -> Result<(ApiKey, KeyRecord), KeyError> {
        let secret = ApiKey::from_entropy(random::bytes()?);
        let record = self.put_key(slug, name, admin, &secret).await?;
        Ok((secret, record))
    }

    async fn put_key(
        &self,
        slug: &TeamSlug,
        name: &str,
        admin: bool,
        secret: &ApiKey,
    ) -> Result<KeyRecord, KeyError> {
        if name.is_empty() || name.chars().count() > KEY_NAME_MAX {
            return Err(KeyError::InvalidName);
        }
        let team = self
            .teams
            .team(slug, TeamId::from_entropy(random::bytes()?))
            .await?;
        self.slugs.add(slug.clone(), team);
        let record = KeyRecord {
            id: KeyId::from_entropy(random::bytes()?),
            team,
            slug: slug.clone(),
            admin,
            name: name.to_owned(),
            mask: secret.mask(),
            hash: secret.hash(),
            created_at: self.clock.now(),
            quota: None,
        };
        self.keys.put_key(record.clone()).await?;
        Ok(record)
    }

    /// The keys that `by` may see: those of its tenant, or all for an admin.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub(crate) async fn list_keys(&self, by: &Principal) -> Result<Vec<KeyRecord>, KeyError> {
        let team = (!by.admin).then_some(by.team);
        Ok(self.keys.keys(team).await?)
    }

    /// Renames a key.
    ///
    /// # Errors
    /// See [`KeyError`].
    pub(crate) async fn rename_key(
        &self,
        by: &Principal,
        id: KeyId,
        name: &str,
    ) -> Result<KeyRecord, KeyError> {
        if name.is_empty() || name.chars().count() > KEY_NAME_MAX {
            return Err(KeyError::InvalidName);
        }
        let _changing = self.cache.changing.lock().await;
        let keys = self.list_keys(by).await?;
        let key = keys
            .into_iter()
            .find(|key| key.id == id)
            .ok_or(KeyError::NotFound(id))?;
        let renamed = KeyRecord {
            name: name.to_owned(),
            ..key
        };
        self.keys.put_key(renamed.clone()).await?;
        Ok(renamed)
    }

    /// Removes a key: it opens nothing from then on.
    ///
    /// # Errors
    /// See [`KeyError`].
    pub(crate) async fn delete_key(
        self: &Arc<Self>,
        by: &Principal,
        id: KeyId,
    ) -> Result<(), KeyError> {
        if id == by.key {
            return Err(KeyError::Itself);
        }
        let (access, by) = (self.clone(), by.clone());
        // On a task of its own: if the caller disconnected half-way, a key that the store has deleted
        // would stay in the cache.
        let work = self.work.clone();
        let removed = work.spawn(async move { access.delete_key_of(&by, id).await });
        let removed = removed.await;
        removed.map_err(StoreError::failed)?
    }

    async fn delete_key_of(&self, by: &Principal, id: KeyId) -> Result<(), KeyError> {
        let _changing = self.cache.changing.lock().await;
        let keys = self.list_keys(by).await?;
        let key = keys
            .into_iter()
            .find(|key| key.id == id)
            .ok_or(KeyError::NotFound(id))?;
        self.keys.delete_key(&id).await?;
        self.cache.forget(&key.hash, id);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;
    use crate::test_util;

    #[tokio::test]
    async fn a_key_that_is_looked_up_while_it_is_removed_opens_nothing_after_that() {
        let directory = tempfile::tempdir().unwrap();
        let engine = test_util::open(test_util::parts(directory.path())).await;
        let (admin, other) = test_util::admin_and_other(&engine).await;
        let admin = engine.authenticate(&ApiKey::parse(&admin).unwrap()).await;
        let admin = admin.unwrap().unwrap();
        let other = ApiKey::parse(&other).unwrap();

        // As `authenticate` does it, with the removal in the middle.
        let cache = &engine.shared.access.cache;
        let removals = cache.removals();
        let found = engine.shared.access.keys.key_by_hash(&other.hash()).await;
        let found = found.unwrap().unwrap();
        engine.delete_key(&admin, found.id).await.unwrap();
        cache.remember(other.hash(), principal_of(&found), removals);
        assert!(engine.authenticate(&other).await.unwrap().is_none());
    }

    #[tokio::test]
    async fn a_client_with_a_deleted_key_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let engine = test_util::open(test_util::parts(directory.path())).await;
        let (admin, other) = test_util::admin_and_other(&engine).await;
        let admin = engine.authenticate(&ApiKey::parse(&admin).unwrap()).await;
        let admin = admin.unwrap().unwrap();
        let other = engine.authenticate(&ApiKey::parse(&other).unwrap()).await;
        let other = other.unwrap().unwrap();
        let mut early = engine.key_lifetime(&other);
        let mut unharmed = engine.key_lifetime(&admin);
        assert!(early.ended().now_or_never().is_none());
        engine.delete_key(&admin, other.key).await.unwrap();
        // Before and after the deletion; and by a watch that begins when the cache has forgotten.
        early.ended().await;
        engine.key_lifetime(&other).ended().await;
        assert!(unharmed.ended().now_or_never().is_none());
    }
}
