//! Images that were brought here with somebody's account.
//!
//! What an account may read is not for everybody on this node. Such an image is used as it lies here
//! only by whoever shows an account again; for all others its registry is asked whether they may have
//! it without one. What is noted of a name is the digest of the image that is for everybody: whatever
//! becomes of a fetch with an account, and whoever fetches at the same time, nothing else is open.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::RwLock;
use shoal_core::image::{
    Image, ImageError, ImageName, NoProgress, PrivateImage, Reach, RegistryAuth,
};
use shoal_core::store::StoreError;

use crate::engine::{Engine, Shared};

/// The names whose images are not for everybody, each with the digest of the one that is.
#[derive(Debug, Default)]
pub(crate) struct PrivateImages(RwLock<HashMap<ImageName, Option<String>>>);

impl PrivateImages {
    pub(crate) fn load(images: Vec<PrivateImage>) -> Self {
        let images = images.into_iter().map(|image| (image.name, image.open));
        Self(RwLock::new(images.collect()))
    }

    fn are_closed_to(&self, image: &Image) -> bool {
        let names = self.0.read();
        let open = names.get(&image.name);
        open.is_some_and(|open| open.as_deref() != Some(image.digest.as_str()))
    }
}

/// Why an image could not be had.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BringError {
    /// It cannot be found or fetched.
    #[error(transparent)]
    Image(#[from] ImageError),
    /// Whom it is for could not be noted.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Shared {
    /// The image, brought here when it is not from where `reach` allows, for whoever has this account
    /// or none.
    pub(crate) async fn bring(
        &self,
        name: &ImageName,
        auth: Option<RegistryAuth>,
        reach: Reach,
    ) -> Result<Image, BringError> {
        let open = self.open_image_here(name).await?;
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
                if self.private_images.0.read().contains_key(name) {
                    self.note_private(name, Some(image.digest.clone())).await?;
                }
                Ok(image)
            }
            (auth, open) => {
                // Noted before it is here: a crash in between must not open it.
                let open = open.map(|image| image.digest);
                self.note_private(name, open).await?;
                Ok(pull(auth).await?)
            }
        }
    }

    /// The image, when it is here and for everybody.
    pub(crate) async fn open_image_here(
        &self,
        name: &ImageName,
    ) -> Result<Option<Image>, BringError> {
        let known = self.images.find(name).await?;
        Ok(known.filter(|image| !self.private_images.are_closed_to(image)))
    }

    async fn note_private(&self, name: &ImageName, open: Option<String>) -> Result<(), StoreError> {
        let image = PrivateImage {
            name: name.clone(),
            open: open.clone(),
        };
        self.store.put_private_image(image).await?;
        self.private_images.0.write().insert(name.clone(), open);
        Ok(())
    }
}

impl Engine {
    /// Lets everybody on this node use an image: an operator has brought it here himself.
    ///
    /// # Errors
    /// When the store does not take it.
    pub async fn open_image(&self, name: &ImageName) -> Result<(), StoreError> {
        self.shared.store.delete_private_image(name.clone()).await?;
        self.shared.private_images.0.write().remove(name);
        Ok(())
    }
}
