//! The current catalogue: read from the store, replaced as a whole, and announced to subscribers.

use std::sync::Arc;

use parking_lot::RwLock;
use shoal_core::catalogue::Catalogue;
use shoal_core::clock::Clock;
use shoal_core::detail::Chain;
pub use shoal_core::ports::catalogue::{CatalogueError, CatalogueInForce, RefusedEdit};
use shoal_core::store::{CatalogueStore, StoreError, StoredCatalogue, Version};
use tokio::sync::{Mutex, watch};

use crate::work::Work;

/// The catalogue in force, and the last refused edit.
pub(crate) struct Catalogues {
    store: Arc<dyn CatalogueStore>,
    clock: Arc<dyn Clock>,
    current: watch::Sender<Arc<CatalogueInForce>>,
    refused: RwLock<Option<RefusedEdit>>,
    /// The stored catalogue and the one in force change together.
    writing: Mutex<()>,
    work: Work,
}

impl Catalogues {
    pub(crate) async fn load(
        store: Arc<dyn CatalogueStore>,
        clock: Arc<dyn Clock>,
        work: Work,
    ) -> Result<Self, StoreError> {
        let (mut in_force, mut refused) = (CatalogueInForce::default(), None);
        if let Some(stored) = store.catalogue().await? {
            in_force.version = stored.version.0;
            in_force.updated_at = Some(stored.value.updated_at);
            match Catalogue::parse(&stored.value.json) {
                Ok(catalogue) => in_force.catalogue = catalogue,
                // Another version of the program accepted it. Sandboxes can be ended without it, and
                // it can be replaced: the server starts all the same.
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
            store,
            clock,
            current: watch::Sender::new(Arc::new(in_force)),
            refused: RwLock::new(refused),
            writing: Mutex::new(()),
            work,
        })
    }

    /// The catalogue in force.
    pub(crate) fn current(&self) -> Arc<CatalogueInForce> {
        self.current.borrow().clone()
    }

    /// The catalogue in force, from now on.
    pub(crate) fn watch(&self) -> watch::Receiver<Arc<CatalogueInForce>> {
        self.current.subscribe()
    }

    /// The last refused edit, until one is accepted.
    pub(crate) fn refused_edit(&self) -> Option<RefusedEdit> {
        self.refused.read().clone()
    }

    /// Records a refused edit, for operators to see.
    pub(crate) fn note_refused_edit(&self, source: &str, message: &str) {
        *self.refused.write() = Some(RefusedEdit {
            at: self.clock.now(),
            source: source.to_owned(),
            message: message.to_owned(),
        });
    }

    /// Replaces the catalogue as a whole if the one in force has the version `expected`; `None`
    /// replaces any version. Equal entries change nothing, not even the version.
    pub(crate) async fn replace(
        self: &Arc<Self>,
        json: &str,
        expected: Option<u64>,
    ) -> Result<Arc<CatalogueInForce>, CatalogueError> {
        let catalogue = Catalogue::parse(json)?;
        let catalogues = self.clone();
        // A task of its own: a stored catalogue takes effect even when the caller stops waiting.
        let replace = async move { catalogues.put_in_force(catalogue, expected).await };
        let replaced = self.work.spawn(replace);
        replaced.await.map_err(StoreError::failed)?
    }

    async fn put_in_force(
        &self,
        catalogue: Catalogue,
        expected: Option<u64>,
    ) -> Result<Arc<CatalogueInForce>, CatalogueError> {
        let _writing = self.writing.lock().await;
        let current = self.current();
        if let Some(expected) = expected.filter(|expected| *expected != current.version) {
            return Err(CatalogueError::Conflict {
                expected,
                current: current.version,
            });
        }
        let unread = self.refused.read().is_some();
        if current.version > 0 && current.catalogue == catalogue && !unread {
            return Ok(current);
        }
        let updated_at = self.clock.now();
        let next = StoredCatalogue {
            json: catalogue.to_json(),
            updated_at,
        };
        let seen = Some(Version(current.version));
        let version = self.store.put_catalogue(next, seen).await?;
        let in_force = Arc::new(CatalogueInForce {
            version: version.0,
            updated_at: Some(updated_at),
            catalogue,
        });
        *self.refused.write() = None;
        self.current.send_replace(in_force.clone());
        tracing::info!(
            version = in_force.version,
            entries = in_force.catalogue.entries().len(),
            "another catalogue is in force"
        );
        Ok(in_force)
    }
}
