//! Finds and checks the origin of a run before anything is created.

use std::path::{Path, PathBuf};

use shoal_core::driver::{DriverError, Start, StartSpec};
use shoal_core::image::ImageName;
use shoal_core::template::RuntimeName;
use shoal_images::LayerStack;
use shoal_node::machine::Machine;
use shoal_node::saved::{FileName, SavedDirectory, SavedManifest, Unreadable};

use super::Shared;
use crate::runtime::Runtime;

/// The origin of a run.
pub(super) struct Origin {
    pub(super) image: ImageName,
    pub(super) stack: LayerStack,
    /// The name of the layer with the daemon.
    pub(super) envd: FileName,
    /// The saved state, unless the run starts from the image alone.
    pub(super) saved: Option<SavedOrigin>,
}

/// A checkpoint or a snapshot to start from.
pub(super) struct SavedOrigin {
    pub(super) place: SavedDirectory,
    pub(super) manifest: SavedManifest,
    /// The saved memory to restore. Without it, the sandbox boots from its files.
    memory: Option<PathBuf>,
}

impl Origin {
    pub(super) fn find(shared: &Shared, order: &StartSpec) -> Result<Self, DriverError> {
        let (place, memory, missing) = match &order.start {
            Start::Image(image) => return Self::of_image(shared, image),
            Start::Snapshot { id, memory } => (
                SavedDirectory::of_snapshot(&shared.disk, *id),
                *memory,
                DriverError::SnapshotNotFound(*id),
            ),
            Start::Paused { memory, .. } => (
                SavedDirectory::of_paused(&shared.disk, &order.id),
                *memory,
                DriverError::NotFound(order.id.clone()),
            ),
        };
        let manifest =
            SavedManifest::read(place.directory()).map_err(|unreadable| match unreadable {
                Unreadable::Missing => missing,
                other => DriverError::Unusable(other.to_string()),
            })?;
        let stack = shared.layers.by_digest(&manifest.layers);
        let stack = stack.ok_or_else(|| DriverError::ImageNotFound(manifest.image.clone()))?;
        if !shared.envd_layers.join(&manifest.envd).is_dir() {
            return Err(DriverError::Unusable(
                "the daemon that ran in it is not on this node".to_owned(),
            ));
        }
        let memory = (memory && manifest.saved.contents.has_memory()).then(|| place.memory());
        if memory.is_some() {
            manifest
                .check_lengths(place.directory())
                .map_err(unusable)?;
        }
        Ok(Self {
            image: manifest.image.clone(),
            stack,
            // A sandbox that boots runs the current daemon.
            envd: match memory {
                Some(_) => manifest.envd.clone(),
                None => shared.envd.clone(),
            },
            saved: Some(SavedOrigin {
                place,
                manifest,
                memory,
            }),
        })
    }

    fn of_image(shared: &Shared, image: &ImageName) -> Result<Self, DriverError> {
        let stack = shared.layers.layers(image);
        Ok(Self {
            image: image.clone(),
            stack: stack.ok_or_else(|| DriverError::ImageNotFound(image.clone()))?,
            envd: shared.envd.clone(),
            saved: None,
        })
    }

    /// The requested runtime, or else the one that saved the sandbox.
    pub(super) fn runtime<'a>(&'a self, order: &'a StartSpec) -> Option<&'a RuntimeName> {
        let saved = self.saved.as_ref();
        let before = saved.map(|saved| &saved.manifest.saved.runtime);
        order.runtime.as_ref().or(before)
    }

    pub(super) fn has_memory(&self) -> bool {
        self.memory().is_some()
    }

    pub(super) fn memory(&self) -> Option<&Path> {
        self.saved.as_ref()?.memory.as_deref()
    }

    /// Checks that this runtime can restore the memory on this machine.
    pub(super) fn check(&self, runtime: &Runtime) -> Result<(), DriverError> {
        let Some(saved) = self.saved.as_ref().filter(|saved| saved.memory.is_some()) else {
            return Ok(());
        };
        let before = &saved.manifest;
        if before.saved.runtime != runtime.info.name {
            return Err(DriverError::Unsupported {
                runtime: runtime.info.name.clone(),
                operation: "resume memory that another runtime has saved",
                instead: "the runtime that it was saved in, or memory: false to boot from its files",
            });
        }
        if before.runtime_build != runtime.info.build {
            return Err(DriverError::Unusable(format!(
                "its memory was saved by another build of {}; boot it from its files \
                 (memory: false), or install that build again",
                runtime.info.name
            )));
        }
        match Machine::this().refuses(&before.machine) {
            Some(reason) => Err(DriverError::Unusable(reason)),
            None => Ok(()),
        }
    }

    /// Verifies the memory, unless that was done since it was last written.
    pub(super) fn verify(&self, shared: &Shared) -> Result<(), DriverError> {
        let Some(saved) = self.saved.as_ref().filter(|saved| saved.memory.is_some()) else {
            return Ok(());
        };
        let directory = saved.place.directory();
        let stamp = saved.manifest.stamp(directory);
        if stamp.is_some_and(|stamp| shared.verified.lock().contains(&stamp)) {
            return Ok(());
        }
        saved.manifest.verify(directory).map_err(unusable)?;
        if let Some(stamp) = stamp {
            shared.note_verified(stamp);
        }
        Ok(())
    }
}

fn unusable(unreadable: Unreadable) -> DriverError {
    DriverError::Unusable(unreadable.to_string())
}
