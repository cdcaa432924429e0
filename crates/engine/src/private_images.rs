//! Images that were brought here with somebody's account.
//!
//! What an account may read is not for everybody on this node. Such an image is used as it lies here
//! only by whoever shows an account again; for all others its registry is asked whether they may have
//! it without one.

use std::collections::HashSet;
use std::sync::Arc;

use parking_lot::RwLock;
use shoal_core::image::{Image, ImageError, ImageName, NoProgress, RegistryAuth};
use shoal_core::store::StoreError;

use crate::engine::{Engine, Shared};

/// The names of images that are not for everybody.
#[derive(Debug, Default)]
pub(crate) struct PrivateImages(RwLock<HashSet<ImageName>>);

impl PrivateImages {
    pub(crate) fn load(names: Vec<ImageName>) -> Self {
        Self(RwLock::new(names.into_iter().collect()))
    }

    fn has(&self, name: &ImageName) -> bool {
        self.0.read().contains(name)
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
    /// The image, brought here when it is not, for whoever has this account or none.
    pub(crate) async fn bring(
        &self,
        name: &ImageName,
        auth: Option<RegistryAuth>,
    ) -> Result<Image, BringError> {
        let open = self.open_image_here(name).await?;
        let pull = |auth| self.images.pull(name.clone(), auth, Arc::new(NoProgress));
        match (auth, open) {
            (None, Some(image)) => Ok(image),
            (None, None) => {
                let image = pull(None).await?;
                self.set_private(name, false).await?;
                Ok(image)
            }
            (auth, open) => {
                // Noted before it is here: a crash in between must not open it.
                self.set_private(name, true).await?;
                let image = pull(auth).await?;
                if open.is_some_and(|open| open.digest == image.digest) {
                    self.set_private(name, false).await?;
                }
                Ok(image)
            }
        }
    }

    /// The image, when it is here and for everybody.
    pub(crate) async fn open_image_here(
        &self,
        name: &ImageName,
    ) -> Result<Option<Image>, BringError> {
        let known = self.images.find(name).await?;
        Ok(known.filter(|_| !self.private_images.has(name)))
    }

    async fn set_private(&self, name: &ImageName, private: bool) -> Result<(), StoreError> {
        if self.private_images.has(name) == private {
            return Ok(());
        }
        self.store.set_private_image(name.clone(), private).await?;
        let mut names = self.private_images.0.write();
        if private {
            names.insert(name.clone());
        } else {
            names.remove(name);
        }
        Ok(())
    }
}

impl Engine {
    /// Lets everybody on this node use an image: an operator has brought it here himself.
    ///
    /// # Errors
    /// When the store does not take it.
    pub async fn open_image(&self, name: &ImageName) -> Result<(), StoreError> {
        self.shared.set_private(name, false).await
    }
}
