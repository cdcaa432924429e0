//! The installation and its images.

use std::path::PathBuf;
use std::sync::Arc;

use shoal_core::BoxFuture;
use shoal_core::driver::Capabilities;
use shoal_core::image::{Image, ImageError, ImageName, ProgressSink, RegistryAuth};
use shoal_core::ports::installation::{Installation, InstallationLimits, InstalledImages};

use crate::engine::Engine;

impl Installation for Engine {
    fn capabilities(&self) -> &Capabilities {
        Engine::capabilities(self)
    }

    fn limits(&self) -> InstallationLimits {
        let limits = Engine::limits(self);
        InstallationLimits {
            max_timeout: limits.max_timeout,
            sandboxes: limits.sandboxes,
        }
    }
}

impl InstalledImages for Engine {
    fn list(&self) -> BoxFuture<'_, Result<Vec<Image>, ImageError>> {
        self.images().list()
    }

    fn pull(
        &self,
        name: ImageName,
        auth: Option<RegistryAuth>,
        progress: Arc<dyn ProgressSink>,
    ) -> BoxFuture<'_, Result<Image, ImageError>> {
        Box::pin(self.pull_for_all(name, auth, progress))
    }

    fn import(
        &self,
        path: PathBuf,
        name: ImageName,
        progress: Arc<dyn ProgressSink>,
    ) -> BoxFuture<'_, Result<Image, ImageError>> {
        self.images().import(path, name, progress)
    }

    fn remove<'a>(&'a self, name: &'a ImageName) -> BoxFuture<'a, Result<(), ImageError>> {
        Box::pin(self.shared.templates.remove_image(name))
    }
}
