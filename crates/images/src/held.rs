//! Handles that keep layers in the store.

use std::path::PathBuf;
use std::sync::Arc;

use shoal_core::image::Image;

use crate::inventory::{Inventory, Pin};

/// An image whose layers stay in the store while this is held.
pub struct HeldImage {
    pub(crate) image: Image,
    pub(crate) inventory: Arc<Inventory>,
    pub(crate) pin: Pin,
}

impl HeldImage {
    /// The image.
    #[must_use]
    pub fn image(&self) -> &Image {
        &self.image
    }

    /// The directories of its layers, topmost first.
    #[must_use]
    pub fn lower_dirs(&self) -> Vec<PathBuf> {
        debug_assert!(!self.pin.layers().is_empty(), "an image has layers");
        self.inventory.lower_dirs(&self.image)
    }
}

/// Layers that stay in the store while this is held.
pub struct HeldLayers {
    pub(crate) directories: Vec<PathBuf>,
    pub(crate) _pin: Pin,
}

impl HeldLayers {
    /// Their directories, topmost first.
    #[must_use]
    pub fn lower_dirs(&self) -> &[PathBuf] {
        &self.directories
    }
}
