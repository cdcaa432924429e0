//! The manifest of a saved sandbox.

use std::fs;
use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};
use shoal_core::id::{ExecutionId, SandboxId};
use shoal_core::image::ImageName;
use shoal_core::resources::Resources;
use shoal_core::snapshot::Saved;

use super::memory_file::{Inode, Proof};
use super::{FILE, FileName, MEMORY, MemoryFile};
use crate::machine::Machine;

/// Magic value of the manifest, so that an unrelated file is not mistaken for one.
const FORMAT: &str = "shoal-saved";
/// Manifest version that this program writes.
const VERSION: u32 = 1;

/// The saved contents, and the requirements of a resume.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedManifest {
    format: String,
    version: u32,
    /// The sandbox that was saved.
    pub source: SandboxId,
    /// The execution that was saved.
    pub execution: ExecutionId,
    /// Contents and sizes, as the engine records them.
    pub saved: Saved,
    /// The build of the runtime that wrote the memory: another build may be unable to read it.
    pub runtime_build: String,
    /// The machine on which it was saved.
    pub machine: Machine,
    /// The image that the sandbox was created from.
    pub image: ImageName,
    /// The digests of the sandbox's image layers.
    pub layers: Vec<String>,
    /// The layer with the sandbox's envd.
    pub envd: FileName,
    /// The sandbox's resource limits.
    pub resources: Resources,
    /// The files of the memory directory.
    pub memory: Vec<MemoryFile>,
}

/// See [`SavedManifest::stamp`].
pub type Stamp = [u8; 32];

/// The input for a new manifest.
pub struct Parts {
    /// The sandbox that is saved.
    pub source: SandboxId,
    /// The execution that is saved.
    pub execution: ExecutionId,
    /// Contents and sizes, as the engine records them.
    pub saved: Saved,
    /// The build of the runtime that wrote the memory.
    pub runtime_build: String,
    /// The image that the sandbox was created from.
    pub image: ImageName,
    /// The digests of the sandbox's image layers.
    pub layers: Vec<String>,
    /// The layer with the sandbox's envd.
    pub envd: FileName,
    /// The sandbox's resource limits.
    pub resources: Resources,
}

/// Why a saved sandbox cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum Unreadable {
    /// The manifest does not exist.
    #[error("the manifest is missing")]
    Missing,
    /// The manifest is malformed, or of a later version.
    #[error("the manifest cannot be read: {0}")]
    Manifest(String),
    /// A file's length or content differs from the manifest.
    #[error("{0} is damaged: {1}")]
    Damaged(String, &'static str),
    /// Reading failed.
    #[error("it cannot be read: {0}")]
    Disk(#[from] io::Error),
}

impl SavedManifest {
    /// A manifest in the current format, with the total size of `memory`.
    pub(super) fn new(parts: Parts, memory: Vec<MemoryFile>) -> Self {
        let mut saved = parts.saved;
        saved.memory_bytes = memory.iter().map(|file| file.bytes).sum();
        Self {
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
        }
    }

    /// Reads the manifest in `directory`.
    ///
    /// # Errors
    /// When the manifest is missing, malformed, or of a later version.
    pub fn read(directory: &Path) -> Result<Self, Unreadable> {
        let text = match fs::read(directory.join(FILE)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(Unreadable::Missing);
            }
            text => text?,
        };
        Self::parse(&text)
    }

    /// Parses a manifest.
    ///
    /// # Errors
    /// When it is malformed, or of a later version.
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

    /// Checks that every memory file exists with its recorded length. [`SavedManifest::verify`] looks at
    /// their contents.
    ///
    /// # Errors
    /// Names the file that differs.
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

    /// Distinguishes this memory from one written later. `None` when a file cannot be read.
    pub fn stamp(&self, directory: &Path) -> Option<Stamp> {
        let mut stamp = blake3::Hasher::new();
        for file in &self.memory {
            let metadata = fs::symlink_metadata(directory.join(MEMORY).join(&file.name)).ok()?;
            let found = (metadata.len(), Inode::of(&metadata), &file.proof);
            stamp.update(&serde_json::to_vec(&found).ok()?);
        }
        Some(*stamp.finalize().as_bytes())
    }

    /// Checks that the memory is what was saved: every byte by its digest, and a file that has none yet by its inode.
    ///
    /// # Errors
    /// Names the file that differs.
    pub fn verify(&self, directory: &Path) -> Result<(), Unreadable> {
        self.check_lengths(directory)?;
        let memory = directory.join(MEMORY);
        self.memory.iter().try_for_each(|file| file.verify(&memory))
    }

    /// Whether all files have digests.
    #[must_use]
    pub fn has_digests(&self) -> bool {
        let digested = |file: &MemoryFile| matches!(file.proof, Proof::Digest(_));
        self.memory.iter().all(digested)
    }
}
