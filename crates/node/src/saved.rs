//! A saved sandbox on disk: a directory with a manifest.
//!
//! ```text
//! <saved>/manifest.json          contents, requirements, and the digests of the memory
//! <saved>/memory/                the runtime's checkpoint, if memory was saved
//! <saved>/files                  the sandbox's writable layer; a paused sandbox keeps its own
//! ```
//!
//! It is written next to its final path and renamed once all of it is on disk, so a partial one is
//! never visible. Directories that end in `.new` or `.old` are in transit. Recovery after a crash
//! deletes them, except a complete pause: that one is renamed to its final path.
//!
//! The digests of a pause are computed later: reading the memory back takes as long as writing it. Until then the
//! manifest has the inodes of the files.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use shoal_core::driver::Owner;
use shoal_core::id::SandboxId;

mod digests;
mod early;
mod file_name;
mod manifest;
mod memory_file;

pub use self::file_name::{FileName, InvalidFileName};
pub use self::manifest::{Parts, SavedManifest, Stamp, Unreadable};
pub use self::memory_file::{MemoryFile, Proof, open_named, open_plain};
use crate::disk::Disk;
use crate::exhausted::is_exhausted;

/// File name of the manifest.
const FILE: &str = "manifest.json";
/// Directory of the runtime's checkpoint.
const MEMORY: &str = "memory";
/// Directory of the sandbox's writable layer.
const FILES: &str = "files";
/// Marker file: a run has started from this directory.
const BEGUN: &str = "begun";

/// When the digests of a save are computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Digests {
    /// Before it is published.
    Now,
    /// By [`SavedDirectory::add_digests`]. Until then the manifest has the inodes of the memory files.
    Later,
}

/// The directory of a saved sandbox, whether or not it exists yet.
#[derive(Debug, Clone)]
pub struct SavedDirectory(PathBuf);

impl SavedDirectory {
    /// The directory of a paused sandbox.
    pub fn of_paused(disk: &Disk, id: &SandboxId) -> Self {
        Self(disk.paused().join(id.as_str()))
    }

    /// The directory of a snapshot.
    pub fn of_snapshot(disk: &Disk, id: shoal_core::id::SnapshotId) -> Self {
        Self(disk.snapshots().join(id.to_string()))
    }

    /// The path of the directory.
    pub fn directory(&self) -> &Path {
        &self.0
    }

    /// The path of the runtime's checkpoint.
    pub fn memory(&self) -> PathBuf {
        self.0.join(MEMORY)
    }

    /// The path of the writable layer.
    pub fn files(&self) -> PathBuf {
        self.0.join(FILES)
    }

    /// Whether a run may have changed its files since [`SavedDirectory::files`] was saved.
    pub fn is_begun(&self) -> bool {
        self.0.join(BEGUN).exists()
    }

