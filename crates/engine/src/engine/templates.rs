//! The catalogue, images and builds, as callers of the engine see them.

use std::sync::Arc;

use shoal_core::auth::Principal;
use shoal_core::build::{BuildRecord, LogEntry, LogLevel};
use shoal_core::detail::Chain;
use shoal_core::id::{BuildId, TemplateId};
use shoal_core::image::{Image, ImageError, ImageName, Images, ProgressSink, RegistryAuth};
use shoal_core::store::StoreError;
use tokio::sync::watch;

use super::Engine;
use crate::catalogue::{CatalogueError, CatalogueInForce, RefusedEdit};

impl Engine {
    /// The catalogue in force.
    #[must_use]
    pub fn catalogue(&self) -> Arc<CatalogueInForce> {
        self.shared.catalogues.current()
    }

    /// The catalogue in force, from now on.
    #[must_use]
    pub fn watch_catalogue(&self) -> watch::Receiver<Arc<CatalogueInForce>> {
        self.shared.catalogues.watch()
    }

    /// The last refused edit, until one is accepted.
    #[must_use]
    pub fn refused_edit(&self) -> Option<RefusedEdit> {
        self.shared.catalogues.refused_edit()
    }

    /// Records a refused edit, for operators to see.
    pub fn note_refused_edit(&self, source: &str, message: &str) {
        self.shared.catalogues.note_refused_edit(source, message);
    }

    /// Replaces the catalogue as a whole if the one in force has the version `expected`; `None`
    /// replaces any version. Equal entries change nothing, not even the version.
    ///
    /// # Errors
    /// See [`CatalogueError`].
    pub async fn replace_catalogue(
        &self,
        json: &str,
        expected: Option<u64>,
    ) -> Result<Arc<CatalogueInForce>, CatalogueError> {
        self.shared.catalogues.replace(json, expected).await
    }

    /// The images on this node.
    #[must_use]
    pub fn images(&self) -> &Arc<dyn Images> {
        self.shared.images.port()
    }

    /// Opens an image to every team: an operator has brought it here.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn open_image(&self, name: &ImageName) -> Result<(), StoreError> {
        self.shared.images.open(name).await
    }

    /// Pulls an image for every team: an admin has named it.
    pub(crate) async fn pull_for_all(
        &self,
        name: ImageName,
        auth: Option<RegistryAuth>,
        progress: Arc<dyn ProgressSink>,
    ) -> Result<Image, ImageError> {
        let image = self.images().pull(name, auth, progress).await?;
        // A failure leaves the image private: its registry is asked again for each team.
        if let Err(error) = self.open_image(&image.name).await {
            tracing::warn!(error = %Chain(&error), "an image stays private");
        }
        Ok(image)
    }

    /// The builds of a template, the newest first.
    #[must_use]
    pub fn builds_of(&self, template: &TemplateId) -> Vec<Arc<BuildRecord>> {
        self.shared.builds.of_template(template)
    }

    /// A build of the team of `principal`, or of the installation.
    #[must_use]
    pub fn build(&self, principal: &Principal, id: BuildId) -> Option<Arc<BuildRecord>> {
        self.shared.builds.visible(principal, id)
    }

    /// The log of a build: its lines of this level and above.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn build_log(
        &self,
        id: BuildId,
        level: LogLevel,
    ) -> Result<Vec<LogEntry>, StoreError> {
        self.shared.builds.log(id, level).await
    }
}
