//! Where the read-only layers of a sandbox come from.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};
use shoal_core::image::ImageName;

use crate::bundle::ENVD_PATH;
use crate::disk;
use crate::exhausted::is_exhausted;
use crate::home;
use crate::images::{ImageStore, LayerUsers};
use crate::manifest::Manifest;
use crate::saved::{self, FileName};

/// The layers of an image on this node.
pub struct LayerStack {
    /// Their digests, the lowest first.
    pub digests: Vec<String>,
    /// Their directories, the top one first, as an overlay wants them.
    pub directories: Vec<PathBuf>,
    /// Keeps them until the sandbox's manifest says that it stands on them.
    pub held: Option<Box<dyn Send + Sync>>,
}

/// Knows the layers of images.
pub trait LayerSource: Send + Sync {
    /// The layers of `image`; none when it is not here.
    fn layers(&self, image: &ImageName) -> Option<LayerStack>;

    /// The layers with these digests, the lowest first; none when one is not here.
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

/// The sandboxes and snapshots that stand on layers, as their manifests say.
#[derive(Debug, Clone)]
pub struct SandboxLayers {
    sandboxes: PathBuf,
    snapshots: PathBuf,
}

impl SandboxLayers {
    /// Those of the installation in `data`.
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
        // A layer that may be in use is: a server without descriptors sees no sandbox.
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
            match saved::Manifest::read(&directory) {
                Ok(manifest) if uses(&manifest.layers) => {
                    let source = &manifest.source;
                    return Ok(Some(format!("a snapshot of sandbox {source}")));
                }
                Err(saved::Unreadable::Disk(error)) if is_exhausted(&error) => return Err(error),
                // What cannot be read starts nothing.
                Ok(_) | Err(_) => {}
            }
        }
        Ok(None)
    }
}

/// What is in a directory; where there is none yet, nothing stands on anything.
fn entries(directory: &Path) -> io::Result<Vec<PathBuf>> {
    match fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        entries => entries?.map(|entry| Ok(entry?.path())).collect(),
    }
}

/// Where the layers with daemons are.
pub(crate) fn envd_layers(data: &Path) -> PathBuf {
    data.join("envd")
}

/// Lays the daemon `program` down as a layer of its own, named by its content: a sandbox keeps the
/// one that it started with, whatever is installed later. Returns the layer's name.
///
/// # Errors
/// When the program cannot be read or the layer not be written.
pub(crate) fn envd_layer(data: &Path, program: &Path) -> io::Result<FileName> {
    let text = |e: io::Error| {
        io::Error::new(
            e.kind(),
            format!("cannot read the daemon {}: {e}", program.display()),
        )
    };
    let bytes = fs::read(program).map_err(text)?;
    let digest: FileName = hex::encode(&Sha256::digest(&bytes)[..8])
        .parse()
        .map_err(io::Error::other)?;
    let layer = envd_layers(data).join(&digest);
    if layer.exists() {
        return Ok(digest);
    }
    let beside = envd_layers(data).join(format!("{digest}.new"));
    let file = beside.join(ENVD_PATH.trim_start_matches('/'));
    let directory = file.parent().unwrap_or(&beside);
    let written = fs::create_dir_all(directory).and_then(|()| fs::write(&file, bytes));
    written.map_err(|e| {
        let text = format!("cannot write {}: {e}", file.display());
        io::Error::new(e.kind(), text)
    })?;
    for path in [file.as_path(), directory, &beside] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o755))?;
    }
    // What is saved of a sandbox outlives the machine, and so must the daemon that runs in it.
    for path in [file.as_path(), directory, &beside] {
        fs::File::open(path)?.sync_all()?;
    }
    fs::rename(&beside, &layer)?;
    fs::File::open(envd_layers(data))?.sync_all()?;
    Ok(digest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_daemon_is_laid_down_once_for_each_content() {
        let data = tempfile::tempdir().unwrap();
        let program = data.path().join("program");
        fs::write(&program, b"one").unwrap();
        let one = envd_layer(data.path(), &program).unwrap();
        assert_eq!(envd_layer(data.path(), &program).unwrap(), one);
        let one_at = envd_layers(data.path()).join(&one);
        assert_eq!(fs::read(one_at.join(".shoal/envd")).unwrap(), b"one");
        fs::write(&program, b"two").unwrap();
        assert_ne!(envd_layer(data.path(), &program).unwrap(), one);
        assert!(one_at.exists());
    }
}
