//! The image store on disk.
//!
//! ```text
//! layers/<digest>/fs          a layer, unpacked
//! layers/<digest>/layer.json  its record
//! images/<hash of name>.json  an image
//! tmp/                        incomplete and deleted files
//! lock                        held by the process that owns the store
//! ```
//!
//! Named entries are complete: they are built in `tmp/`, synced to disk, and then renamed. Entries
//! to be deleted are first renamed into `tmp/` and removed there. A crash therefore leaves partial
//! files only in `tmp/`, which is cleared when the store is opened.

use std::fs::{self, DirBuilder, File, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::syncfs;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use shoal_core::image::{Image, ImageName};
use shoal_node::lock;

use super::beneath;
use super::digest::Digest;
use super::fault::Fault;

/// Distinguishes our files from others.
const MAGIC: &str = "shoal-image";

/// The format's version. A store of a later version is not opened: its unreadable records would
/// look damaged and be deleted.
const VERSION: u32 = 1;

/// The longest record: an image's environment is the only part of unbounded length.
const RECORD_MAX: u64 = 16 << 20;

/// The mode of the store's directories. Layers contain setuid programs, which users of this machine
/// must not be able to run.
const PRIVATE: u32 = 0o700;

/// A record file: its header and its contents.
#[derive(Serialize, Deserialize)]
struct Sealed<T> {
    magic: String,
    version: u32,
    content: T,
}

/// The header, which is the same in every version.
#[derive(Deserialize)]
struct Seal {
    magic: String,
    version: u32,
}

/// The record of a layer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LayerRecord {
    /// The digest of the blob, which may be compressed.
    pub(crate) digest: Digest,
    /// The digest of its uncompressed archive, which is its name here.
    pub(crate) diff_id: Digest,
    /// Bytes of its files.
    pub(crate) size: u64,
    /// The number of its members.
    pub(crate) entries: u64,
}

/// The directories of a store.
#[derive(Debug)]
pub(crate) struct Home {
    root: PathBuf,
    next: AtomicU64,
    /// Held while the store is open.
    _lock: File,
}

impl Home {
    /// Opens the store at `root` and removes leftovers of a crash. Only one process may open it:
    /// another would take files being built for leftovers.
    pub(crate) fn open(root: &Path) -> Result<Self, Fault> {
        let made = |path: &Path| {
            DirBuilder::new()
                .recursive(true)
                .mode(PRIVATE)
                .create(path)
                .map_err(|e| Fault::io("make", path, e))
        };
        made(root)?;
        let lock = lock::take(root).map_err(|e| Fault::io("lock", root, e))?;
        let home = Self {
            root: root.to_owned(),
            next: AtomicU64::new(0),
            _lock: lock,
        };
        let tmp = home.tmp();
        beneath::remove_tree(&tmp).map_err(|e| Fault::io("clear", &tmp, e))?;
        for path in [home.layers(), home.images(), tmp] {
            made(&path)?;
        }
        Ok(home)
    }

    /// A new, empty directory for incomplete files.
    pub(crate) fn stage(&self) -> Result<Stage, Fault> {
        let path = self.spare();
        DirBuilder::new()
            .mode(PRIVATE)
            .create(&path)
            .map_err(|e| Fault::io("make", &path, e))?;
        Ok(Stage { path })
    }

    /// The directory of a layer for overlayfs.
    pub(crate) fn layer_root(&self, layer: &Digest) -> PathBuf {
        self.layer(layer).join("fs")
    }

    /// All layers. Directories without a valid record, or with one that does not match their name,
    /// are set aside and removed.
    pub(crate) fn read_layers(&self) -> Result<Vec<LayerRecord>, Fault> {
        let mut layers = Vec::new();
        for path in list(&self.layers())? {
            let named = name_of(&path).and_then(Digest::from_hex);
            let record = read::<LayerRecord>(&path.join("layer.json"))?;
            match (named, record) {
                (Some(name), Some(record)) if name == record.diff_id => layers.push(record),
                _ => {
                    tracing::warn!(path = %path.display(), "set aside: not a layer of this store");
                    drop(self.set_aside(&path)?);
                }
            }
        }
        Ok(layers)
    }

    /// Renames the layer in `stage` to its final name, after syncing its files to disk.
    pub(crate) fn keep_layer(&self, stage: Stage, record: &LayerRecord) -> Result<(), Fault> {
        stage.write("layer.json", record)?;
        let to = self.layer(&record.diff_id);
        stage.sync()?;
        // A directory that the inventory does not know remains from a failed removal.
        if to.exists() {
            drop(self.set_aside(&to)?);
        }
        fs::rename(&stage.path, &to).map_err(|e| Fault::io("name", &to, e))?;
        sync_directory(&self.layers())
    }

    /// Renames a layer out of the way; dropping the result removes it.
    pub(crate) fn drop_layer(&self, layer: &Digest) -> Result<Stage, Fault> {
        self.set_aside(&self.layer(layer))
    }

    /// All images; unreadable records are skipped.
    pub(crate) fn read_images(&self) -> Result<Vec<Image>, Fault> {
        let mut images = Vec::new();
        for path in list(&self.images())? {
            match read::<Image>(&path)? {
                Some(image) if self.image(&image.name) == path => images.push(image),
                _ => {
                    tracing::warn!(path = %path.display(), "set aside: not an image of this store");
                    drop(self.set_aside(&path)?);
                }
            }
        }
        Ok(images)
    }

