//! What is saved of a sandbox: a directory with a manifest.
//!
//! ```text
//! <saved>/manifest.json          what it is, what it needs, and the digests of the rest
//! <saved>/memory/                what the runtime wrote, if memory was kept
//! <saved>/files                  what the sandbox had written; a paused sandbox keeps its own
//! ```
//!
//! It is written beside its place and renamed when all of it is on the disk, so that half of it is
//! never met. A directory whose name ends in `.new` or `.old` is on its way in or out: whoever finds
//! one after a crash takes it away, but for a pause that is whole, which gets the name that it lacks.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use shoal_core::driver::Owner;
use shoal_core::id::{ExecutionId, SandboxId};
use shoal_core::image::ImageName;
use shoal_core::resources::Resources;
use shoal_core::snapshot::Saved;

mod early;
mod file_name;
mod memory_file;

pub use self::file_name::{FileName, InvalidFileName};
pub use self::memory_file::{MemoryFile, open_named, open_plain};
use crate::disk::Disk;
use crate::exhausted::is_exhausted;
use crate::machine::Machine;

/// The manifest's name in the directory.
const FILE: &str = "manifest.json";
/// The directory with what the runtime wrote.
const MEMORY: &str = "memory";
/// The directory with what the sandbox had written.
const FILES: &str = "files";
/// The file that is there when a run has begun from what is saved here.
const BEGUN: &str = "begun";
/// What the manifest begins with, so that another file is not taken for one.
const FORMAT: &str = "shoal-saved";
/// The version that is written.
const VERSION: u32 = 1;

/// What was saved, and what it needs to go on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    format: String,
    version: u32,
    /// The sandbox that it was taken of.
    pub source: SandboxId,
    /// The run that it was taken of.
    pub execution: ExecutionId,
    /// What was saved of it, as the engine records it.
    pub saved: Saved,
    /// The build of the runtime that wrote the memory: another may not read it.
    pub runtime_build: String,
    /// The machine that it was taken on.
    pub machine: Machine,
    /// The image that the sandbox was created from.
    pub image: ImageName,
    /// The digests of the layers that it stands on.
    pub layers: Vec<String>,
    /// The layer with the daemon that runs in it.
    pub envd: FileName,
    /// The limits that it ran with.
    pub resources: Resources,
    /// What is in the directory of the memory.
    pub memory: Vec<MemoryFile>,
}

/// See [`Manifest::stamp`].
pub type Stamp = [u8; 32];

/// What a new manifest is made of.
pub struct Parts {
    /// The sandbox that it is taken of.
    pub source: SandboxId,
    /// The run that it is taken of.
    pub execution: ExecutionId,
    /// What was saved of it, as the engine records it.
    pub saved: Saved,
    /// The build of the runtime that wrote the memory.
    pub runtime_build: String,
    /// The image that the sandbox was created from.
    pub image: ImageName,
    /// The digests of the layers that the sandbox stands on.
    pub layers: Vec<String>,
    /// The layer with the daemon that runs in it.
    pub envd: FileName,
    /// The limits that it ran with.
    pub resources: Resources,
}

