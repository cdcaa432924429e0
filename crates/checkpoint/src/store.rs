//! The directory of a node's checkpoints.
//!
//! ```text
//! <store>/<namespace>/<key>/manifest.json    the other files, with their digests
//! <store>/<namespace>/<key>/…                the memory and the files of the pod
//! <store>/<namespace>/<key>/.copy            only if it was fetched from elsewhere
//! <store>/.new/<key>/                        a checkpoint while it is written
//! <store>/.old/<key>/                        a checkpoint while it is deleted
//! <store>/.fetch/<key>                       how the fetch of a checkpoint from elsewhere is getting on
//! ```
//!
//! A checkpoint gets its name when all of its files are on disk, so readers never see an incomplete one. Only root may read
//! the store. Symbolic links in it are not followed.

mod fetch;
mod staged;

use std::fs::{self, DirBuilder, File, Permissions};
use std::io::{self, Read};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags, ResolveFlags, openat2};

use crate::digest::Digested;
use crate::id::{CheckpointId, Key};
use crate::manifest::{Manifest, Refusal};

pub use self::fetch::{Fetch, Fetching};
pub use self::staged::Staged;

/// The name of a manifest's file.
pub const MANIFEST: &str = "manifest.json";
/// An empty file beside the manifest of a checkpoint that was fetched: it may be deleted, and fetched again.
const COPY: &str = ".copy";
const NEW: &str = ".new";
const OLD: &str = ".old";
/// The largest manifest that is read, in bytes.
pub const LARGEST_MANIFEST: u64 = 1 << 20;

/// Why a checkpoint cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The namespace has no checkpoint with this id.
    #[error("there is no such checkpoint in this namespace on this node")]
    Missing,
    /// Its contents do not match its id.
    #[error("it was changed after it was saved ({0}): delete it, and save the pod again")]
    Changed(String),
    /// The pod or the node does not match the checkpoint.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// Not the name of a namespace.
    #[error("{0:?} is not the name of a namespace")]
    Namespace(String),
    /// The disk is full, or fails.
    #[error("{what}: {error}")]
    Disk {
        /// The file or directory.
        what: String,
        /// The error.
        error: io::Error,
    },
}

impl StoreError {
    fn disk(what: impl std::fmt::Display, error: io::Error) -> Self {
        Self::Disk {
            what: what.to_string(),
            error,
        }
    }
}

/// The checkpoints of a node.
#[derive(Clone, Debug)]
pub struct Store {
    root: PathBuf,
}

impl Store {
    /// The store in a directory, which need not exist to be read from.
    #[must_use]
    pub fn at(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// Creates the directories, closes them to other users, and deletes incomplete checkpoints of an earlier process.
    ///
    /// # Errors
    /// When the disk fails.
    pub fn prepare(&self) -> Result<(), StoreError> {
        let transits = [NEW, OLD, fetch::DIRECTORY].map(|transit| self.root.join(transit));
        for directory in [&self.root].into_iter().chain(&transits) {
            make_directory(directory)
                .and_then(|()| fs::set_permissions(directory, Permissions::from_mode(0o700)))
                .map_err(|error| StoreError::disk(directory.display(), error))?;
        }
        for transit in &transits {
            empty(transit)?;
        }
        Ok(())
    }

    /// The directory of a checkpoint.
    ///
    /// # Errors
    /// When the namespace has no name.
    pub fn place(&self, namespace: &str, key: &Key) -> Result<PathBuf, StoreError> {
        Ok(self.root.join(checked(namespace)?).join(key.as_str()))
    }

    /// Begins to write a checkpoint, and deletes an earlier attempt.
    ///
    /// # Errors
    /// When the disk fails.
    pub fn stage(&self, key: &Key) -> Result<Staged<'_>, StoreError> {
        let path = self.root.join(NEW).join(key.as_str());
        let made = match fs::remove_dir_all(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => DirBuilder::new().mode(0o700).create(&path),
        };
        made.map_err(|error| StoreError::disk(path.display(), error))?;
        Ok(Staged {
            store: self,
            key: key.clone(),
            path,
        })
    }

