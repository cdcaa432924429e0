//! The directories of an installation.
//!
//! ```text
//! <data>/lock                    held by the running server
//! <data>/envd/<digest>/          a layer with the daemon of that digest
//! <data>/images/                 the image store
//! <data>/disk                    writable layers: one bounded directory each
//! <data>/sandboxes/<id>/         one sandbox: manifest, bundle, log pipe
//! /run/shoal/<instance>/         cleared by a reboot: namespaces, state of the runtimes
//! /run/shoal/<instance>/roots/   the mount point of one sandbox each
//! /run/shoal/slots/              the network slots in use on the machine
//! ```
//!
//! The data directory is closed to other users. Root of a user namespace is another user and must
//! reach its root file system. Mount points are therefore below `/run/shoal`, where the parent
//! directories allow traversal only.

use std::ffi::OsStr;
use std::fs::{self, File, Permissions};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use crate::modes;
use crate::{lock, rootfs};

/// State that a reboot clears, shared by all installations on the machine.
pub const MACHINE: &str = "/run/shoal";

/// The file in an installation's state that contains the path of its data directory.
const DATA: &str = "data";

/// The directory with the mount points of sandboxes.
pub(crate) const ROOTS: &str = "roots";

/// The CA certificate of this installation, for clients that run as other users of the machine.
pub(crate) const AUTHORITY: &str = "ca.pem";

/// The number of digits in an instance's name: few, because an interface's name has 15 characters.
const INSTANCE_DIGITS: usize = 5;

/// The paths of one installation, locked by one server.
#[derive(Debug)]
pub struct Home {
    /// The data directory, canonical.
    pub data: PathBuf,
    /// This installation's state that a reboot clears.
    pub run: PathBuf,
    /// State that a reboot clears, shared by all installations on the machine.
    pub machine: PathBuf,
    /// A short name: constant across starts, and different for each data directory.
    pub instance: String,
    _locks: [File; 2],
}

impl Home {
    /// Creates the directories and takes the lock. `states` names the directories for state of the
    /// driver's programs that a reboot clears.
    ///
    /// # Errors
    /// When another server has the lock, or a directory cannot be created.
    pub fn open(data: &Path, states: &[&str]) -> io::Result<Self> {
        modes::make(data)?;
        let data = data.canonicalize()?;
        // Before locking: another user may have opened the file and may hold the lock.
        let mut corrected = modes::correct(&data)?;
        let lock = lock::take(&data)?;
        let instance = instance_of(&data);
        let machine = PathBuf::from(MACHINE);
        let run = machine.join(&instance);
        modes::make(&sandboxes(&data))?;
        for directory in states.iter().chain(&[ROOTS]) {
            modes::make(&run.join(directory))?;
        }
        corrected += modes::correct_state(&machine, &run)?;
        corrected.log();
        // This lock shows a running server even if its data directory was deleted.
        let state_lock = lock::take(&run)?;
        // It shows recovery tools which installation this state belongs to.
        modes::create_file(&run.join(DATA))?.write_all(data.as_os_str().as_bytes())?;
        Ok(Self {
            data,
            run,
            machine,
            instance,
            _locks: [lock, state_lock],
        })
    }

    /// The directory of one sandbox.
    pub fn sandbox(&self, id: &str) -> PathBuf {
        self.sandboxes().join(id)
    }

    /// The directory of all sandboxes.
    pub fn sandboxes(&self) -> PathBuf {
        sandboxes(&self.data)
    }

    /// The directory of one sandbox's mount point; only root of that sandbox may traverse it.
    pub fn root(&self, id: &str) -> PathBuf {
        self.roots().join(id)
    }

    /// The directory with the mount points of all sandboxes.
    pub fn roots(&self) -> PathBuf {
        self.run.join(ROOTS)
    }

    /// Whether a sandbox's file system is mounted.
    ///
    /// # Errors
    /// When `/proc` cannot be read.
    pub fn is_in_use(&self) -> io::Result<bool> {
        // Earlier versions mounted them in the sandboxes' directories.
        let mounts = [self.roots(), self.sandboxes()].map(|all| rootfs::mounts_below(&all));
        let [now, earlier] = mounts;
        Ok(!now?.is_empty() || !earlier?.is_empty())
    }

    /// Copies the CA certificate to a path that every user can read, and returns that path.
    ///
    /// # Errors
    /// When it cannot be read or written.
    pub fn publish_authority(&self, authority: &Path) -> io::Result<PathBuf> {
        let published = self.run.join(AUTHORITY);
        let mut file = modes::create_file(&published)?;
        file.write_all(&fs::read(authority)?)?;
        file.set_permissions(Permissions::from_mode(0o644))?;
        Ok(published)
    }

    /// Removes the state that a reboot would clear, if no sandbox needs it.
    ///
    /// # Errors
    /// When a file remains.
    pub fn close(&self) -> io::Result<()> {
        if fs::read_dir(self.sandboxes())?.next().is_some() {
            return Ok(());
        }
        // gVisor keeps an empty network namespace for all its sandboxes there.
        rootfs::unmount_below(&self.run)?;
        match fs::remove_dir_all(&self.run) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// The cgroup path of this installation, relative to each hierarchy.
    pub fn cgroup_parent(&self) -> PathBuf {
        Path::new("shoal").join(&self.instance)
    }
}

/// The data directory of the installation with its state in `run`, if recorded.
pub(crate) fn data_of(run: &Path) -> Option<PathBuf> {
    let bytes = fs::read(run.join(DATA)).ok()?;
    Some(OsStr::from_bytes(&bytes).into())
}

/// The directory of all sandboxes of the installation in `data`.
pub fn sandboxes(data: &Path) -> PathBuf {
    data.join("sandboxes")
}

/// The short name of the installation in `data`.
pub(crate) fn instance_of(data: &Path) -> String {
    let digest = Sha256::digest(data.as_os_str().as_bytes());
    digest
        .iter()
        .take(INSTANCE_DIGITS)
        .map(|b| char::from(b"0123456789abcdefghijklmnopqrstuv"[usize::from(b % 32)]))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_instance_has_its_own_short_name() {
        let (a, b) = (instance_of(Path::new("/a")), instance_of(Path::new("/b")));
        assert_eq!(a.len(), INSTANCE_DIGITS);
        assert_ne!(a, b);
        assert_eq!(a, instance_of(Path::new("/a")));
    }
}
