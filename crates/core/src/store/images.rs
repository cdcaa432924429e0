//! Which images are private.

use crate::BoxFuture;
use crate::image::{ImageName, PrivateImage};

use super::StoreError;

/// Keeps which images were fetched with an account, and are not for every team.
pub trait PrivateImageStore: Send + Sync {
    /// The image names that only some teams may use.
    ///
    /// # Errors
    /// See [`StoreError`].
    fn private_images(&self) -> BoxFuture<'_, Result<Vec<PrivateImage>, StoreError>>;

    /// Records that an image name is private, new or changed.
    ///
    /// # Errors
    /// See [`StoreError`].
    fn put_private_image(&self, image: PrivateImage) -> BoxFuture<'_, Result<(), StoreError>>;

    /// Records that an image name is open to every team.
    ///
    /// # Errors
    /// See [`StoreError`].
    fn delete_private_image(&self, name: ImageName) -> BoxFuture<'_, Result<(), StoreError>>;
}
