//! Images on this node: pulled from registries, imported from archives, or built from a
//! distribution.
//!
//! An [`ImageStore`] owns a directory. Each layer is stored once, unpacked for overlayfs and named
//! by its digest, whatever its source and however many images use it. Named entries are complete.
//! Incomplete ones are built in a separate directory, which is all that a crash leaves behind.
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
mod config;
mod digest;
mod disk;
mod fault;
mod held;
mod import;
mod install;
mod inventory;
mod layers;
mod manifest;
mod reference;
mod registry;
mod remote_config;
mod single_flight;
pub mod unpack;

use std::path::PathBuf;
use std::sync::Arc;

use futures_util::FutureExt;
use shoal_core::BoxFuture;
use shoal_core::image::{Image, ImageError, ImageName, Images, ProgressSink, Reach, RegistryAuth};
use shoal_node::blocking;

use self::bootstrap::{Bootstrapper, InvalidRecipe, Recipe};
pub use self::config::{ImageLimits, StoreConfig};
pub use self::digest::{Digest, InvalidDigest};
use self::disk::Home;
use self::fault::Fault;
pub use self::held::{HeldImage, HeldLayers};
use self::import::Import;
use self::install::Installer;
use self::inventory::Inventory;
pub use self::inventory::{LayerUsers, NoLayerUsers};
pub use self::layers::{LayerSource, LayerStack, SandboxLayers};
use self::reference::Reference;
pub use self::registry::RegistryConfig;
use self::registry::Repository;
pub use self::remote_config::RemoteConfigs;
use self::single_flight::{Audience, SingleFlight};

/// The images on this node. Clones are handles to the same store.
///
/// # Guarantees
/// * An image that [`Images::find`] returns is complete: record and layers are on disk.
/// * Concurrent calls for the same image, or for images that share a layer, share the download. It
///   is cancelled when the last caller has gone.
/// * A layer is not removed while an image refers to it, a sandbox uses it (see [`LayerUsers`]), or
///   a [`HeldImage`] holds it.
#[derive(Clone)]
pub struct ImageStore {
    shared: Arc<Shared>,
}

struct Shared {
    config: StoreConfig,
    inventory: Arc<Inventory>,
    installer: Arc<Installer>,
    bootstrapper: Bootstrapper,
    pulls: SingleFlight<PullKey, Image>,
    bootstraps: SingleFlight<(ImageName, Digest), Image>,
}

/// The key of equal pulls. Calls with other credentials may have access to less, and calls with
/// another reach may connect to fewer registries, so neither share a pull.
type PullKey = (ImageName, Option<Digest>, Reach);

impl ImageStore {
    /// Opens the store, creates it if it does not exist, and removes leftovers of a crash. Blocks.
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
                pulls: SingleFlight::default(),
                bootstraps: SingleFlight::default(),
            }),
        })
    }

    /// The directories of the image's layers, topmost first, as overlayfs expects them; `None` if
    /// the image does not exist. A repeated layer is listed once.
    ///
    /// The directories are valid only while a sandbox or [`Self::hold`] keeps them.
    #[must_use]
    pub fn lower_dirs(&self, name: &ImageName) -> Option<Vec<PathBuf>> {
        self.hold(name).map(|held| held.lower_dirs())
    }

    /// Holds an image, so that none of its layers is removed before a sandbox is recorded as their
    /// user; `None` if it does not exist.
    #[must_use]
    pub fn hold(&self, name: &ImageName) -> Option<HeldImage> {
        let (image, pin) = self.shared.inventory.hold(name)?;
        Some(HeldImage {
            image,
            pin,
            inventory: Arc::clone(&self.shared.inventory),
        })
    }

    /// Holds layers by their digests, lowest first, independent of images: a snapshot still uses
    /// them after its image was replaced. `None` if one does not exist.
    #[must_use]
    pub fn hold_layers(&self, layers: &[String]) -> Option<HeldLayers> {
        let (directories, pin) = self.shared.inventory.hold_layers(layers)?;
        Some(HeldLayers {
            directories,
            _pin: pin,
        })
    }

    /// Removes layers that no image and no sandbox uses. They remain when an image is replaced
    /// while a sandbox uses it, and when a crash ends a pull. Call it once [`LayerUsers`] knows all
    /// sandboxes.
    ///
    /// # Errors
    /// When the disk fails.
    pub async fn sweep(&self) -> Result<(), ImageError> {
        let inventory = Arc::clone(&self.shared.inventory);
        let swept = blocking(move || inventory.sweep(None)).await;
        swept.map_err(|fault| fault.of_store(&self.shared.config.root))
    }

    /// Builds an image from a distribution's packages, replacing one of the same name. The packages
    /// come from the mirrors in this machine's apt configuration. Concurrent calls for the same
    /// recipe and name share one build.
    ///
    /// # Errors
    /// [`ImageError::Tool`] when `mmdebstrap` is missing or fails, or when no configured mirror can
    /// have the release; otherwise see [`ImageError`].
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

    /// How an image is made that no registry has: by a configured recipe, or as the smallest system of a release.
    fn recipe_of(&self, name: &ImageName) -> Option<Result<Recipe, InvalidRecipe>> {
        if let Some(recipe) = self.shared.config.recipes.get(name) {
            return Some(Ok(recipe.clone()));
        }
        let suite = name.mmdebstrap_suite()?;
        Some(suite.parse().map(Recipe::minimal))
    }

    /// Makes an image from a recipe, once.
    async fn pull_recipe(
        &self,
        name: &ImageName,
        recipe: Result<Recipe, InvalidRecipe>,
        sink: Arc<dyn ProgressSink>,
    ) -> Result<Image, Fault> {
        if let Some(image) = self.shared.inventory.image(name) {
            return Ok(image);
        }
        let recipe = recipe.map_err(|e| Fault::refused(e.to_string()))?;
        self.bootstrap_shared(name, &recipe, sink).await
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

    /// A name without a digest is resolved again on each call, because its tag may have moved.
    /// `mmdebstrap:<release>` is the smallest system of that release; it and images with a recipe are not
    /// rebuilt while they exist.
    fn pull(
        &self,
        name: ImageName,
        auth: Option<RegistryAuth>,
        progress: Arc<dyn ProgressSink>,
    ) -> BoxFuture<'_, Result<Image, ImageError>> {
        async move {
            let pulled = match self.recipe_of(&name) {
                Some(recipe) => self.pull_recipe(&name, recipe, progress).await,
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

    /// Root of this machine builds a release, in minutes: only an operator may request it.
    fn pull_public(
        &self,
        name: ImageName,
        auth: Option<RegistryAuth>,
        progress: Arc<dyn ProgressSink>,
    ) -> BoxFuture<'_, Result<Image, ImageError>> {
        async move {
            if self.recipe_of(&name).is_some() {
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
