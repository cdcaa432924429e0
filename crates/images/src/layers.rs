//! The read-only layers of sandboxes.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use shoal_core::image::ImageName;
use shoal_node::disk;
use shoal_node::exhausted::is_exhausted;
use shoal_node::home;
use shoal_node::manifest::Manifest;
use shoal_node::saved;

use crate::{ImageStore, LayerUsers};

/// The layers of an image on this node.
pub struct LayerStack {
    /// Their digests, lowest first.
    pub digests: Vec<String>,
    /// Their directories, topmost first, as overlayfs expects them.
    pub directories: Vec<PathBuf>,
    /// Keeps the layers until the sandbox's manifest records them.
    pub held: Option<Box<dyn Send + Sync>>,
}

/// Provides the layers of images.
pub trait LayerSource: Send + Sync {
    /// The layers of `image`; `None` if it is not on this node.
    fn layers(&self, image: &ImageName) -> Option<LayerStack>;

    /// The layers with these digests, lowest first; `None` if one is not on this node.
    fn by_digest(&self, digests: &[String]) -> Option<LayerStack>;
}

impl LayerSource for ImageStore {
    fn layers(&self, image: &ImageName) -> Option<LayerStack> {
        let held = self.hold(image)?;
        Some(LayerStack {
            digests: held.image().layers.clone(),
            directories: held.lower_dirs(),
            held: Some(Box::new(held)),
        })
    }

    fn by_digest(&self, digests: &[String]) -> Option<LayerStack> {
        let held = self.hold_layers(digests)?;
        Some(LayerStack {
            digests: digests.to_vec(),
            directories: held.lower_dirs().to_vec(),
            held: Some(Box::new(held)),
        })
    }
}

/// The users of layers: sandboxes and snapshots, according to their manifests.
#[derive(Debug, Clone)]
pub struct SandboxLayers {
    sandboxes: PathBuf,
    snapshots: PathBuf,
}

impl SandboxLayers {
    /// The users in the installation in `data`.
    #[must_use]
    pub fn of(data: &Path) -> Self {
        Self {
            sandboxes: home::sandboxes(data),
            snapshots: disk::snapshots(data),
        }
    }
}

impl LayerUsers for SandboxLayers {
    fn user_of(&self, layer: &str) -> Option<String> {
        // When in doubt, a layer is in use: a server without descriptors finds no sandbox.
        self.find_user(layer)
            .unwrap_or_else(|error| Some(format!("something that cannot be read now: {error}")))
    }
}

impl SandboxLayers {
    fn find_user(&self, layer: &str) -> io::Result<Option<String>> {
        let uses = |layers: &[String]| layers.iter().any(|digest| digest == layer);
        for directory in entries(&self.sandboxes)? {
            if let Some(manifest) = Manifest::read(&directory)?
                && uses(&manifest.layers)
            {
                return Ok(Some(format!("sandbox {}", manifest.id)));
            }
        }
        for directory in entries(&self.snapshots)? {
            match saved::SavedManifest::read(&directory) {
                Ok(manifest) if uses(&manifest.layers) => {
                    let source = &manifest.source;
                    return Ok(Some(format!("a snapshot of sandbox {source}")));
                }
                Err(saved::Unreadable::Disk(error)) if is_exhausted(&error) => return Err(error),
                // A manifest that cannot be parsed starts no sandbox.
                Ok(_) | Err(_) => {}
            }
        }
        Ok(None)
    }
}

/// The entries of a directory; empty if it does not exist.
fn entries(directory: &Path) -> io::Result<Vec<PathBuf>> {
    match fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        entries => entries?.map(|entry| Ok(entry?.path())).collect(),
    }
}
