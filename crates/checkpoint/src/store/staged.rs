//! Writing a checkpoint.

use std::fs::{self, File, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, RenameFlags, renameat_with};

use super::{COPY, MANIFEST, Store, StoreError, make_directory, sync};
use crate::digest::Digested;
use crate::id::{CheckpointId, Key};
use crate::manifest::{Manifest, Refusal, SavedFile};

/// A checkpoint while its files are written.
#[derive(Debug)]
pub struct Staged<'a> {
    pub(super) store: &'a Store,
    pub(super) key: Key,
    pub(super) path: PathBuf,
}

impl Staged<'_> {
    /// The directory to write into.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Leaves the files in place, for [`Store::staged`].
    #[must_use]
    pub fn keep(mut self) -> PathBuf {
        std::mem::take(&mut self.path)
    }

    /// Reads the files, writes the manifest, and gives the checkpoint its name when all files are on disk.
    ///
    /// # Errors
    /// When the disk is full or fails. The files are deleted then, and none of them was visible.
    pub fn publish(self, mut manifest: Manifest) -> Result<CheckpointId, StoreError> {
        manifest.files = self.read()?;
        let bytes = manifest
            .to_bytes()
            .map_err(|error| StoreError::disk(self.path.display(), io::Error::other(error)))?;
        self.name(&manifest.namespace, &bytes)
    }

    /// Compares files that came from elsewhere with the manifest of the id, and gives the checkpoint its name.
    ///
    /// # Errors
    /// When they are others, or the disk is full or fails. The files are deleted then, and none of them was visible.
    pub fn publish_copy(
        self,
        namespace: &str,
        id: &CheckpointId,
        bytes: &[u8],
    ) -> Result<(), StoreError> {
        if !id.is_of(bytes) || *id.key() != self.key {
            return Err(StoreError::Changed(MANIFEST.to_owned()));
        }
        let manifest = Manifest::parse(bytes)?;
        if manifest.namespace != namespace {
            return Err(Refusal::Namespace.into());
        }
        let mut saved = manifest.files;
        saved.sort_by(|a, b| a.name.cmp(&b.name));
        let files = self.read()?;
        if files != saved {
            let differs = saved.iter().find(|file| !files.contains(file));
            let name = differs.map_or("a file was added", |file| &file.name);
            return Err(StoreError::Changed(name.to_owned()));
        }
        write_closed(&self.path.join(COPY), b"")
            .map_err(|error| StoreError::disk(self.path.display(), error))?;
        self.name(namespace, bytes).map(drop)
    }

    /// The files, which are on disk then.
    fn read(&self) -> Result<Vec<SavedFile>, StoreError> {
        let files = read_files(&self.path, "");
        let mut files = files.map_err(|error| StoreError::disk(self.path.display(), error))?;
        files.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(files)
    }

    /// Writes the manifest, and gives the checkpoint its name.
    fn name(&self, namespace: &str, bytes: &[u8]) -> Result<CheckpointId, StoreError> {
        let place = self.store.place(namespace, &self.key)?;
        let failed = |error| StoreError::disk(self.path.display(), error);
        write_closed(&self.path.join(MANIFEST), bytes).map_err(failed)?;
        sync(&self.path).map_err(failed)?;
        let parent = place.parent().unwrap_or(&self.store.root);
        make_directory(parent)
            .and_then(|()| sync(&self.store.root))
            .and_then(|()| {
                // An existing checkpoint may be in use, so it is not replaced.
                renameat_with(CWD, &self.path, CWD, &place, RenameFlags::NOREPLACE)
                    .map_err(io::Error::from)
            })
            .and_then(|()| sync(parent))
            .map_err(failed)?;
        Ok(CheckpointId::new(self.key.clone(), bytes))
    }
}

impl Drop for Staged<'_> {
    fn drop(&mut self) {
        // `publish` renames the directory, and `keep` empties the path. The next start deletes a directory that stays.
        if !self.path.as_os_str().is_empty() {
            let _ = fs::remove_dir_all(&self.path);
        }
    }
}

fn write_closed(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = File::options().write(true).create_new(true).open(path)?;
    file.set_permissions(Permissions::from_mode(0o600))?;
    file.write_all(bytes)?;
    file.sync_all()
}

/// Reads a file while the disk writes it.
fn digest_and_sync(file: &File) -> io::Result<Digested> {
    std::thread::scope(|scope| {
        let synced = scope.spawn(|| file.sync_all());
        let read = Digested::read(file);
        let synced = synced.join();
        synced.map_err(|_| io::Error::other("the write to the disk panicked"))??;
        read
    })
}

/// Writes the files of a directory and its subdirectories to the disk, closes them to other users, and lists them.
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
            let read = digest_and_sync(&file)?;
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
