//! The installation: its capabilities, its limits and its images.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::BoxFuture;
use crate::driver::Capabilities;
use crate::image::{Image, ImageError, ImageName, ProgressSink, RegistryAuth};

/// The limits of the installation that clients are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InstallationLimits {
    /// The longest life of a sandbox.
    pub max_timeout: Duration,
    /// The most sandboxes at once, of all teams.
    pub sandboxes: usize,
}

/// The capabilities and the capacity of the installation.
pub trait Installation: Send + Sync {
    /// The runtimes and resources.
    fn capabilities(&self) -> &Capabilities;

    /// The limits of all teams together.
    fn limits(&self) -> InstallationLimits;
}

/// The images that templates and sandboxes start from, as operators manage them.
pub trait InstalledImages: Send + Sync {
    /// Every image that was fetched.
    ///
    /// # Errors
    /// When the images cannot be read.
    fn list(&self) -> BoxFuture<'_, Result<Vec<Image>, ImageError>>;

    /// Fetches an image for all teams. One that is already present is not fetched again.
    ///
    /// # Errors
    /// See [`ImageError`].
    fn pull(
        &self,
        name: ImageName,
        auth: Option<RegistryAuth>,
        progress: Arc<dyn ProgressSink>,
    ) -> BoxFuture<'_, Result<Image, ImageError>>;

    /// Imports an image from a file: an OCI layout or a `docker save` archive.
    ///
    /// # Errors
    /// See [`ImageError`].
    fn import(
        &self,
        path: PathBuf,
        name: ImageName,
        progress: Arc<dyn ProgressSink>,
    ) -> BoxFuture<'_, Result<Image, ImageError>>;

    /// Removes an image.
    ///
    /// # Errors
    /// [`ImageError::NotFound`] when it is missing; [`ImageError::InUse`] while a template or a sandbox
    /// needs it.
    fn remove<'a>(&'a self, name: &'a ImageName) -> BoxFuture<'a, Result<(), ImageError>>;
}
