//! The records of the wrapper around runsc about the sandboxes that it starts, for itself and for the node agent.
//!
//! ```text
//! <state>/pods/<sandbox>/sandbox.json         the sandbox
//! <state>/pods/<sandbox>/c-<container>.json   each container, the pause container too
//! <state>/pods/<sandbox>/begun-<name>         a container whose restore has begun, which can be done once in a sandbox
//! <state>/pods/<sandbox>/restored-<name>      a container that was restored: the next one of the name starts afresh
//! ```
//!
//! The layers of a container identify it; the pod's present specification does not.

use std::collections::BTreeSet;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::manifest::{Contents, SavedContainer};

/// A sandbox.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SandboxRecord {
    /// The namespace of its pod.
    pub namespace: String,
    /// The name of its pod.
    pub pod: String,
    /// The digest of the runtime that it runs in.
    pub runtime: String,
    /// The volumes that it keeps inside.
    pub volumes: BTreeSet<String>,
    /// The directory behind the daemon's volume, where the pod has no such volume: the runtime mounts it.
    #[serde(default)]
    pub daemon_volume: Option<PathBuf>,
    /// The checkpoint that it is restored from.
    pub restore: Option<Restore>,
}

/// A checkpoint that was verified for a sandbox.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Restore {
    /// The id.
    pub id: String,
    /// The directory.
    pub directory: PathBuf,
    /// Its contents.
    pub contents: Contents,
    /// The containers.
    pub containers: Vec<SavedContainer>,
}

/// A container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContainerRecord {
    /// Its sandbox.
    pub sandbox: String,
    /// Its name; none for the sandbox's own.
    pub name: Option<String>,
    /// The unpacked layers below its root.
    pub layers: Vec<String>,
    /// Whether its start restores it.
    pub restores: bool,
}

/// A text that is not the id of a container.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not the id of a container")]
pub struct InvalidName(String);

impl From<InvalidName> for io::Error {
    fn from(invalid: InvalidName) -> Self {
        Self::other(invalid)
    }
}

/// The records of a node.
#[derive(Clone, Debug)]
pub struct Records {
    pods: PathBuf,
}

impl Records {
    /// The records in a state directory.
    #[must_use]
    pub fn at(state: &Path) -> Self {
        Self {
            pods: state.join("pods"),
        }
    }

    fn pod(&self, sandbox: &str) -> io::Result<PathBuf> {
        Ok(self.pods.join(checked(sandbox)?))
    }

    /// A sandbox.
    ///
    /// # Errors
    /// When there is no record of it, or it cannot be read.
    pub fn sandbox(&self, id: &str) -> io::Result<SandboxRecord> {
        read(&self.pod(id)?.join("sandbox.json"))
    }

    /// Writes the record of a sandbox.
    ///
    /// # Errors
    /// When the file system fails.
    pub fn write_sandbox(&self, id: &str, record: &SandboxRecord) -> io::Result<()> {
        write(&self.pod(id)?, "sandbox.json", record)
    }

