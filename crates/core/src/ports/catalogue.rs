//! The operator's catalogue of templates: the one in force, and edits that were refused.

use std::sync::Arc;

use crate::BoxFuture;
use crate::catalogue::{Catalogue, InvalidCatalogue};
use crate::clock::Timestamp;
use crate::ports::NotServed;
use crate::store::StoreError;

/// A catalogue that is, or was, in force.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct CatalogueInForce {
    /// How often the catalogue was replaced; 0 before the first one.
    pub version: u64,
    /// When it came into force; none before the first one.
    pub updated_at: Option<Timestamp>,
    /// Its entries.
    pub catalogue: Catalogue,
}

/// An edit that was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefusedEdit {
    /// When it was refused.
    pub at: Timestamp,
    /// Where it came from, for people.
    pub source: String,
    /// What is wrong with it.
    pub message: String,
}

/// Why a catalogue was not replaced. The one in force stays.
#[derive(Debug, thiserror::Error)]
pub enum CatalogueError {
    /// The text is not a valid catalogue.
    #[error(transparent)]
    Invalid(#[from] InvalidCatalogue),
    /// Another edit came first.
    #[error(
        "the catalogue has version {current} and not {expected}: read it again, and make your \
         change there"
    )]
    Conflict {
        /// The version that the edit names.
        expected: u64,
        /// The version in force.
        current: u64,
    },
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The backend does not serve this.
    #[error(transparent)]
    NotServed(#[from] NotServed),
}

/// The operator's catalogue of templates.
pub trait TemplateCatalogue: Send + Sync {
    /// The catalogue in force.
    fn in_force(&self) -> Arc<CatalogueInForce>;

    /// The last edit, if it was refused.
    fn refused_edit(&self) -> Option<RefusedEdit>;

    /// Puts another catalogue in force as a whole, if the one in force has the version `expected`, or
    /// any version without it. Equal entries change nothing, not even the version.
    ///
    /// # Errors
    /// See [`CatalogueError`].
    fn replace<'a>(
        &'a self,
        json: &'a str,
        expected: Option<u64>,
    ) -> BoxFuture<'a, Result<Arc<CatalogueInForce>, CatalogueError>>;
}
