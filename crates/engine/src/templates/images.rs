//! Removes images that no template needs.

use shoal_core::image::{ImageError, ImageName};

use super::Templates;

impl Templates {
    /// Removes an image from this node.
    ///
    /// # Errors
    /// [`ImageError::NotFound`] when the image is not on this node, [`ImageError::InUse`] while a
    /// template or a sandbox uses it.
    pub(crate) async fn remove_image(&self, name: &ImageName) -> Result<(), ImageError> {
        if self.parts.images.find(name).await?.is_none() {
            return Err(ImageError::NotFound(name.clone()));
        }
        if let Some(template) = self.over_image(name) {
            return Err(ImageError::InUse(
                name.clone(),
                format!("the template {template}"),
            ));
        }
        self.parts.images.remove(name).await
    }

    /// The name of a template over this image, if one exists.
    fn over_image(&self, image: &ImageName) -> Option<String> {
        let all = self.all.read();
        let over = all.iter().find(|template| template.image == *image)?;
        let name = over.names.first().map(ToString::to_string);
        Some(name.unwrap_or_else(|| over.id.to_string()))
    }
}
