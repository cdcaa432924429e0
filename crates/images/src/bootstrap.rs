//! Images built from a distribution's packages, for machines without a reachable registry.
//!
//! `mmdebstrap` unpacks and configures the packages of a [`Recipe`] from the mirrors in this
//! machine's own apt configuration. This program then adds the recipe's files, under the same rules
//! as for layers of other images (see `beneath`). The result is an image of one layer.

mod accounts;
mod mmdebstrap;
mod progress;
mod provision;
mod recipe;
mod sources;
mod tree_digest;

use std::path::PathBuf;
use std::sync::Arc;

use shoal_core::image::{Image, ImageName, ProgressSink};
use shoal_node::blocking;
use tokio::sync::Semaphore;

use self::mmdebstrap::Run;
pub use self::recipe::{
    EnvName, FileSpec, ImagePath, InvalidRecipe, Mode, Owner, PackageName, PathPattern, Recipe,
    Suite, UserName, UserSpec,
};
use self::sources::Apt;
use super::ImageLimits;
use super::beneath::Tree;
use super::digest::Digest;
use super::disk::{LayerRecord, Stage};
use super::fault::Fault;
use super::install::{StopOnDrop, record};
use super::inventory::Inventory;
use super::manifest::Settings;
use super::unpack::Meter;

/// The machine's package configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BootstrapConfig {
    /// The directory with apt's configuration: `sources.list` and `sources.list.d`.
    pub apt: PathBuf,
    /// The file that names this machine's distribution.
    pub os_release: PathBuf,
    /// The mirror of Ubuntu for a machine whose apt has none; `mmdebstrap` knows one if it is `None`.
    pub ubuntu_mirror: Option<String>,
}

impl Default for BootstrapConfig {
    fn default() -> Self {
        Self {
            apt: "/etc/apt".into(),
            os_release: "/etc/os-release".into(),
            ubuntu_mirror: None,
        }
    }
}

/// Builds images from recipes, one at a time: each keeps a processor and the disk busy.
pub(crate) struct Bootstrapper {
    inventory: Arc<Inventory>,
    limits: ImageLimits,
    config: BootstrapConfig,
    places: Semaphore,
}

impl Bootstrapper {
    pub(crate) fn new(
        inventory: Arc<Inventory>,
        limits: ImageLimits,
        config: BootstrapConfig,
    ) -> Self {
        Self {
            inventory,
            limits,
            config,
            places: Semaphore::new(1),
        }
    }

    /// Builds the image, replacing one of the same name.
    pub(crate) async fn bootstrap(
        &self,
        name: &ImageName,
        recipe: &Recipe,
        sink: Arc<dyn ProgressSink>,
    ) -> Result<Image, Fault> {
        recipe.check().map_err(|e| Fault::refused(e.to_string()))?;
        let place = self.places.acquire().await;
        let _place = place.map_err(|_| Fault::refused("the store is closed"))?;
        let stop = StopOnDrop::default();
        let work = Work {
            inventory: Arc::clone(&self.inventory),
            limits: self.limits,
            config: self.config.clone(),
            recipe: recipe.clone(),
            name: name.clone(),
        };
        let flag = Arc::clone(&stop.0);
        blocking(move || {
            let stage = work.inventory.home().stage()?;
            let run = Run {
                stage: &stage,
                sink: &*sink,
                stop: &flag,
            };
            let layer = work.make(&run)?;
            work.keep(stage, layer)
        })
        .await
    }
}

/// An image that is being built.
struct Work {
    inventory: Arc<Inventory>,
    limits: ImageLimits,
    config: BootstrapConfig,
    recipe: Recipe,
    name: ImageName,
}

impl Work {
    /// Builds the tree in the stage.
    fn make(&self, run: &Run<'_>) -> Result<LayerRecord, Fault> {
        let apt = Apt::read(&self.config)?;
        let sources = apt.sources_for(&self.recipe.suite)?;
        let root = run.stage.directory("fs")?;
        let tree = Tree::open(&root).map_err(|e| Fault::io("open", &root, e))?;
        // Check the disk's space before half an hour of work.
        Meter::new(tree.root(), &self.limits.layer)?;
        let sources = sources.write(run.stage)?;
        mmdebstrap::run(run, &self.recipe, &sources, &root)?;
        run.report("provisioning");
        provision::provision(&tree, &self.recipe, &sources)?;
        run.report("measuring");
        let measured =
            tree_digest::digest_tree(&tree).map_err(|e| Fault::io("measure", &root, e))?;
        if measured.bytes > self.limits.image_bytes {
            let most = self.limits.image_bytes;
            return Err(Fault::refused(format!("it has more than {most} bytes")));
        }
        Ok(LayerRecord {
            digest: measured.digest,
            diff_id: measured.digest,
            size: measured.bytes,
            entries: measured.entries,
        })
    }

    fn keep(&self, stage: Stage, layer: LayerRecord) -> Result<Image, Fault> {
        let (id, size) = (layer.diff_id, layer.size);
        let _pin = self.inventory.pin(vec![id]);
        self.inventory.add_layer(stage, layer)?;
        let settings = self.settings();
        // The recipe contains the settings that an image from a registry has in its configuration.
        let configuration = format!("{id}\n{settings:?}");
        let digest = Digest::of(configuration.as_bytes());
        let image = record(&self.name, digest, &[id], size, &settings);
        self.inventory.add_image(image.clone())?;
        Ok(image)
    }

    fn settings(&self) -> Settings {
        let Recipe {
            user, workdir, env, ..
        } = &self.recipe;
        Settings {
            user: user
                .as_ref()
                .map(|user| user.name.to_string())
                .unwrap_or_default(),
            working_dir: workdir
                .as_ref()
                .map(ToString::to_string)
                .unwrap_or_default(),
            env: env
                .iter()
                .map(|(name, value)| format!("{name}={value}"))
                .collect(),
            ..Settings::default()
        }
    }
}