    /// A container: of any sandbox, as its id is all that some calls name.
    ///
    /// # Errors
    /// When there is no record of it, or it cannot be read.
    pub fn container(&self, id: &str) -> io::Result<ContainerRecord> {
        let name = format!("c-{}.json", checked(id)?);
        for pod in fs::read_dir(&self.pods)? {
            match read(&pod?.path().join(&name)) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                found => return found,
            }
        }
        Err(io::ErrorKind::NotFound.into())
    }

    /// Writes the record of a container.
    ///
    /// # Errors
    /// When the file system fails.
    pub fn write_container(&self, id: &str, record: &ContainerRecord) -> io::Result<()> {
        let name = format!("c-{}.json", checked(id)?);
        write(&self.pod(&record.sandbox)?, &name, record)
    }

    /// Whether the restore of a container of this name has begun in the sandbox.
    ///
    /// # Errors
    /// When a name is none.
    pub fn has_begun(&self, sandbox: &str, name: &str) -> io::Result<bool> {
        self.mark(sandbox, "begun", name)?.try_exists()
    }

    /// Remembers that the restore of a container begins.
    ///
    /// # Errors
    /// When the file system fails.
    pub fn mark_begun(&self, sandbox: &str, name: &str) -> io::Result<()> {
        fs::write(self.mark(sandbox, "begun", name)?, b"")
    }

    /// Whether a container of this name was restored in the sandbox.
    ///
    /// # Errors
    /// When a name is none.
    pub fn was_restored(&self, sandbox: &str, name: &str) -> io::Result<bool> {
        self.mark(sandbox, "restored", name)?.try_exists()
    }

    /// Remembers that a container was restored.
    ///
    /// # Errors
    /// When the file system fails.
    pub fn mark_restored(&self, sandbox: &str, name: &str) -> io::Result<()> {
        fs::write(self.mark(sandbox, "restored", name)?, b"")
    }

    fn mark(&self, sandbox: &str, what: &str, name: &str) -> io::Result<PathBuf> {
        let name = checked(name)?;
        Ok(self.pod(sandbox)?.join(format!("{what}-{name}")))
    }

    /// Forgets a container, or a sandbox with all of its containers.
    ///
    /// # Errors
    /// When the file system fails.
    pub fn forget(&self, id: &str) -> io::Result<()> {
        let gone = |removed: io::Result<()>| match removed {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            removed => removed,
        };
        gone(fs::remove_dir_all(self.pod(id)?))?;
        match self.container(id) {
            Ok(record) => {
                let name = format!("c-{}.json", checked(id)?);
                gone(fs::remove_file(self.pod(&record.sandbox)?.join(name)))
            }
            Err(_) => Ok(()),
        }
    }
}

fn read<T: DeserializeOwned>(path: &Path) -> io::Result<T> {
    Ok(serde_json::from_slice(&fs::read(path)?)?)
}

/// Writes a file that appears complete.
fn write<T: Serialize>(directory: &Path, name: &str, value: &T) -> io::Result<()> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(directory)?;
    let unfinished = directory.join(format!(".{name}.{}", std::process::id()));
    fs::write(&unfinished, serde_json::to_vec(value)?)?;
    fs::rename(unfinished, directory.join(name))
}

/// A name that leads nowhere else.
fn checked(name: &str) -> Result<&str, InvalidName> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-".contains(&byte);
    if name.is_empty() || name.len() > 200 || !name.bytes().all(plain) {
        return Err(InvalidName(name.chars().take(80).collect()));
    }
    Ok(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn container(name: Option<&str>) -> ContainerRecord {
        ContainerRecord {
            sandbox: "sandbox1".to_owned(),
            name: name.map(str::to_owned),
            layers: vec!["/layers/1".to_owned()],
            restores: false,
        }
    }

    #[test]
    fn a_container_is_found_by_its_id_until_it_is_forgotten() {
        let directory = tempfile::tempdir().unwrap();
        let records = Records::at(directory.path());
        assert!(records.container("c1").is_err());
        records
            .write_container("sandbox1", &container(None))
            .unwrap();
        records
            .write_container("c1", &container(Some("main")))
            .unwrap();
        assert_eq!(records.container("c1").unwrap(), container(Some("main")));
        assert!(!records.was_restored("sandbox1", "main").unwrap());
        assert!(!records.has_begun("sandbox1", "main").unwrap());
        records.mark_begun("sandbox1", "main").unwrap();
        assert!(records.has_begun("sandbox1", "main").unwrap());
        assert!(!records.was_restored("sandbox1", "main").unwrap());
        records.mark_restored("sandbox1", "main").unwrap();
        assert!(records.was_restored("sandbox1", "main").unwrap());
        records.forget("c1").unwrap();
        assert!(records.container("c1").is_err());
        assert!(records.container("sandbox1").is_ok());
        records.forget("sandbox1").unwrap();
        assert!(records.container("sandbox1").is_err());
        assert!(!records.was_restored("sandbox1", "main").unwrap());
    }

    #[test]
    fn ids_lead_nowhere_else() {
        let directory = tempfile::tempdir().unwrap();
        let records = Records::at(directory.path());
        for hostile in ["", "..", ".", "a/b", "../x", "\0"] {
            assert!(records.sandbox(hostile).is_err());
            assert!(records.write_container(hostile, &container(None)).is_err());
            assert!(records.forget(hostile).is_err());
            assert!(records.was_restored("sandbox1", hostile).is_err());
        }
    }
}
