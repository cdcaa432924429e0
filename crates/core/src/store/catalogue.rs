//! The stored catalogue.

use crate::BoxFuture;
use crate::clock::Timestamp;

use super::{StoreError, Version, Versioned};

/// The stored catalogue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredCatalogue {
    /// Its entries: a JSON array.
    pub json: String,
    /// When it took effect.
    pub updated_at: Timestamp,
}

/// Keeps the catalogue.
pub trait CatalogueStore: Send + Sync {
    /// The catalogue; `None` when none was ever stored.
    ///
    /// # Errors
    /// See [`StoreError`].
    fn catalogue(&self) -> BoxFuture<'_, Result<Option<Versioned<StoredCatalogue>>, StoreError>>;

    /// Replaces the catalogue. `expected` is the version that was read, 0 when there was none;
    /// `None` replaces any version.
    ///
    /// # Errors
    /// [`StoreError::Conflict`] when the stored version is another.
    fn put_catalogue(
        &self,
        next: StoredCatalogue,
        expected: Option<Version>,
    ) -> BoxFuture<'_, Result<Version, StoreError>>;
}
