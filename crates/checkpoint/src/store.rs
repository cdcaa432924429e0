//! The directory of a node's checkpoints.
//!
//! ```text
//! <store>/<namespace>/<key>/manifest.json    what the other files are, with their digests
//! <store>/<namespace>/<key>/…                the memory and the files of the pod
//! <store>/.new/<key>/                        a checkpoint that is being written
//! <store>/.old/<key>/                        one that is being deleted
//! ```
//!
//! A checkpoint gets its name when all of it is on disk, so no part of one is ever visible. Only root may look into the
//! store, and symbolic links in it are not followed.

use std::fs::{self, DirBuilder, File, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, RenameFlags, ResolveFlags, openat2, renameat_with};

use crate::digest::Digested;
use crate::id::{CheckpointId, Key};
use crate::manifest::{Manifest, Refusal, SavedFile};

const MANIFEST: &str = "manifest.json";
const NEW: &str = ".new";
const OLD: &str = ".old";
/// The largest manifest that is read.
const LARGEST_MANIFEST: u64 = 1 << 20;

/// Why a checkpoint cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// There is none of that id, for this namespace.
    #[error("there is no such checkpoint in this namespace on this node")]
    Missing,
    /// It is not what its id was made of.
    #[error("it was changed after it was saved ({0}): delete it, and save the pod again")]
    Changed(String),
    /// It does not fit.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The name of a namespace has the form of no such name.
    #[error("{0:?} is not the name of a namespace")]
    Namespace(String),
    /// The disk is full, or fails.
    #[error("{what}: {error}")]
    Disk {
        /// What failed.
        what: String,
        /// How.
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

/// A checkpoint that is being written.
#[derive(Debug)]
pub struct Staged<'a> {
    store: &'a Store,
    key: Key,
    path: PathBuf,
}