    /// Takes over the files that [`Staged::keep`] left.
    #[must_use]
    pub fn staged(&self, key: &Key, path: PathBuf) -> Staged<'_> {
        Staged {
            store: self,
            key: key.clone(),
            path,
        }
    }

    /// The id of a complete checkpoint, if there is one of this key.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn find(&self, namespace: &str, key: &Key) -> Result<Option<CheckpointId>, StoreError> {
        match self.read_manifest(namespace, key) {
            Ok(bytes) => Ok(Some(CheckpointId::new(key.clone(), &bytes))),
            Err(StoreError::Missing) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The bytes of a manifest.
    ///
    /// # Errors
    /// When there is no such checkpoint, or the disk fails.
    pub fn read_manifest(&self, namespace: &str, key: &Key) -> Result<Vec<u8>, StoreError> {
        let file = self.open(namespace, key, MANIFEST)?;
        let mut bytes = Vec::new();
        file.take(LARGEST_MANIFEST)
            .read_to_end(&mut bytes)
            .map_err(|error| StoreError::disk(MANIFEST, error))?;
        Ok(bytes)
    }

    /// Opens a file of a checkpoint, without following a link.
    ///
    /// # Errors
    /// When it is missing, or no file.
    pub fn open(&self, namespace: &str, key: &Key, name: &str) -> Result<File, StoreError> {
        let path = Path::new(checked(namespace)?).join(key.as_str()).join(name);
        let store = match File::open(&self.root) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(StoreError::Missing);
            }
            store => store.map_err(|error| StoreError::disk(self.root.display(), error))?,
        };
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        let file = match openat2(&store, &path, flags, Mode::empty(), resolve) {
            Ok(file) => File::from(file),
            Err(rustix::io::Errno::NOENT | rustix::io::Errno::NOTDIR) => {
                return Err(StoreError::Missing);
            }
            Err(rustix::io::Errno::LOOP | rustix::io::Errno::XDEV) => {
                return Err(StoreError::Changed(format!("{name} is a link")));
            }
            Err(error) => return Err(StoreError::disk(path.display(), error.into())),
        };
        let seen = file.metadata();
        let seen = seen.map_err(|error| StoreError::disk(path.display(), error))?;
        if seen.is_file() {
            Ok(file)
        } else {
            Err(StoreError::Changed(format!("{name} is no file")))
        }
    }

    /// The manifest of a checkpoint.
    ///
    /// # Errors
    /// When there is no such checkpoint, or its manifest does not match the id.
    pub fn manifest(&self, namespace: &str, id: &CheckpointId) -> Result<Manifest, StoreError> {
        let bytes = self.read_manifest(namespace, id.key())?;
        if !id.is_of(&bytes) {
            return Err(StoreError::Changed(MANIFEST.to_owned()));
        }
        Ok(Manifest::parse(&bytes)?)
    }

    /// Checks the files of a checkpoint against its manifest. A file that is `known` and has not changed since is not
    /// read again. Returns the digests of all files.
    ///
    /// # Errors
    /// When a file is missing or different, or cannot be read.
    pub fn verify(
        &self,
        manifest: &Manifest,
        key: &Key,
        known: &[Digested],
    ) -> Result<Vec<Digested>, StoreError> {
        let files = manifest.files.iter();
        files
            .map(|saved| {
                let changed = || StoreError::Changed(saved.name.clone());
                let file = match self.open(&manifest.namespace, key, &saved.name) {
                    Err(StoreError::Missing) => return Err(changed()),
                    file => file?,
                };
                let failed = |error| StoreError::disk(&saved.name, error);
                let known = known.iter().find(|known| known.digest == saved.digest);
                let read = match known {
                    Some(known) if known.is_unchanged(&file).map_err(failed)? => known.clone(),
                    _ => Digested::read(&file).map_err(failed)?,
                };
                if read.digest == saved.digest && read.size == saved.size {
                    Ok(read)
                } else {
                    Err(changed())
                }
            })
            .collect()
    }

    /// Deletes a checkpoint: hides it at once, then frees its bytes. One that is gone is no error.
    ///
    /// # Errors
    /// When a file cannot be deleted.
    pub fn remove(&self, namespace: &str, key: &Key) -> Result<(), StoreError> {
        let old = self.root.join(OLD).join(key.as_str());
        let failed = |error| StoreError::disk(old.display(), error);
        for path in [&old, &self.root.join(NEW).join(key.as_str())] {
            match fs::remove_dir_all(path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
                _ => {}
            }
        }
        match fs::rename(self.place(namespace, key)?, &old) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            hidden => hidden.map_err(failed)?,
        }
        fs::remove_dir_all(&old).map_err(failed)
    }

    /// The complete checkpoints: namespace, key, and bytes on disk.
    ///
    /// # Errors
    /// When a directory cannot be read.
    pub fn list(&self) -> Result<Vec<(String, Key, u64)>, StoreError> {
        let mut found = Vec::new();
        for (namespace, directory) in directories(&self.root)? {
            if checked(&namespace).is_err() {
                continue;
            }
            let within = match directories(&directory) {
                Err(StoreError::Disk { error, .. }) if error.kind() == io::ErrorKind::NotFound => {
                    continue;
                }
                within => within?,
            };
            for (name, directory) in within {
                let Ok(key) = name.parse() else { continue };
                match size_of(&directory) {
                    Ok(bytes) => found.push((namespace.clone(), key, bytes)),
                    // It is being deleted.
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                    Err(error) => return Err(StoreError::disk(directory.display(), error)),
                }
            }
        }
        Ok(found)
    }

    /// The checkpoint that was fetched first, of one namespace or of all: namespace and key.
    ///
    /// # Errors
    /// When a directory cannot be read.
    pub fn oldest_copy(&self, of: Option<&str>) -> Result<Option<(String, Key)>, StoreError> {
        let mut copies = Vec::new();
        let mut listed = self.list()?;
        listed.retain(|(namespace, ..)| of.is_none_or(|of| of == namespace));
        for (namespace, key, _) in listed {
            let mark = self.open(&namespace, &key, COPY);
            let mark = mark.ok().and_then(|mark| mark.metadata().ok());
            if let Some(mark) = mark {
                copies.push(((mark.mtime(), mark.mtime_nsec()), namespace, key));
            }
        }
        let oldest = copies.into_iter().min_by_key(|(since, ..)| *since);
        Ok(oldest.map(|(_, namespace, key)| (namespace, key)))
    }

    /// The size of a staged checkpoint on disk, in bytes.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn size(&self, staged: &Staged<'_>) -> Result<u64, StoreError> {
        let path = staged.path();
        size_of(path).map_err(|error| StoreError::disk(path.display(), error))
    }

    /// The free space of the file system, in bytes.
    ///
    /// # Errors
    /// When the file system does not answer.
    pub fn free(&self) -> Result<u64, StoreError> {
        let told = rustix::fs::statvfs(&self.root);
        let told = told.map_err(|error| StoreError::disk(self.root.display(), error.into()))?;
        Ok(told.f_bavail.saturating_mul(told.f_frsize))
    }
}

