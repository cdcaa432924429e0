//! What is on disk of each sandbox, so that a server that starts knows what the last one made.

use std::fs::{self, File};
use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};
use shoal_core::driver::Owner;
use shoal_core::id::{ExecutionId, SandboxId};
use shoal_core::image::ImageName;
use shoal_core::resources::{Mib, Resources};
use shoal_core::template::RuntimeName;

/// The file's name in the sandbox's directory.
const FILE: &str = "sandbox.json";
/// The file that is there while the sandbox is held still to be saved.
const HELD_STILL: &str = "held";
/// The file that is there for as long as the slot that the manifest names is this sandbox's.
const HELD: &str = "slot";
/// What the file begins with, so that another file is not taken for one.
const FORMAT: &str = "shoal-sandbox";
/// The version that is written.
const VERSION: u32 = 1;

/// What the driver knows of a sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// Format and version of the file.
    #[serde(flatten)]
    pub header: Header,
    /// The sandbox.
    pub id: SandboxId,
    /// Its present run.
    pub execution: ExecutionId,
    /// The image that it was created from.
    pub image: ImageName,
    /// The digests of the layers that it stands on.
    pub layers: Vec<String>,
    /// The runtime that it runs with.
    pub runtime: RuntimeName,
    /// Its network slot, while [`holds_slot`] says so.
    pub slot: u32,
    /// What it may write.
    pub disk: Mib,
    /// The layer with its daemon: it keeps the one that it began with, whatever is installed later.
    #[serde(default)]
    pub envd: String,
    /// Who its disk is counted for; nobody where it began before that was counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<Owner>,
    /// The limits that it began its run with.
    #[serde(default)]
    pub resources: Resources,
    /// The memory that the runtime itself takes of its group, beside the sandbox's.
    #[serde(default = "none")]
    pub overhead: Mib,
}

fn none() -> Mib {
    Mib(0)
}

/// What tells the file from another.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    format: String,
    version: u32,
}

impl Default for Header {
    /// That of the files that this program writes.
    fn default() -> Self {
        Self {
            format: FORMAT.to_owned(),
            version: VERSION,
        }
    }
}

impl Manifest {
    /// The limits that its group has, for the sandbox to have these.
    pub fn in_group(&self, limits: Resources) -> Resources {
        Resources {
            memory: Mib(limits.memory.0.saturating_add(self.overhead.0)),
            ..limits
        }
    }

    /// Writes the file, whole or not at all.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write(&self, directory: &Path) -> io::Result<()> {
        // In this order: who has the slot is known by both, and an older manifest names another.
        self.rewrite(directory)?;
        hold_slot(directory)
    }

    /// The same for a sandbox that has its slot, or has none.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn rewrite(&self, directory: &Path) -> io::Result<()> {
        let beside = directory.join("sandbox.json.new");
        fs::write(&beside, serde_json::to_vec(self)?)?;
        fs::rename(beside, directory.join(FILE))
    }

    /// Makes the file in `directory` survive the machine, with the names that lead to it.
    ///
    /// # Errors
    /// When the disk fails.
    pub fn sync(directory: &Path) -> io::Result<()> {
        let parent = directory.parent().unwrap_or(directory);
        for path in [&*directory.join(FILE), directory, parent] {
            File::open(path)?.sync_all()?;
        }
        Ok(())
    }

    /// Reads the file in `directory`; none when there is none that is a manifest.
    ///
    /// # Errors
    /// When it cannot be known: a server without descriptors must not take a sandbox for none.
    pub fn read(directory: &Path) -> io::Result<Option<Self>> {
        let text = match fs::read(directory.join(FILE)) {
            Ok(text) => text,
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
                ) =>
            {
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        let manifest: Option<Self> = serde_json::from_slice(&text).ok();
        Ok(manifest.filter(|manifest| {
            let Header { format, version } = &manifest.header;
            format == FORMAT && *version <= VERSION
        }))
    }
}

/// Says that the sandbox in `directory` has its slot.
///
/// # Errors
/// When it cannot be written.
fn hold_slot(directory: &Path) -> io::Result<()> {
    fs::write(directory.join(HELD), b"")
}

/// Says that the sandbox in `directory` is held still, or is not any more.
///
/// # Errors
/// When it cannot be said.
pub fn mark_held(directory: &Path, held: bool) -> io::Result<()> {
    let path = directory.join(HELD_STILL);
    if held {
        return fs::write(path, b"");
    }
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Whether the sandbox in `directory` was held still when a server was killed.
pub fn is_held(directory: &Path) -> bool {
    directory.join(HELD_STILL).exists()
}

/// Whether the sandbox in `directory` has its slot.
///
/// # Errors
/// When it cannot be known.
pub fn holds_slot(directory: &Path) -> io::Result<bool> {
    directory.join(HELD).try_exists()
}

/// Says that the slot is no longer the sandbox's, and whether it was: whoever is told so takes it
/// away, once. A slot that was given back may be another sandbox's already.
///
/// # Errors
/// When it cannot be said.
pub fn disown_slot(directory: &Path) -> io::Result<bool> {
    match fs::remove_file(directory.join(HELD)) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use shoal_core::id::TeamId;

    use super::*;

    #[test]
    fn a_manifest_is_read_back_and_another_file_is_not_taken_for_one() {
        let directory = tempfile::tempdir().unwrap();
        let manifest = Manifest {
            header: Header::default(),
            id: "ia".parse().unwrap(),
            execution: ExecutionId::from_entropy([1; 16]),
            image: "base:1".parse().unwrap(),
            layers: vec!["sha256:00".to_owned()],
            runtime: "runsc".parse().unwrap(),
            slot: 7,
            disk: Mib(1024),
            envd: "00".to_owned(),
            owner: Some(Owner {
                team: TeamId::from_entropy([1; 16]),
                disk: Some(Mib(1)),
            }),
            resources: Resources::default(),
            overhead: Mib(64),
        };
        manifest.write(directory.path()).unwrap();
        assert_eq!(Manifest::read(directory.path()).unwrap(), Some(manifest));
        assert!(holds_slot(directory.path()).unwrap());
        assert!(disown_slot(directory.path()).unwrap());
        assert!(!disown_slot(directory.path()).unwrap());
        assert!(!holds_slot(directory.path()).unwrap());
        fs::write(directory.path().join(FILE), "{}").unwrap();
        assert_eq!(Manifest::read(directory.path()).unwrap(), None);
        fs::remove_file(directory.path().join(FILE)).unwrap();
        assert_eq!(Manifest::read(directory.path()).unwrap(), None);
        // What cannot be opened is not taken for nothing.
        let unreadable = directory.path().join(FILE);
        std::os::unix::fs::symlink(&unreadable, &unreadable).unwrap();
        Manifest::read(directory.path()).unwrap_err();
    }
}
