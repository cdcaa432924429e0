//! The file that lists a sandbox's resources. A new server reads it after a crash.

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
/// Marker file: the sandbox is frozen to be saved.
const HELD_STILL: &str = "held";
/// Marker file: the slot named in the manifest belongs to this sandbox.
const HELD: &str = "slot";
/// Magic value of the file, so that an unrelated file is not mistaken for a manifest.
const FORMAT: &str = "shoal-sandbox";
/// Version that this program writes.
const VERSION: u32 = 1;

/// The driver's record of a sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// Format and version of the file.
    #[serde(flatten)]
    pub header: Header,
    /// The sandbox's id.
    pub id: SandboxId,
    /// Its current execution.
    pub execution: ExecutionId,
    /// The image that it was created from.
    pub image: ImageName,
    /// The digests of its image layers.
    pub layers: Vec<String>,
    /// Its OCI runtime.
    pub runtime: RuntimeName,
    /// Its network slot, if [`holds_slot`].
    pub slot: u32,
    /// The size of its writable layer.
    pub disk: Mib,
    /// The layer with its envd: a sandbox keeps the one it started with, whatever is installed
    /// later.
    #[serde(default)]
    pub envd: String,
    /// The owner of its disk usage; `None` if it started before usage was counted by owner.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<Owner>,
    /// The limits at the start of its execution.
    #[serde(default)]
    pub resources: Resources,
    /// The runtime's own memory in its cgroup, in addition to the sandbox's.
    #[serde(default = "none")]
    pub overhead: Mib,
}

fn none() -> Mib {
    Mib(0)
}

/// Identifies the file format.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    format: String,
    version: u32,
}

impl Default for Header {
    /// The format of the files that this program writes.
    fn default() -> Self {
        Self {
            format: FORMAT.to_owned(),
            version: VERSION,
        }
    }
}

impl Manifest {
    /// The cgroup's limits that give the sandbox these limits.
    pub fn in_group(&self, limits: Resources) -> Resources {
        Resources {
            memory: Mib(limits.memory.0.saturating_add(self.overhead.0)),
            ..limits
        }
    }

    /// Writes the file atomically and records that the slot is in use.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write(&self, directory: &Path) -> io::Result<()> {
        // In this order: both files name the slot's owner, and an older manifest names another
        // slot.
        self.rewrite(directory)?;
        hold_slot(directory)
    }

    /// Like [`Manifest::write`], but does not change whether the slot is in use.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn rewrite(&self, directory: &Path) -> io::Result<()> {
        let beside = directory.join("sandbox.json.new");
        fs::write(&beside, serde_json::to_vec(self)?)?;
        fs::rename(beside, directory.join(FILE))
    }

    /// Syncs the file in `directory`, and the directories that lead to it, to disk.
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

    /// Reads the file in `directory`; `None` if it does not exist or is not a manifest.
    ///
    /// # Errors
    /// When the file cannot be read: a server without descriptors must not consider a sandbox
    /// missing.
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

/// Records that the sandbox in `directory` uses its slot.
///
/// # Errors
/// When it cannot be written.
fn hold_slot(directory: &Path) -> io::Result<()> {
    fs::write(directory.join(HELD), b"")
}

/// Records whether the sandbox in `directory` is frozen.
///
/// # Errors
/// When it cannot be recorded.
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

/// Whether the sandbox in `directory` was frozen when a server was killed.
pub fn is_held(directory: &Path) -> bool {
    directory.join(HELD_STILL).exists()
}

/// Whether the sandbox in `directory` uses its slot.
///
/// # Errors
/// When it cannot be determined.
pub fn holds_slot(directory: &Path) -> io::Result<bool> {
    directory.join(HELD).try_exists()
}

/// Records that the sandbox no longer uses the slot, and returns whether it did. The caller that
/// gets `true` removes the slot, once: after that it may belong to another sandbox.
///
/// # Errors
/// When it cannot be recorded.
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
    fn a_manifest_is_read_back_and_another_file_is_not_mistaken_for_one() {
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
        // A file that cannot be opened is not considered missing.
        let unreadable = directory.path().join(FILE);
        std::os::unix::fs::symlink(&unreadable, &unreadable).unwrap();
        Manifest::read(directory.path()).unwrap_err();
    }
}
