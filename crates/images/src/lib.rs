//! Images on this node: pulled from registries, imported from archives, made from a distribution.
//!
//! An [`ImageStore`] owns a directory. A layer lies there once, unpacked for overlayfs and named
//! by the digest of its content, however many images have it and however it came. What is in the
//! directory is whole; what is being made is beside it, and a crash leaves nothing else.
//!
//! ```text
//!   reference ─▶ registry ┐
//!   archive, layout ──────┼─▶ plan ─▶ install ─▶ unpack ─▶ disk
//!   recipe ─▶ bootstrap ──┘ (a tree, not an archive)       ▲
//!                                         inventory ───────┘
//! ```

pub mod beneath;
mod blob;
pub mod bootstrap;
mod digest;
mod disk;
mod fault;
mod flight;
mod import;
mod install;
mod inventory;
mod layers;
mod manifest;
mod reference;
mod registry;
pub mod unpack;

use std::path::PathBuf;
use std::sync::Arc;

use futures_util::FutureExt;
use shoal_core::BoxFuture;
use shoal_core::image::{Image, ImageError, ImageName, Images, ProgressSink, Reach, RegistryAuth};
use shoal_node::blocking;

use self::bootstrap::{BootstrapConfig, Bootstrapper, InvalidRecipe, Recipe};
pub use self::digest::{Digest, InvalidDigest};
use self::disk::Home;
use self::fault::Fault;
use self::flight::{Audience, Flights};
use self::import::Import;
use self::install::Installer;
use self::inventory::{Inventory, Pin};
pub use self::inventory::{LayerUsers, NoLayerUsers};
pub use self::layers::{LayerSource, LayerStack, SandboxLayers};
use self::reference::Reference;
pub use self::registry::RegistryConfig;
use self::registry::Repository;

/// What an image may hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ImageLimits {
    /// Of one layer, and of the disk.
    pub layer: unpack::Limits,
    /// Bytes of all layers of an image, unpacked.
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

/// A store's settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreConfig {
    /// Its directory. Layers are used from there, so it must be on a file system that can be the
    /// lower one of an overlay.
    pub root: PathBuf,
    /// What images may hold.
    pub limits: ImageLimits,
    /// How registries are talked to.
    pub registry: RegistryConfig,
    /// Where packages come from.
    pub bootstrap: BootstrapConfig,
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
        }
    }
}

/// The images on this node. Cloning it gives another handle to the same store.
///
/// # Guarantees
/// * What [`Images::find`] answers is whole: record and layers are on the disk.
/// * Calls that want the same image, or images that share a layer, share the download, as long
///   as one of them waits for it; when the last one is dropped, it is given up.
/// * A layer is not removed while an image names it, a sandbox stands on it (see
///   [`LayerUsers`]), or a [`HeldImage`] holds it.
#[derive(Clone)]
pub struct ImageStore {
    shared: Arc<Shared>,
}

struct Shared {
    config: StoreConfig,
    inventory: Arc<Inventory>,
    installer: Arc<Installer>,
    bootstrapper: Bootstrapper,
    pulls: Flights<PullKey, Image>,
    bootstraps: Flights<(ImageName, Digest), Image>,
}

/// Pulls that are the same: not those with other credentials, as they may be given less, nor those of
/// who may ask other registries.
type PullKey = (ImageName, Option<Digest>, Reach);

impl ImageStore {
    /// Opens the store, making it if it is not there, and clears what a crash has left. It blocks
    /// meanwhile.
    ///
    /// # Errors
    /// When another process has it open, a later version wrote it, or the disk fails.
    pub fn open(config: StoreConfig, users: Arc<dyn LayerUsers>) -> Result<Self, ImageError> {
        let opened = Home::open(&config.root).and_then(|home| Inventory::open(home, users));
        let inventory = opened.map_err(|fault| fault.of_store(&config.root))?;
        let installer = Installer::new(
            Arc::clone(&inventory),
            config.limits,
            config.registry.clone(),
        );
        let bootstrapper = Bootstrapper::new(
            Arc::clone(&inventory),
            config.limits,
            config.bootstrap.clone(),
        );
        Ok(Self {
            shared: Arc::new(Shared {
                config,
                inventory,
                installer,
                bootstrapper,
                pulls: Flights::default(),
                bootstraps: Flights::default(),
            }),
        })
    }

