//! The images on this node, and which of them are private.
//!
//! An image that was fetched with an account is private. Only requests with an account use the copy on the node at once; for
//! other requests, the registry must confirm that the image can be fetched anonymously. The note of a name has the digest of
//! the image that was confirmed: fetches with an account, even at the same time, open no other image.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::RwLock;
use shoal_core::image::{
    Image, ImageError, ImageName, Images, NoProgress, PrivateImage, Reach, RegistryAuth,
};
use shoal_core::store::{PrivateImageStore, StoreError};
use tokio::sync::Semaphore;

use crate::work::Work;

/// How many images are fetched for creates at the same time.
const PULLS: usize = 4;

/// Why an image could not be had.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FetchError {
    /// The image cannot be found or fetched.
    #[error(transparent)]
    Image(#[from] ImageError),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The images on this node.
pub(crate) struct NodeImages {
    images: Arc<dyn Images>,
    store: Arc<dyn PrivateImageStore>,
    /// The names of private images, each with the digest of the image that is open.
    private: RwLock<HashMap<ImageName, Option<String>>>,
    pulls: Semaphore,
    work: Work,
}

impl NodeImages {
    pub(crate) async fn load(
        images: Arc<dyn Images>,
        store: Arc<dyn PrivateImageStore>,
        work: Work,
    ) -> Result<Self, StoreError> {
        let private = store.private_images().await?.into_iter();
        let private = private.map(|image| (image.name, image.open)).collect();
        Ok(Self {
            images,
            store,
            private: RwLock::new(private),
            pulls: Semaphore::new(PULLS),
            work,
        })
    }

    /// The port to the images themselves.
    pub(crate) fn port(&self) -> &Arc<dyn Images> {
        &self.images
    }

    /// The image of this name, when it is on the node.
    pub(crate) async fn find(&self, name: &ImageName) -> Result<Option<Image>, ImageError> {
        self.images.find(name).await
    }

    /// The image for a create without an account, fetched when it is not on the node.
    ///
    /// # Panics
    /// When the fetch does.
    pub(crate) async fn fetch_open(
        self: &Arc<Self>,
        name: &ImageName,
        reach: Reach,
    ) -> Result<Image, FetchError> {
        let (images, name) = (self.clone(), name.clone());
        // A task of its own: when the caller stops waiting, the next one finds the image here.
        let pulled = self.work.spawn(async move {
            if let Some(image) = images.find_open(&name).await? {
                return Ok(image);
            }
            // Never closed.
            let _turn = images.pulls.acquire().await;
            images.fetch(&name, None, reach).await
        });
        match pulled.await {
            Ok(fetched) => fetched,
            Err(panicked) => std::panic::resume_unwind(panicked.into_panic()),
        }
    }

    /// The image for a request with this account or none, fetched from where `reach` allows when it is
    /// not on the node.
    pub(crate) async fn fetch(
        &self,
        name: &ImageName,
        auth: Option<RegistryAuth>,
        reach: Reach,
    ) -> Result<Image, FetchError> {
        let open = self.find_open(name).await?;
        let pull = |auth| {
            let (name, sink) = (name.clone(), Arc::new(NoProgress));
            match reach {
                Reach::Anywhere => self.images.pull(name, auth, sink),
                Reach::Public => self.images.pull_public(name, auth, sink),
            }
        };
        match (auth, open) {
            (None, Some(image)) => Ok(image),
            (None, None) => {
                let image = pull(None).await?;
                if self.private.read().contains_key(name) {
                    self.note_private(name, Some(image.digest.clone())).await?;
                }
                Ok(image)
            }
            (auth, open) => {
                // Noted before the image is here: a crash in between must not open it.
                let open = open.map(|image| image.digest);
                self.note_private(name, open).await?;
                Ok(pull(auth).await?)
            }
        }
    }

    /// The image, when it is on the node and open to every team.
    async fn find_open(&self, name: &ImageName) -> Result<Option<Image>, FetchError> {
        let known = self.images.find(name).await?;
        Ok(known.filter(|image| !self.is_private(image)))
    }

    fn is_private(&self, image: &Image) -> bool {
        let names = self.private.read();
        let open = names.get(&image.name);
        open.is_some_and(|open| open.as_deref() != Some(image.digest.as_str()))
    }

    async fn note_private(&self, name: &ImageName, open: Option<String>) -> Result<(), StoreError> {
        let image = PrivateImage {
            name: name.clone(),
            open: open.clone(),
        };
        self.store.put_private_image(image).await?;
        self.private.write().insert(name.clone(), open);
        Ok(())
    }

    /// Opens an image to every team: an operator has brought it here.
    pub(crate) async fn open(&self, name: &ImageName) -> Result<(), StoreError> {
        self.store.delete_private_image(name.clone()).await?;
        self.private.write().remove(name);
        Ok(())
    }

    /// Removes an image from the node.
    pub(crate) async fn remove(&self, name: &ImageName) -> Result<(), ImageError> {
        self.images.remove(name).await
    }
}
