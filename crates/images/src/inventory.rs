//! The inventory of the store: images, layers, and their users.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::Mutex;
use shoal_core::image::{Image, ImageError, ImageName};

use super::digest::Digest;
use super::disk::{Home, LayerRecord, Stage};
use super::fault::Fault;

/// Knows which layers running and paused sandboxes use.
pub trait LayerUsers: Send + Sync {
    /// A sandbox that uses this layer (`sha256:…`), if any. It is called for each layer while
    /// images are being removed, so it must be fast and must not call the store.
    fn user_of(&self, layer: &str) -> Option<String>;
}

/// No layer is in use: for a store without sandboxes.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoLayerUsers;

impl LayerUsers for NoLayerUsers {
    fn user_of(&self, _layer: &str) -> Option<String> {
        None
    }
}

/// The images and layers of one store.
///
/// Memory never claims more than the disk has: every change is made on disk first. A layer stays
/// while an image refers to it, a sandbox uses it, or a [`Pin`] holds it.
pub(crate) struct Inventory {
    home: Home,
    users: Arc<dyn LayerUsers>,
    /// Held during every change, including disk writes; never across an await.
    changes: Mutex<()>,
    /// The current contents. Never held during disk writes.
    here: Mutex<Here>,
}

#[derive(Default)]
struct Here {
    images: BTreeMap<ImageName, Image>,
    layers: HashMap<Digest, LayerRecord>,
    pins: HashMap<Digest, usize>,
}

impl Inventory {
    /// Reads the store. Images without all their layers are dropped.
    pub(crate) fn open(home: Home, users: Arc<dyn LayerUsers>) -> Result<Arc<Self>, Fault> {
        let layers: HashMap<_, _> = home
            .read_layers()?
            .into_iter()
            .map(|record| (record.diff_id, record))
            .collect();
        let mut images = BTreeMap::new();
        for image in home.read_images()? {
            if layers_of(&image).all(|layer| layers.contains_key(&layer)) {
                images.insert(image.name.clone(), image);
            } else {
                tracing::warn!(image = %image.name, "forgotten: it lacks a layer");
                home.drop_image(&image.name)?;
            }
        }
        let here = Here {
            images,
            layers,
            pins: HashMap::new(),
        };
        Ok(Arc::new(Self {
            home,
            users,
            changes: Mutex::new(()),
            here: Mutex::new(here),
        }))
    }

    pub(crate) fn home(&self) -> &Home {
        &self.home
    }

    /// All images, by name.
    pub(crate) fn images(&self) -> Vec<Image> {
        self.here.lock().images.values().cloned().collect()
    }

    pub(crate) fn image(&self, name: &ImageName) -> Option<Image> {
        self.here.lock().images.get(name).cloned()
    }

    pub(crate) fn layer(&self, layer: &Digest) -> Option<LayerRecord> {
        self.here.lock().layers.get(layer).cloned()
    }

    /// Pins the layers of an image; `None` if the image does not exist.
    pub(crate) fn hold(self: &Arc<Self>, name: &ImageName) -> Option<(Image, Pin)> {
        let mut here = self.here.lock();
        let image = here.images.get(name)?.clone();
        let layers: Vec<Digest> = layers_of(&image).collect();
        here.pin(&layers);
        drop(here);
        Some((image, self.pin_of(layers)))
    }

    /// Pins these layers, lowest first; `None` if one does not exist.
    pub(crate) fn hold_layers(self: &Arc<Self>, layers: &[String]) -> Option<(Vec<PathBuf>, Pin)> {
        let layers: Vec<Digest> = layers
            .iter()
            .map(|layer| layer.parse().ok())
            .collect::<Option<_>>()?;
        let mut here = self.here.lock();
        if !layers.iter().all(|layer| here.layers.contains_key(layer)) {
            return None;
        }
        here.pin(&layers);
        drop(here);
        let directories = self.directories(layers.clone());
        Some((directories, self.pin_of(layers)))
    }

    /// Pins layers, whether or not they exist yet.
    pub(crate) fn pin(self: &Arc<Self>, layers: Vec<Digest>) -> Pin {
        self.here.lock().pin(&layers);
        self.pin_of(layers)
    }

    fn pin_of(self: &Arc<Self>, layers: Vec<Digest>) -> Pin {
        Pin {
            inventory: Arc::clone(self),
            layers,
        }
    }

    /// Adds a layer that was built in `stage`, unless it exists, or is no longer pinned: its caller
    /// has gone and would not sweep it.
    pub(crate) fn add_layer(&self, stage: Stage, record: LayerRecord) -> Result<(), Fault> {
        let _changing = self.changes.lock();
        let unwanted = {
            let here = self.here.lock();
            here.layers.contains_key(&record.diff_id) || !here.is_needed(&record.diff_id)
        };
        if unwanted {
            return Ok(());
        }
        self.home.keep_layer(stage, &record)?;
        self.here.lock().layers.insert(record.diff_id, record);
        Ok(())
    }