    /// The directories of the image's layers, the top one first, as overlayfs wants them; none
    /// when the image is not here. A layer that an image has twice is named once.
    ///
    /// The directories are read only while somebody keeps them: a sandbox, or [`Self::hold`].
    #[must_use]
    pub fn lower_dirs(&self, name: &ImageName) -> Option<Vec<PathBuf>> {
        self.hold(name).map(|held| held.lower_dirs())
    }

    /// Holds an image, so that none of its layers is removed before a sandbox is known to stand
    /// on them; none when it is not here.
    #[must_use]
    pub fn hold(&self, name: &ImageName) -> Option<HeldImage> {
        let (image, pin) = self.shared.inventory.hold(name)?;
        Some(HeldImage {
            image,
            pin,
            inventory: Arc::clone(&self.shared.inventory),
        })
    }

    /// Holds layers by their digests, the lowest first, whatever image they came with: a snapshot
    /// stands on them after its image has been replaced. None when one of them is not here.
    #[must_use]
    pub fn hold_layers(&self, layers: &[String]) -> Option<HeldLayers> {
        let (directories, pin) = self.shared.inventory.hold_layers(layers)?;
        Some(HeldLayers {
            directories,
            _pin: pin,
        })
    }

    /// Removes layers that no image names and no sandbox stands on. They are left by an image
    /// that was replaced while a sandbox used it, and by a pull that a crash ended. Call it when
    /// [`LayerUsers`] knows all sandboxes.
    ///
    /// # Errors
    /// When the disk fails.
    pub async fn sweep(&self) -> Result<(), ImageError> {
        let inventory = Arc::clone(&self.shared.inventory);
        let swept = blocking(move || inventory.sweep(None)).await;
        swept.map_err(|fault| fault.of_store(&self.shared.config.root))
    }

    /// Makes an image from a distribution's packages, in the place of the one of that name, from
    /// the mirrors that this machine's apt is configured with. Calls for the same recipe under
    /// the same name share the work.
    ///
    /// # Errors
    /// [`ImageError::Tool`] when `mmdebstrap` is missing or fails, or when no mirror is
    /// configured that may have the release; else see [`ImageError`].
    pub async fn bootstrap(
        &self,
        name: ImageName,
        recipe: &Recipe,
        progress: Arc<dyn ProgressSink>,
    ) -> Result<Image, ImageError> {
        let made = self.bootstrap_shared(&name, recipe, progress).await;
        made.map_err(|fault| fault.of(&name))
    }

    async fn bootstrap_shared(
        &self,
        name: &ImageName,
        recipe: &Recipe,
        sink: Arc<dyn ProgressSink>,
    ) -> Result<Image, Fault> {
        let key = (name.clone(), recipe.fingerprint());
        let begin = |audience: Audience| {
            let (shared, name, recipe) = (Arc::clone(&self.shared), name.clone(), recipe.clone());
            async move {
                let sink = Arc::new(audience);
                shared.bootstrapper.bootstrap(&name, &recipe, sink).await
            }
            .boxed()
        };
        self.shared.bootstraps.join(key, sink, begin).await
    }

    /// The smallest system of a release, made once.
    async fn pull_suite(
        &self,
        name: &ImageName,
        suite: &str,
        sink: Arc<dyn ProgressSink>,
    ) -> Result<Image, Fault> {
        if let Some(image) = self.shared.inventory.image(name) {
            return Ok(image);
        }
        let suite = suite
            .parse()
            .map_err(|e: InvalidRecipe| Fault::refused(e.to_string()))?;
        self.bootstrap_shared(name, &Recipe::minimal(suite), sink)
            .await
    }

    async fn pull_registry(
        &self,
        name: ImageName,
        auth: Option<RegistryAuth>,
        reach: Reach,
        sink: Arc<dyn ProgressSink>,
    ) -> Result<Image, Fault> {
        let account = auth.as_ref().map(registry::fingerprint);
        let key = (name.clone(), account, reach);
        let begin = |audience: Audience| {
            let (shared, name, auth) = (Arc::clone(&self.shared), name.clone(), auth.clone());
            async move {
                let reference = Reference::parse(&name)?;
                let from = Repository::new(reference, auth, reach, &shared.config.registry)?;
                let plan = from.plan().await?;
                let sink = Arc::new(audience);
                shared
                    .installer
                    .install(&name, plan, Arc::new(from), sink)
                    .await
            }
            .boxed()
        };
        self.shared.pulls.join(key, sink, begin).await
    }