impl Store {
    /// The store in a directory, which need not exist to be read from.
    #[must_use]
    pub fn at(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// Makes the directories, closes them to other users, and deletes what a former process left in transit.
    ///
    /// # Errors
    /// When the disk fails.
    pub fn prepare(&self) -> Result<(), StoreError> {
        for directory in [self.root.clone(), self.root.join(NEW), self.root.join(OLD)] {
            make_directory(&directory)
                .and_then(|()| fs::set_permissions(&directory, Permissions::from_mode(0o700)))
                .map_err(|error| StoreError::disk(directory.display(), error))?;
        }
        for transit in [NEW, OLD] {
            self.empty(transit)?;
        }
        Ok(())
    }

    fn empty(&self, transit: &str) -> Result<(), StoreError> {
        let directory = self.root.join(transit);
        let failed = |error| StoreError::disk(directory.display(), error);
        for entry in fs::read_dir(&directory).map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            // It does not follow links.
            fs::remove_dir_all(&path).map_err(|error| StoreError::disk(path.display(), error))?;
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

    /// Begins to write a checkpoint. What was written of it before is gone.
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

    /// Takes over what [`Staged::keep`] left.
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

    fn read_manifest(&self, namespace: &str, key: &Key) -> Result<Vec<u8>, StoreError> {
        let file = self.open(namespace, key, MANIFEST)?;
        let mut bytes = Vec::new();
        file.take(LARGEST_MANIFEST)
            .read_to_end(&mut bytes)
            .map_err(|error| StoreError::disk(MANIFEST, error))?;
        Ok(bytes)
    }

    /// Opens a file of a checkpoint, without following a link.
    fn open(&self, namespace: &str, key: &Key, name: &str) -> Result<File, StoreError> {
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
    /// When there is no such checkpoint, or its manifest is not the one that the id was made of.
    pub fn manifest(&self, namespace: &str, id: &CheckpointId) -> Result<Manifest, StoreError> {
        let bytes = self.read_manifest(namespace, id.key())?;
        if !id.is_of(&bytes) {
            return Err(StoreError::Changed(MANIFEST.to_owned()));
        }
        Ok(Manifest::parse(&bytes)?)
    }

    /// Checks that the files of a checkpoint are those of its manifest. Files that are `known` and have not changed
    /// since are not read again. Returns what is known now.
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
    /// When a file stays.
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

    /// The bytes that what is staged takes on disk.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn size(&self, staged: &Staged<'_>) -> Result<u64, StoreError> {
        let path = staged.path();
        size_of(path).map_err(|error| StoreError::disk(path.display(), error))
    }

    /// The bytes that the file system has left.
    ///
    /// # Errors
    /// When it does not tell.
    pub fn free(&self) -> Result<u64, StoreError> {
        let told = rustix::fs::statvfs(&self.root);
        let told = told.map_err(|error| StoreError::disk(self.root.display(), error.into()))?;
        Ok(told.f_bavail.saturating_mul(told.f_frsize))
    }
}

impl Staged<'_> {
    /// The directory to write into.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Leaves what was written where it is, for [`Store::staged`].
    #[must_use]
    pub fn keep(mut self) -> PathBuf {
        std::mem::take(&mut self.path)
    }

    /// Reads the files, writes the manifest, and gives the checkpoint its name when all is on disk.
    ///
    /// # Errors
    /// When the disk is full or fails: nothing is visible then, and what was written is deleted.
    pub fn publish(self, mut manifest: Manifest) -> Result<CheckpointId, StoreError> {
        let place = self.store.place(&manifest.namespace, &self.key)?;
        let failed = |error| StoreError::disk(self.path.display(), error);
        manifest.files = read_files(&self.path, "").map_err(failed)?;
        manifest.files.sort_by(|a, b| a.name.cmp(&b.name));
        let bytes = manifest
            .to_bytes()
            .map_err(|error| failed(io::Error::other(error)))?;
        write_closed(&self.path.join(MANIFEST), &bytes).map_err(failed)?;
        sync(&self.path).map_err(failed)?;
        let parent = place.parent().unwrap_or(&self.store.root);
        make_directory(parent)
            .and_then(|()| sync(&self.store.root))
            .and_then(|()| {
                // One that is there is not replaced: it may be in use.
                renameat_with(CWD, &self.path, CWD, &place, RenameFlags::NOREPLACE)
                    .map_err(io::Error::from)
            })
            .and_then(|()| sync(parent))
            .map_err(failed)?;
        Ok(CheckpointId::new(self.key.clone(), &bytes))
    }
}

impl Drop for Staged<'_> {
    fn drop(&mut self) {
        // It was published or handed on, or it is of no use to anybody. The next start deletes what stays.
        if !self.path.as_os_str().is_empty() {
            let _ = fs::remove_dir_all(&self.path);
        }
    }
}

/// The name of a namespace, which leads nowhere else.
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

fn write_closed(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = File::options().write(true).create_new(true).open(path)?;
    file.set_permissions(Permissions::from_mode(0o600))?;
    file.write_all(bytes)?;
    file.sync_all()
}

/// The files of a directory, and of the directories in it, which are on disk then and closed to other users.
fn read_files(directory: &Path, prefix: &str) -> io::Result<Vec<SavedFile>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let name = format!("{prefix}{}", entry.file_name().to_string_lossy());
        let kind = entry.file_type()?;
        if kind.is_dir() && prefix.is_empty() {
            files.extend(read_files(&entry.path(), &format!("{name}/"))?);
            sync(&entry.path())?;
        } else if kind.is_file() {
            let file = File::open(entry.path())?;
            file.set_permissions(Permissions::from_mode(0o600))?;
            file.sync_all()?;
            let read = Digested::read(&file)?;
            files.push(SavedFile {
                name,
                size: read.size,
                digest: read.digest,
            });
        } else {
            return Err(io::Error::other(format!(
                "{name} is neither file nor directory"
            )));
        }
    }
    Ok(files)
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

/// The bytes that a directory takes on disk.
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
