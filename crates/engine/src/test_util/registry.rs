//! A fake registry of images.

use std::sync::Arc;

use parking_lot::Mutex;
use shoal_core::BoxFuture;
use shoal_core::clock::Timestamp;
use shoal_core::image::{Image, ImageError, ImageName, Images, ProgressSink, RegistryAuth};

use super::Gate;

/// A registry whose images are on the node only after a pull. A name decides the outcome: pulls of
/// `…missing…`, `…private…` and `…foreign…` fail. A pull with credentials gets another image than one
/// without; the password `wrong` is refused.
#[derive(Debug, Clone, Default)]
pub struct FakeRegistry {
    here: Arc<Mutex<Vec<Image>>>,
    /// The name of each pull.
    pub pulled: Arc<Mutex<Vec<ImageName>>>,
    /// The names that tenants pulled, which must not lead to private hosts.
    pub asked_by_tenants: Arc<Mutex<Vec<ImageName>>>,
    /// Lookups of images on the node pass this gate.
    pub finds: Gate,
}

/// An image of one layer that sets a user, a working directory and variables.
#[must_use]
pub fn image(name: ImageName) -> Image {
    Image {
        name,
        digest: format!("sha256:{}", "0".repeat(64)),
        layers: vec!["sha256:1".to_owned()],
        size_bytes: 7,
        user: Some("node:node".to_owned()),
        workdir: Some("/app".to_owned()),
        env: vec!["FROM=image".to_owned(), "IMAGE=1".to_owned()],
        entrypoint: Vec::new(),
        cmd: Vec::new(),
        created_at: Timestamp::from_unix_seconds(1),
    }
}

impl Images for FakeRegistry {
    fn list(&self) -> BoxFuture<'_, Result<Vec<Image>, ImageError>> {
        Box::pin(async { Ok(self.here.lock().clone()) })
    }

    fn find(&self, name: &ImageName) -> BoxFuture<'_, Result<Option<Image>, ImageError>> {
        let name = name.clone();
        Box::pin(async move {
            self.finds.pass().await;
            Ok(self.here.lock().iter().find(|i| i.name == name).cloned())
        })
    }

    fn pull(
        &self,
        name: ImageName,
        auth: Option<RegistryAuth>,
        _: Arc<dyn ProgressSink>,
    ) -> BoxFuture<'_, Result<Image, ImageError>> {
        Box::pin(async move {
            self.pulled.lock().push(name.clone());
            if auth.as_ref().is_some_and(|auth| auth.password == "wrong") {
                return Err(ImageError::Unauthorized("registry.test".to_owned()));
            }
            if name.as_str().contains("missing") {
                return Err(ImageError::NotFound(name));
            }
            if name.as_str().contains("private") {
                return Err(ImageError::Unauthorized("registry.test".to_owned()));
            }
            if name.as_str().contains("foreign") {
                return Err(ImageError::WrongArchitecture(name, "amd64"));
            }
            let mut image = image(name);
            if auth.is_some() {
                image.digest = format!("sha256:{}", "1".repeat(64));
            }
            let mut here = self.here.lock();
            here.retain(|known| known.name != image.name);
            here.push(image.clone());
            Ok(image)
        })
    }

    fn pull_public(
        &self,
        name: ImageName,
        auth: Option<RegistryAuth>,
        progress: Arc<dyn ProgressSink>,
    ) -> BoxFuture<'_, Result<Image, ImageError>> {
        self.asked_by_tenants.lock().push(name.clone());
        self.pull(name, auth, progress)
    }

    fn import(
        &self,
        _: std::path::PathBuf,
        name: ImageName,
        progress: Arc<dyn ProgressSink>,
    ) -> BoxFuture<'_, Result<Image, ImageError>> {
        self.pull(name, None, progress)
    }

    fn remove(&self, name: &ImageName) -> BoxFuture<'_, Result<(), ImageError>> {
        self.here.lock().retain(|image| image.name != *name);
        Box::pin(async { Ok(()) })
    }
}

/// A store without images.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoImages;

impl Images for NoImages {
    fn list(&self) -> BoxFuture<'_, Result<Vec<Image>, ImageError>> {
        Box::pin(async { Ok(Vec::new()) })
    }

    fn find(&self, _: &ImageName) -> BoxFuture<'_, Result<Option<Image>, ImageError>> {
        Box::pin(async { Ok(None) })
    }

    fn pull(
        &self,
        name: ImageName,
        _: Option<RegistryAuth>,
        _: Arc<dyn ProgressSink>,
    ) -> BoxFuture<'_, Result<Image, ImageError>> {
        Box::pin(async move { Err(ImageError::NotFound(name)) })
    }

    fn pull_public(
        &self,
        name: ImageName,
        _: Option<RegistryAuth>,
        _: Arc<dyn ProgressSink>,
    ) -> BoxFuture<'_, Result<Image, ImageError>> {
        Box::pin(async move { Err(ImageError::NotFound(name)) })
    }

    fn import(
        &self,
        _: std::path::PathBuf,
        name: ImageName,
        _: Arc<dyn ProgressSink>,
    ) -> BoxFuture<'_, Result<Image, ImageError>> {
        Box::pin(async move { Err(ImageError::NotFound(name)) })
    }

    fn remove(&self, _: &ImageName) -> BoxFuture<'_, Result<(), ImageError>> {
        Box::pin(async { Ok(()) })
    }
}