fn empty(directory: &Path) -> Result<(), StoreError> {
    let failed = |error| StoreError::disk(directory.display(), error);
    for entry in fs::read_dir(directory).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let path = entry.path();
        // Neither follows links.
        let removed = match entry.file_type().map_err(failed)?.is_dir() {
            true => fs::remove_dir_all(&path),
            false => fs::remove_file(&path),
        };
        removed.map_err(|error| StoreError::disk(path.display(), error))?;
    }
    Ok(())
}

/// Checks the name of a namespace, so that it is a single component of a path.
fn checked(namespace: &str) -> Result<&str, StoreError> {
    let plain = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-');
    if namespace.is_empty() || namespace.len() > 63 || !namespace.bytes().all(plain) {
        return Err(StoreError::Namespace(namespace.chars().take(80).collect()));
    }
    Ok(namespace)
}

fn make_directory(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

fn sync(directory: &Path) -> io::Result<()> {
    File::open(directory)?.sync_all()
}

fn directories(of: &Path) -> Result<Vec<(String, PathBuf)>, StoreError> {
    let failed = |error| StoreError::disk(of.display(), error);
    let mut found = Vec::new();
    for entry in fs::read_dir(of).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        if entry.file_type().map_err(failed)?.is_dir() {
            let name = entry.file_name().to_string_lossy().into_owned();
            found.push((name, entry.path()));
        }
    }
    Ok(found)
}

/// The size of a directory on disk, in bytes.
fn size_of(directory: &Path) -> io::Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let seen = entry.metadata()?;
        bytes += if seen.is_dir() {
            size_of(&entry.path())?
        } else {
            seen.blocks() * 512
        };
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests;
