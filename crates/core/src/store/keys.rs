//! API keys and the secret of the installation.

use crate::BoxFuture;
use crate::auth::{ApiKeyHash, KeyRecord, TokenSeed};
use crate::id::{KeyId, TeamId};

use super::StoreError;

/// Keeps API keys, and the secret that tokens are derived from.
pub trait KeyStore: Send + Sync {
    /// The key with this hash.
    ///
    /// # Errors
    /// See [`StoreError`].
    fn key_by_hash(
        &self,
        hash: &ApiKeyHash,
    ) -> BoxFuture<'_, Result<Option<KeyRecord>, StoreError>>;

    /// The keys of one team, or of all.
    ///
    /// # Errors
    /// See [`StoreError`].
    fn keys(&self, team: Option<TeamId>) -> BoxFuture<'_, Result<Vec<KeyRecord>, StoreError>>;

    /// Writes a key, new or renamed.
    ///
    /// # Errors
    /// See [`StoreError`].
    fn put_key(&self, key: KeyRecord) -> BoxFuture<'_, Result<(), StoreError>>;

    /// Deletes a key. Returns whether it existed.
    ///
    /// # Errors
    /// See [`StoreError`].
    fn delete_key(&self, id: &KeyId) -> BoxFuture<'_, Result<bool, StoreError>>;

    /// The secret of this installation; stores `fresh` when there is none.
    ///
    /// # Errors
    /// See [`StoreError`].
    fn token_seed(&self, fresh: [u8; 32]) -> BoxFuture<'_, Result<TokenSeed, StoreError>>;
}
