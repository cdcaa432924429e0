//! The settings of an image store.

use std::collections::BTreeMap;
use std::path::PathBuf;

use shoal_core::image::ImageName;

use crate::bootstrap::{BootstrapConfig, Recipe};
use crate::registry::RegistryConfig;
use crate::unpack;

/// The limits of an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ImageLimits {
    /// The limits of each layer, and the disk's reserve.
    pub layer: unpack::Limits,
    /// The unpacked bytes of all layers of an image.
    pub image_bytes: u64,
}

impl Default for ImageLimits {
    fn default() -> Self {
        let layer = unpack::Limits::default();
        Self {
            layer,
            image_bytes: layer.bytes,
        }
    }
}

/// The settings of a store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreConfig {
    /// Its directory. It must be on a file system that overlayfs accepts for lower layers.
    pub root: PathBuf,
    /// The limits of images.
    pub limits: ImageLimits,
    /// Settings for registries.
    pub registry: RegistryConfig,
    /// Settings for packages.
    pub bootstrap: BootstrapConfig,
    /// Images that are made from a recipe when they are pulled for the first time.
    pub recipes: BTreeMap<ImageName, Recipe>,
}

impl StoreConfig {
    /// The defaults, for a store at `root`.
    #[must_use]
    pub fn at(root: impl Into<PathBuf>) -> Self {
        Self {
            root: root.into(),
            limits: ImageLimits::default(),
            registry: RegistryConfig::default(),
            bootstrap: BootstrapConfig::default(),
            recipes: BTreeMap::new(),
        }
    }
}
