//! The catalogue in force: read from the store, replaced as a whole, heard of by whoever listens.

use std::sync::Arc;

use parking_lot::RwLock;
use shoal_core::catalogue::Catalogue;
use shoal_core::detail::Chain;
pub use shoal_core::ports::catalogue::{CatalogueError, CatalogueInForce, RefusedEdit};
use shoal_core::store::{Store, StoreError, StoredCatalogue, Version};
use tokio::sync::{Mutex, watch};

use crate::engine::Engine;

/// The catalogue, and what became of the last edit.
#[derive(Debug)]
pub(crate) struct Catalogues {
    current: watch::Sender<Arc<CatalogueInForce>>,
    refused: RwLock<Option<RefusedEdit>>,
    /// What is stored and what is in force change together.
    writing: Mutex<()>,
}

impl Catalogues {
    pub(crate) async fn load(store: &dyn Store) -> Result<Self, StoreError> {
        let (mut in_force, mut refused) = (CatalogueInForce::default(), None);
        if let Some(stored) = store.catalogue().await? {
            in_force.version = stored.version.0;
            in_force.updated_at = Some(stored.value.updated_at);
            match Catalogue::parse(&stored.value.json) {
                Ok(catalogue) => in_force.catalogue = catalogue,
                // Another program took it. Sandboxes can be ended without it, and it can be
                // replaced: no reason not to start.
                Err(error) => {
                    tracing::error!(error = %Chain(&error), "the stored catalogue cannot be read; it is empty now");
                    refused = Some(RefusedEdit {
                        at: stored.value.updated_at,
                        source: "the store".to_owned(),
                        message: error.to_string(),
                    });
                }
            }
        }
        Ok(Self {
            current: watch::Sender::new(Arc::new(in_force)),
            refused: RwLock::new(refused),
            writing: Mutex::new(()),
        })
    }

    pub(crate) fn current(&self) -> Arc<CatalogueInForce> {
        self.current.borrow().clone()
    }
}

impl Engine {
    /// The catalogue in force.
    #[must_use]
    pub fn catalogue(&self) -> Arc<CatalogueInForce> {
        self.shared.catalogues.current()
    }

    /// The catalogue in force, from now on.
    #[must_use]
    pub fn watch_catalogue(&self) -> watch::Receiver<Arc<CatalogueInForce>> {
        self.shared.catalogues.current.subscribe()
    }

    /// The last edit that was not taken, until one is.
    #[must_use]
    pub fn refused_edit(&self) -> Option<RefusedEdit> {
        self.shared.catalogues.refused.read().clone()
    }

    /// Notes an edit that was not taken, for operators to see.
    pub fn note_refused_edit(&self, source: &str, message: &str) {
        *self.shared.catalogues.refused.write() = Some(RefusedEdit {
            at: self.shared.clock.now(),
            source: source.to_owned(),
            message: message.to_owned(),
        });
    }

    /// Puts another catalogue in force, all of it or nothing, if the one in force has the version
    /// `expected`, or whichever it has. Entries that are the same change nothing, not even the
    /// version.
    ///
    /// # Errors
    /// See [`CatalogueError`].
    pub async fn replace_catalogue(
        &self,
        json: &str,
        expected: Option<u64>,
    ) -> Result<Arc<CatalogueInForce>, CatalogueError> {
        let catalogue = Catalogue::parse(json)?;
        let (engine, catalogue) = (self.clone(), catalogue);
        // On a task of its own: what is stored is in force, even if nobody waits any more.
        let replaced = tokio::spawn(async move { engine.put_in_force(catalogue, expected).await });
        replaced.await.map_err(StoreError::failed)?
    }

    async fn put_in_force(
        &self,
        catalogue: Catalogue,
        expected: Option<u64>,
    ) -> Result<Arc<CatalogueInForce>, CatalogueError> {
        let (shared, catalogues) = (&self.shared, &self.shared.catalogues);
        let _writing = catalogues.writing.lock().await;
        let current = catalogues.current();
        if let Some(expected) = expected.filter(|expected| *expected != current.version) {
            return Err(CatalogueError::Conflict {
                expected,
                current: current.version,
            });
        }
        let unread = catalogues.refused.read().is_some();
        if current.version > 0 && current.catalogue == catalogue && !unread {
            return Ok(current);
        }
        let updated_at = shared.clock.now();
        let next = StoredCatalogue {
            json: catalogue.to_json(),
            updated_at,
        };
        let seen = Some(Version(current.version));
        let version = shared.store.put_catalogue(next, seen).await?;
        let in_force = Arc::new(CatalogueInForce {
            version: version.0,
            updated_at: Some(updated_at),
            catalogue,
        });
        *catalogues.refused.write() = None;
        catalogues.current.send_replace(in_force.clone());
        tracing::info!(
            version = in_force.version,
            entries = in_force.catalogue.entries().len(),
            "another catalogue is in force"
        );
        Ok(in_force)
    }
}