    /// Adds an image whose layers exist, replacing one of the same name.
    pub(crate) fn add_image(&self, image: Image) -> Result<(), Fault> {
        let changing = self.changes.lock();
        self.home.keep_image(&image)?;
        let replaced = self.here.lock().images.insert(image.name.clone(), image);
        let gone = self.sweep_among(replaced.iter().flat_map(layers_of));
        drop(changing);
        // Removing trees is slow, so it happens outside the lock.
        gone.map(drop)
    }

    /// Removes an image, and the layers that only it used.
    pub(crate) fn remove(&self, name: &ImageName) -> Result<(), ImageError> {
        let changing = self.changes.lock();
        let Some(image) = self.image(name) else {
            return Ok(());
        };
        if let Some(user) = self.user_of(&image) {
            return Err(ImageError::InUse(name.clone(), user));
        }
        self.home.drop_image(name).map_err(|fault| fault.of(name))?;
        self.here.lock().images.remove(name);
        let gone = self.sweep_among(layers_of(&image));
        drop(changing);
        gone.map(drop).map_err(|fault| fault.of(name))
    }

    /// Removes those of these layers that are not in use.
    pub(crate) fn sweep(&self, layers: Option<&[Digest]>) -> Result<(), Fault> {
        let changing = self.changes.lock();
        let all: Vec<Digest> = match layers {
            Some(layers) => layers.to_vec(),
            None => self.here.lock().layers.keys().copied().collect(),
        };
        let gone = self.sweep_among(all.into_iter());
        drop(changing);
        gone.map(drop)
    }

    /// A sandbox that uses a layer which would be removed with this image. Layers that another
    /// image shares stay anyway.
    fn user_of(&self, image: &Image) -> Option<String> {
        let others: BTreeSet<Digest> = {
            let here = self.here.lock();
            let others = here
                .images
                .values()
                .filter(|other| other.name != image.name);
            others.flat_map(layers_of).collect()
        };
        layers_of(image)
            .filter(|layer| !others.contains(layer))
            .find_map(|layer| self.users.user_of(&layer.to_string()))
    }

    /// Takes out those of these layers that no image, pin or sandbox uses. The caller holds
    /// `changes`. Dropping the result removes their trees.
    fn sweep_among(&self, layers: impl Iterator<Item = Digest>) -> Result<Vec<Stage>, Fault> {
        let mut gone = Vec::new();
        for layer in layers {
            if self.users.user_of(&layer.to_string()).is_some() {
                continue;
            }
            let taken = {
                let mut here = self.here.lock();
                if here.is_needed(&layer) {
                    None
                } else {
                    here.layers.remove(&layer)
                }
            };
            if taken.is_some() {
                gone.push(self.home.drop_layer(&layer)?);
            }
        }
        Ok(gone)
    }

    /// The directories of these layers, topmost first. Of a repeated layer only the highest
    /// occurrence counts: it hides the lower one, and overlayfs does not accept a directory twice.
    pub(crate) fn lower_dirs(&self, image: &Image) -> Vec<PathBuf> {
        self.directories(layers_of(image).collect())
    }

    fn directories(&self, layers: Vec<Digest>) -> Vec<PathBuf> {
        let mut seen = BTreeSet::new();
        layers
            .into_iter()
            .rev()
            .filter(|layer| seen.insert(*layer))
            .map(|layer| self.home.layer_root(&layer))
            .collect()
    }
}

impl Here {
    fn pin(&mut self, layers: &[Digest]) {
        for layer in layers {
            *self.pins.entry(*layer).or_default() += 1;
        }
    }

    fn is_needed(&self, layer: &Digest) -> bool {
        self.pins.contains_key(layer)
            || self
                .images
                .values()
                .any(|image| layers_of(image).any(|one| one == *layer))
    }
}

/// The layers of an image, lowest first.
fn layers_of(image: &Image) -> impl Iterator<Item = Digest> {
    // The store writes these records, so every layer is a digest.
    image.layers.iter().filter_map(|layer| layer.parse().ok())
}

/// Layers that stay in the store while this is held.
pub(crate) struct Pin {
    inventory: Arc<Inventory>,
    layers: Vec<Digest>,
}

impl Pin {
    pub(crate) fn layers(&self) -> &[Digest] {
        &self.layers
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        let mut here = self.inventory.here.lock();
        for layer in &self.layers {
            if let Some(count) = here.pins.get_mut(layer) {
                *count -= 1;
                if *count == 0 {
                    here.pins.remove(layer);
                }
            }
        }
    }
}