/// Why what is there cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum Unreadable {
    /// There is nothing.
    #[error("there is no manifest")]
    Missing,
    /// It is no manifest, or of a later version.
    #[error("its manifest cannot be read: {0}")]
    Manifest(String),
    /// A file has another length or content than it was saved with.
    #[error("{0} is damaged: {1}")]
    Damaged(String, &'static str),
    /// The disk failed.
    #[error("it cannot be read: {0}")]
    Disk(#[from] io::Error),
}

impl Manifest {
    /// Reads the manifest in `directory`.
    ///
    /// # Errors
    /// When there is none, or none that this program knows.
    pub fn read(directory: &Path) -> Result<Self, Unreadable> {
        let text = match fs::read(directory.join(FILE)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(Unreadable::Missing);
            }
            text => text?,
        };
        Self::parse(&text)
    }

    /// Reads the text of a manifest.
    ///
    /// # Errors
    /// When it is none that this program knows.
    pub fn parse(text: &[u8]) -> Result<Self, Unreadable> {
        let manifest: Self =
            serde_json::from_slice(text).map_err(|e| Unreadable::Manifest(e.to_string()))?;
        if manifest.format != FORMAT {
            return Err(Unreadable::Manifest("it is something else".to_owned()));
        }
        if manifest.version > VERSION {
            return Err(Unreadable::Manifest(format!(
                "it is of version {} and this program knows up to {VERSION}",
                manifest.version
            )));
        }
        Ok(manifest)
    }

    /// Whether all of the memory is there, in its lengths; [`Manifest::verify`] looks at every
    /// byte.
    ///
    /// # Errors
    /// Names the file that is not as it was saved.
    pub fn check_lengths(&self, directory: &Path) -> Result<(), Unreadable> {
        for file in &self.memory {
            let path = directory.join(MEMORY).join(&file.name);
            let name = || file.name.to_string();
            match fs::symlink_metadata(path) {
                Ok(found) if found.is_file() && found.len() == file.bytes => {}
                Ok(_) => return Err(Unreadable::Damaged(name(), "its length")),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    return Err(Unreadable::Damaged(name(), "it is not there"));
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// What tells this memory from one that was written since; none when it cannot be looked at.
    pub fn stamp(&self, directory: &Path) -> Option<Stamp> {
        use std::os::unix::fs::MetadataExt;

        let mut stamp = blake3::Hasher::new();
        for file in &self.memory {
            let metadata = fs::symlink_metadata(directory.join(MEMORY).join(&file.name)).ok()?;
            let (seconds, nanos) = (metadata.ctime(), metadata.ctime_nsec());
            for number in [metadata.ino(), metadata.len()] {
                stamp.update(&number.to_le_bytes());
            }
            for number in [seconds, nanos] {
                stamp.update(&number.to_le_bytes());
            }
            stamp.update(file.digest.as_bytes());
        }
        Some(*stamp.finalize().as_bytes())
    }

    /// Compares every byte of the memory with its digest.
    ///
    /// # Errors
    /// Names the file that is not as it was saved.
    pub fn verify(&self, directory: &Path) -> Result<(), Unreadable> {
        self.check_lengths(directory)?;
        for file in &self.memory {
            let found = MemoryFile::of(&directory.join(MEMORY), file.name.clone())?;
            if found != *file {
                return Err(Unreadable::Damaged(file.name.to_string(), "its content"));
            }
        }
        Ok(())
    }
}

/// A place where something is, or will be, saved.
#[derive(Debug, Clone)]
pub struct Place(PathBuf);

impl Place {
    /// The place of a paused sandbox.
    pub fn of_paused(disk: &Disk, id: &SandboxId) -> Self {
        Self(disk.paused().join(id.as_str()))
    }

    /// The place of a snapshot.
    pub fn of_snapshot(disk: &Disk, id: shoal_core::id::SnapshotId) -> Self {
        Self(disk.snapshots().join(id.to_string()))
    }

    /// Its directory, made or not.
    pub fn directory(&self) -> &Path {
        &self.0
    }

    /// What the runtime wrote, or will.
    pub fn memory(&self) -> PathBuf {
        self.0.join(MEMORY)
    }

    /// What the sandbox had written.
    pub fn files(&self) -> PathBuf {
        self.0.join(FILES)
    }

    /// Whether a run may have changed what it was started from since [`Place::files`] was kept.
    pub fn is_begun(&self) -> bool {
        self.0.join(BEGUN).exists()
    }

    /// Says that a run begins to change what it is started from, or that all is as it was saved.
    ///
    /// # Errors
    /// When it cannot be said.
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

    /// Makes the place beside in which it is prepared.
    ///
    /// # Errors
    /// When the disk is full.
    pub fn prepare(&self, disk: &Disk) -> io::Result<Self> {
        self.prepare_for(disk, None)
    }

    /// The same; what lies in it is counted for `owner`.
    ///
    /// # Errors
    /// When the disk is full.
    pub fn prepare_for(&self, disk: &Disk, owner: Option<Owner>) -> io::Result<Self> {
        let beside = Self(with_suffix(&self.0, "new"));
        beside.remove(disk)?;
        disk.make_place(&beside.0, owner)?;
        Ok(beside)
    }

    /// Writes the manifest of what lies here, makes all of it survive the machine, and shows it at
    /// `place`. That it is called so survives only with [`Place::keep_name`].
    ///
    /// # Errors
    /// When the disk is full or fails; nothing is shown then.
    pub fn publish(&self, parts: Parts, disk: &Disk, place: &Self) -> io::Result<Manifest> {
        early::begin_to_write(&self.memory());
        let memory = self.read_memory(&parts)?;
        let mut saved = parts.saved;
        saved.memory_bytes = memory.iter().map(|file| file.bytes).sum();
        let manifest = Manifest {
            format: FORMAT.to_owned(),
            version: VERSION,
            source: parts.source,
            execution: parts.execution,
            saved,
            runtime_build: parts.runtime_build,
            machine: Machine::this(),
            image: parts.image,
            layers: parts.layers,
            envd: parts.envd,
            resources: parts.resources,
            memory,
        };
        self.write(&manifest)?;
        disk.sync()?;
        fs::rename(&self.0, &place.0)?;
        Ok(manifest)
    }

    /// Writes the manifest of what lies here.
    ///
    /// # Errors
    /// When the disk is full or fails.
    pub fn write(&self, manifest: &Manifest) -> io::Result<()> {
        fs::write(self.0.join(FILE), serde_json::to_vec_pretty(manifest)?)
    }

    fn read_memory(&self, parts: &Parts) -> io::Result<Vec<MemoryFile>> {
        let mut memory = Vec::new();
        if parts.saved.contents.has_memory() {
            for entry in fs::read_dir(self.memory())? {
                let name = entry?.file_name().to_string_lossy().into_owned();
                let name = name.parse().map_err(io::Error::other)?;
                memory.push(MemoryFile::of(&self.memory(), name)?);
            }
        }
        memory.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(memory)
    }

    /// Shows what lies here, all of it on the disk by now, at `place`.
    ///
    /// # Errors
    /// When the disk fails; nothing is shown then.
    pub fn show(&self, place: &Self) -> io::Result<()> {
        fs::rename(&self.0, &place.0)?;
        place.keep_name()
    }

    /// Makes its name survive the machine.
    ///
    /// # Errors
    /// When the disk fails.
    pub fn keep_name(&self) -> io::Result<()> {
        match self.0.parent() {
            Some(parent) => File::open(parent)?.sync_all(),
            None => Ok(()),
        }
    }

    /// Takes it away: at once as far as anybody sees, then its bytes. Success when there is
    /// nothing.
    ///
    /// # Errors
    /// When something stays.
    pub fn remove(&self, disk: &Disk) -> io::Result<()> {
        let old = with_suffix(&self.0, "old");
        for path in [&with_suffix(&self.0, "new"), &old] {
            empty(path, disk)?;
        }
        self.hide()?;
        empty(&old, disk)
    }

    /// Lets nobody see it any more. Success when there is nothing.
    ///
    /// # Errors
    /// When the disk refuses.
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
        disk.remove_at(&files)?;
    }
    disk.remove_at(directory)
}

/// Takes away what was on its way in or out when a server was killed, in the directory `all`.
///
/// # Errors
/// When something stays.
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

/// Shows what is whole of what was on its way in when the server or the machine ended: the name is the
/// last that is given, and nobody waits until the disk has that.
///
/// # Errors
/// When the disk fails.
pub fn show_whole(all: &Path, disk: &Disk) -> io::Result<()> {
    for entry in fs::read_dir(all)? {
        let path = entry?.path();
        if path.extension().is_none_or(|suffix| suffix != "new") {
            continue;
        }
        let whole = match Manifest::read(&path).and_then(|manifest| manifest.verify(&path)) {
            Ok(()) => true,
            // What cannot be looked at now is not taken for damaged.
            Err(Unreadable::Disk(error)) if is_exhausted(&error) => return Err(error),
            Err(_) => false,
        };
        let place = path.with_extension("");
        if whole && !place.exists() {
            disk.sync()?;
            Place(path).show(&Place(place))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