    /// Writes an image's record, replacing an earlier one.
    pub(crate) fn keep_image(&self, image: &Image) -> Result<(), Fault> {
        let stage = self.stage()?;
        let from = stage.write("image.json", image)?;
        let to = self.image(&image.name);
        fs::rename(&from, &to).map_err(|e| Fault::io("name", &to, e))?;
        sync_directory(&self.images())
    }

    /// Removes an image's record. Idempotent.
    pub(crate) fn drop_image(&self, name: &ImageName) -> Result<(), Fault> {
        let path = self.image(name);
        match fs::remove_file(&path) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(Fault::io("remove", &path, e)),
            _ => sync_directory(&self.images()),
        }
    }

    fn layers(&self) -> PathBuf {
        self.root.join("layers")
    }

    fn images(&self) -> PathBuf {
        self.root.join("images")
    }

    fn tmp(&self) -> PathBuf {
        self.root.join("tmp")
    }

    fn layer(&self, layer: &Digest) -> PathBuf {
        self.layers().join(layer.hex())
    }

    fn image(&self, name: &ImageName) -> PathBuf {
        let hash = Digest::of(name.as_str().as_bytes()).hex();
        self.images().join(hash).with_extension("json")
    }

    /// An unused path in `tmp/`.
    fn spare(&self) -> PathBuf {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        self.tmp().join(number.to_string())
    }

    fn set_aside(&self, path: &Path) -> Result<Stage, Fault> {
        let to = self.spare();
        fs::rename(path, &to).map_err(|e| Fault::io("set aside", path, e))?;
        Ok(Stage { path: to })
    }
}

/// A path in `tmp/`, removed when dropped.
#[derive(Debug)]
pub(crate) struct Stage {
    path: PathBuf,
}

impl Stage {
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Creates an empty directory in it, with the mode of a root directory.
    pub(crate) fn directory(&self, name: &str) -> Result<PathBuf, Fault> {
        let path = self.path.join(name);
        // Set the mode separately, so that the umask has no effect.
        DirBuilder::new()
            .mode(PRIVATE)
            .create(&path)
            .and_then(|()| fs::set_permissions(&path, Permissions::from_mode(0o755)))
            .map_err(|e| Fault::io("make", &path, e))?;
        Ok(path)
    }

    fn write<T: Serialize>(&self, name: &str, content: &T) -> Result<PathBuf, Fault> {
        let path = self.path.join(name);
        let sealed = Sealed {
            magic: MAGIC.to_owned(),
            version: VERSION,
            content,
        };
        let written = || -> io::Result<()> {
            let bytes = serde_json::to_vec_pretty(&sealed)?;
            let mut file = File::create_new(&path)?;
            file.write_all(&bytes)?;
            file.sync_all()
        };
        written().map_err(|e| Fault::io("write", &path, e))?;
        Ok(path)
    }

    /// Syncs everything to disk. One `syncfs` is faster than one `fsync` for each of thirty
    /// thousand files.
    fn sync(&self) -> Result<(), Fault> {
        let failed = |e| Fault::io("write out", &self.path, e);
        let directory = File::open(&self.path).map_err(failed)?;
        syncfs(&directory).map_err(|e| failed(e.into()))
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        if let Err(error) = beneath::remove_tree(&self.path) {
            tracing::warn!(path = %self.path.display(), %error, "left behind, until the next start");
        }
    }
}

/// Reads a record file; `None` if it is not one.
fn read<T: DeserializeOwned>(path: &Path) -> Result<Option<T>, Fault> {
    let mut bytes = Vec::new();
    let whole = File::open(path).and_then(|file| file.take(RECORD_MAX).read_to_end(&mut bytes));
    match whole {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(Fault::io("read", path, e)),
        Ok(_) => (),
    }
    match serde_json::from_slice::<Seal>(&bytes) {
        Ok(seal) if seal.magic == MAGIC && seal.version > VERSION => {
            let detail = format!("written by a later version ({})", seal.version);
            let error = io::Error::new(io::ErrorKind::Unsupported, detail);
            Err(Fault::io("read", path, error))
        }
        Ok(seal) if seal.magic == MAGIC => {
            let sealed = serde_json::from_slice::<Sealed<T>>(&bytes);
            Ok(sealed.ok().map(|sealed| sealed.content))
        }
        _ => Ok(None),
    }
}

fn list(directory: &Path) -> Result<Vec<PathBuf>, Fault> {
    let failed = |e| Fault::io("list", directory, e);
    let mut paths = fs::read_dir(directory)
        .map_err(failed)?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<io::Result<Vec<_>>>()
        .map_err(failed)?;
    paths.sort();
    Ok(paths)
}

fn name_of(path: &Path) -> Option<&str> {
    path.file_name()?.to_str()
}

fn sync_directory(path: &Path) -> Result<(), Fault> {
    File::open(path)
        .and_then(|directory| directory.sync_all())
        .map_err(|e| Fault::io("write out", path, e))
}

#[cfg(test)]
mod tests;
