//! What is on disk of each sandbox, so that a server that starts knows what the last one made.

use std::fs;
use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};
use shoal_core::id::{ExecutionId, SandboxId};
use shoal_core::image::ImageName;
use shoal_core::resources::Mib;
use shoal_core::template::RuntimeName;

/// The file's name in the sandbox's directory.
const FILE: &str = "sandbox.json";
/// The file that is there for as long as the slot that the manifest names is this sandbox's.
const HELD: &str = "slot";
/// What the file begins with, so that another file is not taken for one.
const FORMAT: &str = "shoal-sandbox";
/// The version that is written.
const VERSION: u32 = 1;

/// What the driver knows of a sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Manifest {
    format: String,
    version: u32,
    pub(crate) id: SandboxId,
    pub(crate) execution: ExecutionId,
    pub(crate) image: ImageName,
    /// The digests of the layers that it stands on.
    pub(crate) layers: Vec<String>,
    pub(crate) runtime: RuntimeName,
    /// Its network slot, while [`holds_slot`] says so.
    pub(crate) slot: u32,
    /// What it may write.
    pub(crate) disk: Mib,
}

impl Manifest {
    pub(crate) fn new(
        id: SandboxId,
        execution: ExecutionId,
        image: ImageName,
        layers: Vec<String>,
        runtime: RuntimeName,
        slot: u32,
        disk: Mib,
    ) -> Self {
        let format = FORMAT.to_owned();
        Self {
            format,
            version: VERSION,
            id,
            execution,
            image,
            layers,
            runtime,
            slot,
            disk,
        }
    }

    /// Writes the file, whole or not at all.
    ///
    /// # Errors
    /// When it cannot be written.
    pub(crate) fn write(&self, directory: &Path) -> io::Result<()> {
        hold_slot(directory)?;
        let beside = directory.join("sandbox.json.new");
        fs::write(&beside, serde_json::to_vec(self)?)?;
        fs::rename(beside, directory.join(FILE))
    }

    /// Reads the file in `directory`; none when there is none that can be read.
    pub(crate) fn read(directory: &Path) -> Option<Self> {
        let text = fs::read(directory.join(FILE)).ok()?;
        let manifest: Self = serde_json::from_slice(&text).ok()?;
        (manifest.format == FORMAT && manifest.version <= VERSION).then_some(manifest)
    }
}

/// Says that the sandbox in `directory` has its slot.
///
/// # Errors
/// When it cannot be written.
pub(crate) fn hold_slot(directory: &Path) -> io::Result<()> {
    fs::write(directory.join(HELD), b"")
}

/// Whether the sandbox in `directory` has its slot.
pub(crate) fn holds_slot(directory: &Path) -> bool {
    directory.join(HELD).exists()
}

/// Says that the slot is no longer the sandbox's, and whether it was: whoever is told so takes it
/// away, once. A slot that was given back may be another sandbox's already.
///
/// # Errors
/// When it cannot be said.
pub(crate) fn disown_slot(directory: &Path) -> io::Result<bool> {
    match fs::remove_file(directory.join(HELD)) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manifest_is_read_back_and_another_file_is_not_taken_for_one() {
        let directory = tempfile::tempdir().unwrap();
        let manifest = Manifest::new(
            "ia".parse().unwrap(),
            ExecutionId::from_entropy([1; 16]),
            "base:1".parse().unwrap(),
            vec!["sha256:00".to_owned()],
            "runsc".parse().unwrap(),
            7,
            Mib(1024),
        );
        manifest.write(directory.path()).unwrap();
        assert_eq!(Manifest::read(directory.path()), Some(manifest));
        assert!(holds_slot(directory.path()));
        assert!(disown_slot(directory.path()).unwrap());
        assert!(!disown_slot(directory.path()).unwrap());
        assert!(!holds_slot(directory.path()));
        fs::write(directory.path().join(FILE), "{}").unwrap();
        assert_eq!(Manifest::read(directory.path()), None);
        fs::remove_file(directory.path().join(FILE)).unwrap();
        assert_eq!(Manifest::read(directory.path()), None);
    }
}
