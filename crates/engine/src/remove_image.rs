//! Removing an image that nothing needs.

use shoal_core::image::{ImageError, ImageName};

use crate::engine::Engine;

impl Engine {
    /// Removes an image from this node.
    ///
    /// # Errors
    /// [`ImageError::NotFound`] when it is not here, [`ImageError::InUse`] while a template or a
    /// sandbox stands on it.
    pub async fn remove_image(&self, name: &ImageName) -> Result<(), ImageError> {
        let images = &self.shared.images;
        if images.find(name).await?.is_none() {
            return Err(ImageError::NotFound(name.clone()));
        }
        if let Some(template) = self.template_over(name) {
            return Err(ImageError::InUse(
                name.clone(),
                format!("the template {template}"),
            ));
        }
        images.remove(name).await
    }
}
