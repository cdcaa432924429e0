//! The operator's catalogue of templates: the one in force, and edits that were refused.

use std::sync::Arc;

use crate::BoxFuture;
use crate::catalogue::{Catalogue, InvalidCatalogue, Warning};
use crate::clock::Timestamp;
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
    /// The problem.
    pub message: String,
}

/// The blueprint. Where sandboxes are pods, the entries of the catalogue are filled into it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlueprintInForce {
    /// A ReplicaSet in YAML.
    pub text: String,
    /// Whether it is the installation's own, and not the default.
    pub own: bool,
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
    /// The entries are valid, and this backend cannot carry them out.
    #[error("{0}")]
    Unfit(String),
    /// Something else has the name of an entry.
    #[error("{0}")]
    Taken(String),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Sandboxes are no pods.
    #[error("there is no blueprint: write what sandboxes have into the entries of the catalogue")]
    NoBlueprint,
}

/// The operator's catalogue of templates.
pub trait TemplateCatalogue: Send + Sync {
    /// The catalogue in force.
    fn in_force(&self) -> Arc<CatalogueInForce>;

    /// The last edit, if it was refused.
    fn refused_edit(&self) -> Option<RefusedEdit>;

    /// Advice about a catalogue.
    fn warnings(&self, catalogue: &Catalogue) -> Vec<Warning> {
        catalogue.lint()
    }

    /// The blueprint in force.
    ///
    /// # Errors
    /// Where sandboxes are no pods there is none.
    fn blueprint(&self) -> Result<BlueprintInForce, CatalogueError> {
        Err(CatalogueError::NoBlueprint)
    }

    /// Puts another blueprint in force, if all entries of the catalogue can be rendered with it. An empty text means
    /// the default.
    ///
    /// # Errors
    /// See [`CatalogueError`].
    fn replace_blueprint<'a>(
        &'a self,
        _text: &'a str,
    ) -> BoxFuture<'a, Result<BlueprintInForce, CatalogueError>> {
        Box::pin(std::future::ready(Err(CatalogueError::NoBlueprint)))
    }

    /// Checks a catalogue as [`TemplateCatalogue::replace`] does, and changes nothing.
    ///
    /// # Errors
    /// See [`CatalogueError`].
    fn check(&self, json: &str) -> Result<Catalogue, CatalogueError> {
        Ok(Catalogue::parse(json)?)
    }

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