    /// Records that a run starts to change these files, or that they are as saved again.
    ///
    /// # Errors
    /// When the marker cannot be written or removed.
    pub fn mark_begun(&self, begun: bool) -> io::Result<()> {
        let mark = self.0.join(BEGUN);
        if begun {
            return fs::write(mark, b"");
        }
        match fs::remove_file(mark) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Creates the directory next to the final path in which a save is prepared.
    ///
    /// # Errors
    /// When the disk is full.
    pub fn prepare(&self, disk: &Disk) -> io::Result<Self> {
        self.prepare_for(disk, None)
    }

    /// Like [`SavedDirectory::prepare`]; the contents count against the quota of `owner`.
    ///
    /// # Errors
    /// When the disk is full.
    pub fn prepare_for(&self, disk: &Disk, owner: Option<Owner>) -> io::Result<Self> {
        let beside = Self(with_suffix(&self.0, "new"));
        beside.remove(disk)?;
        disk.make_place(&beside.0, owner)?;
        Ok(beside)
    }

    /// Syncs everything to disk, writes the manifest, and renames the directory to `place`. The new
    /// name survives a power failure only after [`SavedDirectory::keep_name`].
    ///
    /// # Errors
    /// When the disk is full or fails; `place` does not exist then.
    pub fn publish(
        &self,
        parts: Parts,
        disk: &Disk,
        place: &Self,
        digests: Digests,
    ) -> io::Result<SavedManifest> {
        early::start_writeback(&self.memory());
        let memory = match digests {
            Digests::Now => self.memory_files(&parts, MemoryFile::with_digest)?,
            Digests::Later => self.memory_files(&parts, MemoryFile::with_inode)?,
        };
        let manifest = SavedManifest::new(parts, memory);
        disk.sync()?;
        // Last: a manifest that is found after a power failure shows that the rest is on disk, too.
        self.write_synced(FILE, &manifest)?;
        File::open(&self.0)?.sync_all()?;
        fs::rename(&self.0, &place.0)?;
        Ok(manifest)
    }

    /// Writes the manifest into this directory.
    ///
    /// # Errors
    /// When the disk is full or fails.
    pub fn write(&self, manifest: &SavedManifest) -> io::Result<()> {
        fs::write(self.0.join(FILE), serde_json::to_vec_pretty(manifest)?)
    }

    fn memory_files(
        &self,
        parts: &Parts,
        describe: impl Fn(&Path, FileName) -> io::Result<MemoryFile>,
    ) -> io::Result<Vec<MemoryFile>> {
        let mut memory = Vec::new();
        if parts.saved.contents.has_memory() {
            for entry in fs::read_dir(self.memory())? {
                let name = entry?.file_name().to_string_lossy().into_owned();
                let name = name.parse().map_err(io::Error::other)?;
                memory.push(describe(&self.memory(), name)?);
            }
        }
        memory.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(memory)
    }

    /// Renames this directory, already synced to disk, to `place`.
    ///
    /// # Errors
    /// When the disk fails; `place` does not exist then.
    pub fn show(&self, place: &Self) -> io::Result<()> {
        fs::rename(&self.0, &place.0)?;
        place.keep_name()
    }

    /// Syncs the directory's name to disk.
    ///
    /// # Errors
    /// When the disk fails.
    pub fn keep_name(&self) -> io::Result<()> {
        match self.0.parent() {
            Some(parent) => File::open(parent)?.sync_all(),
            None => Ok(()),
        }
    }

    /// Deletes the directory: hides it immediately, then frees its bytes. Idempotent.
    ///
    /// # Errors
    /// When a file remains.
    pub fn remove(&self, disk: &Disk) -> io::Result<()> {
        let old = with_suffix(&self.0, "old");
        for path in [&with_suffix(&self.0, "new"), &old] {
            empty(path, disk)?;
        }
        self.hide()?;
        empty(&old, disk)
    }

    /// Renames the directory out of sight. Idempotent.
    ///
    /// # Errors
    /// When the rename fails.
    pub fn hide(&self) -> io::Result<()> {
        match fs::rename(&self.0, with_suffix(&self.0, "old")) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            hidden => hidden,
        }
    }
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".");
    name.push(suffix);
    path.with_file_name(name)
}

fn empty(directory: &Path, disk: &Disk) -> io::Result<()> {
    let files = directory.join(FILES);
    if files.exists() {
        disk.past_quota(directory, || disk.remove_at(&files))?;
    }
    disk.remove_at(directory)
}

/// Deletes the unfinished saves of a killed server from the directory `all`.
///
/// # Errors
/// When a file remains.
pub fn clear_transient(all: &Path, disk: &Disk) -> io::Result<()> {
    for entry in fs::read_dir(all)? {
        let path = entry?.path();
        let suffix = path.extension().and_then(|suffix| suffix.to_str());
        if matches!(suffix, Some("new" | "old")) {
            empty(&path, disk)?;
        }
    }
    Ok(())
}

/// Completes the saves in `all` that lacked only their rename when the server or the machine
/// stopped. The rename is the last step, and its sync to disk is not awaited.
///
/// # Errors
/// When the disk fails.
pub fn show_whole(all: &Path, disk: &Disk) -> io::Result<()> {
    for entry in fs::read_dir(all)? {
        let path = entry?.path();
        if path.extension().is_none_or(|suffix| suffix != "new") {
            continue;
        }
        let whole = match SavedManifest::read(&path).and_then(|manifest| manifest.verify(&path)) {
            Ok(()) => true,
            // An I/O error that may pass does not mean that the save is damaged.
            Err(Unreadable::Disk(error)) if is_exhausted(&error) => return Err(error),
            Err(_) => false,
        };
        let place = path.with_extension("");
        if whole && !place.exists() {
            disk.sync()?;
            SavedDirectory(path).show(&SavedDirectory(place))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