    async fn import_files(
        &self,
        path: PathBuf,
        name: &ImageName,
        sink: Arc<dyn ProgressSink>,
    ) -> Result<Image, Fault> {
        let limits = self.shared.config.limits;
        let limits = unpack::Limits {
            bytes: limits.image_bytes,
            file_bytes: limits.image_bytes,
            ..limits.layer
        };
        let (inventory, wanted) = (Arc::clone(&self.shared.inventory), name.clone());
        let (from, plan) = blocking(move || {
            let from = Import::open(&path, inventory.home().stage()?, &limits)?;
            let plan = from.plan(&wanted)?;
            Ok::<_, Fault>((from, plan))
        })
        .await?;
        self.shared
            .installer
            .install(name, plan, Arc::new(from), sink)
            .await
    }
}

impl Images for ImageStore {
    fn list(&self) -> BoxFuture<'_, Result<Vec<Image>, ImageError>> {
        async { Ok(self.shared.inventory.images()) }.boxed()
    }

    fn find(&self, name: &ImageName) -> BoxFuture<'_, Result<Option<Image>, ImageError>> {
        let found = self.shared.inventory.image(name);
        async { Ok(found) }.boxed()
    }

    /// A name without a digest is asked for again, as its tag may have moved. `mmdebstrap:` and
    /// a release is the smallest system of that release; it is not made again while it is here.
    fn pull(
        &self,
        name: ImageName,
        auth: Option<RegistryAuth>,
        progress: Arc<dyn ProgressSink>,
    ) -> BoxFuture<'_, Result<Image, ImageError>> {
        async move {
            let pulled = match name.mmdebstrap_suite() {
                Some(suite) => self.pull_suite(&name, suite, progress).await,
                None => {
                    let reach = Reach::Anywhere;
                    self.pull_registry(name.clone(), auth, reach, progress)
                        .await
                }
            };
            pulled.map_err(|fault| fault.of(&name))
        }
        .boxed()
    }

    /// A release is made by root of this machine, in minutes: an operator asks for it.
    fn pull_public(
        &self,
        name: ImageName,
        auth: Option<RegistryAuth>,
        progress: Arc<dyn ProgressSink>,
    ) -> BoxFuture<'_, Result<Image, ImageError>> {
        async move {
            if name.mmdebstrap_suite().is_some() {
                let fault = Fault::refused("only an admin key makes an image with mmdebstrap");
                return Err(fault.of(&name));
            }
            let pulled = self.pull_registry(name.clone(), auth, Reach::Public, progress);
            let pulled = pulled.await.map_err(Fault::without_details);
            pulled.map_err(|fault| fault.of(&name))
        }
        .boxed()
    }

    fn import(
        &self,
        path: PathBuf,
        name: ImageName,
        progress: Arc<dyn ProgressSink>,
    ) -> BoxFuture<'_, Result<Image, ImageError>> {
        async move {
            let imported = self.import_files(path, &name, progress).await;
            imported.map_err(|fault| fault.of(&name))
        }
        .boxed()
    }

    fn remove(&self, name: &ImageName) -> BoxFuture<'_, Result<(), ImageError>> {
        let (inventory, name) = (Arc::clone(&self.shared.inventory), name.clone());
        async move {
            let failed = name.clone();
            blocking(move || Ok(inventory.remove(&name)))
                .await
                .map_err(|fault: Fault| fault.of(&failed))?
        }
        .boxed()
    }
}

/// An image whose layers stay as long as this is held.
pub struct HeldImage {
    image: Image,
    inventory: Arc<Inventory>,
    pin: Pin,
}

impl HeldImage {
    /// The image.
    #[must_use]
    pub fn image(&self) -> &Image {
        &self.image
    }

    /// The directories of its layers, the top one first.
    #[must_use]
    pub fn lower_dirs(&self) -> Vec<PathBuf> {
        debug_assert!(!self.pin.layers().is_empty(), "an image has layers");
        self.inventory.lower_dirs(&self.image)
    }
}

/// Layers that are held.
pub struct HeldLayers {
    directories: Vec<PathBuf>,
    _pin: Pin,
}

impl HeldLayers {
    /// Their directories, the top one first.
    #[must_use]
    pub fn lower_dirs(&self) -> &[PathBuf] {
        &self.directories
    }
}
