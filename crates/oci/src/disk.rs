//! What sandboxes write: one bounded directory each.
//!
//! The bound is a btrfs quota. Where the data directory is not on btrfs, a file in it is formatted
//! and mounted, with all its space taken in advance: a sandbox that fills its share meets an
//! error of its own, and never a full disk of the machine. Where btrfs cannot be had, directories
//! are plain and whoever writes more is ended soon after, which [`Disk::describe`] says.

mod btrfs;
mod image;

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use shoal_core::resources::Mib;

/// How the disk of sandboxes is had.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum DiskConfig {
    /// btrfs when it can be had, else plain directories.
    #[default]
    Auto,
    /// btrfs in a file of this size, or on the data directory's own file system when that is
    /// btrfs.
    Btrfs {
        /// The size of the file; a share of the free space when none is given.
        size: Option<Mib>,
    },
    /// Plain directories.
    Plain,
}

/// The directories of this installation's sandboxes.
#[derive(Debug)]
pub(crate) struct Disk {
    root: PathBuf,
    /// Whether [`Disk::close`] unmounts `root`.
    mounted: bool,
    volume: Option<btrfs::Volume>,
}

impl Disk {
    /// Opens the disk below `data`, making it when there is none.
    ///
    /// # Errors
    /// When btrfs was asked for and cannot be had, or there is no space; says what to do.
    pub(crate) fn open(data: &Path, config: &DiskConfig) -> io::Result<Self> {
        let disk = Self::set_up(data, config)?;
        // Root of a sandbox may leave programs there that run as root of the machine.
        fs::set_permissions(&disk.root, Permissions::from_mode(0o700))?;
        Ok(disk)
    }

    fn set_up(data: &Path, config: &DiskConfig) -> io::Result<Self> {
        let root = data.join("disk");
        fs::create_dir_all(&root)?;
        let size = match config {
            DiskConfig::Plain => {
                return Ok(Self {
                    root,
                    mounted: false,
                    volume: None,
                });
            }
            DiskConfig::Btrfs { size } => *size,
            DiskConfig::Auto => None,
        };
        let opened = if btrfs::is_btrfs(&root)? && !image::is_mounted(&root)? {
            btrfs::Volume::open(&root).map(|volume| (volume, false))
        } else {
            image::mount(&data.join("disk.btrfs"), &root, size)
                .and_then(|()| btrfs::Volume::open(&root))
                .map(|volume| (volume, true))
        };
        match opened {
            Ok((volume, mounted)) => Ok(Self {
                root,
                mounted,
                volume: Some(volume),
            }),
            Err(error) if *config == DiskConfig::Auto && !image::is_full(&error) => {
                tracing::warn!(%error, "no btrfs: a sandbox that writes more than its share is ended soon after, not stopped from it");
                Ok(Self {
                    root,
                    mounted: false,
                    volume: None,
                })
            }
            Err(error) => Err(error),
        }
    }

    /// How a sandbox's share is bounded, for people.
    pub(crate) fn describe(&self) -> &'static str {
        match (&self.volume, self.mounted) {
            (Some(_), true) => "btrfs quota, in a file of fixed size",
            (Some(_), false) => "btrfs quota",
            (None, _) => "plain directories: a sandbox that writes more is ended within seconds",
        }
    }

    /// Whether the kernel itself keeps a sandbox within its share.
    pub(crate) fn is_bounded(&self) -> bool {
        self.volume.is_some()
    }

    /// Makes an empty directory that holds at most `limit`.
    ///
    /// # Errors
    /// When it exists, or the disk is full.
    pub(crate) fn create(&self, name: &str, limit: Mib) -> io::Result<PathBuf> {
        let path = self.path(name);
        match &self.volume {
            Some(volume) => volume.create(name, limit.bytes())?,
            None => fs::create_dir(&path)?,
        }
        Ok(path)
    }

    /// The directory called `name`, made or not.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    /// Bytes in the directory.
    ///
    /// # Errors
    /// When it cannot be read.
    pub(crate) fn usage(&self, name: &str) -> io::Result<u64> {
        match &self.volume {
            Some(volume) => volume.usage(name),
            None => tree_bytes(&self.path(name)),
        }
    }

    /// Takes the directory away with all that is in it. Success when there is none.
    ///
    /// # Errors
    /// When something stays.
    pub(crate) fn remove(&self, name: &str) -> io::Result<()> {
        let path = self.path(name);
        let gone = match &self.volume {
            Some(volume) => volume.remove(name),
            None => fs::remove_dir_all(&path),
        };
        match gone {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// The names of all directories.
    ///
    /// # Errors
    /// When the disk cannot be read.
    pub(crate) fn names(&self) -> io::Result<Vec<String>> {
        let entries = fs::read_dir(&self.root)?;
        entries
            .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
            .collect()
    }

    /// Unmounts what [`Disk::open`] mounted, when nothing is on it.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub(crate) fn close(&self) -> io::Result<()> {
        if self.mounted && self.names()?.is_empty() {
            image::unmount(&self.root)
        } else {
            Ok(())
        }
    }
}

/// Bytes allocated below `path`, mounts and links not followed.
fn tree_bytes(path: &Path) -> io::Result<u64> {
    use std::os::unix::fs::MetadataExt;

    let mut total = 0;
    let mut waiting = vec![path.to_owned()];
    while let Some(directory) = waiting.pop() {
        let entries = match fs::read_dir(&directory) {
            // It went while it was being counted.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            entries => entries?,
        };
        for entry in entries {
            let entry = entry?;
            let Ok(metadata) = entry.metadata() else {
                continue;
            };
            total += metadata.blocks() * 512;
            if metadata.is_dir() {
                waiting.push(entry.path());
            }
        }
    }
    Ok(total)
}

#[cfg(test)]
mod tests;
