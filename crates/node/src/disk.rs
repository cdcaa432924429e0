//! The writable layers of sandboxes: one bounded directory each.
//!
//! The bound is a btrfs quota. A file in the data directory is formatted and mounted, and its space
//! is allocated in advance. A sandbox that fills its share gets an error; the machine's disk never
//! fills up. Even where the data directory is on btrfs, a file is used. Subvolumes of one file
//! system all number their inodes from the same start, so an overlay of two of them would have
//! different files with equal numbers, and gVisor identifies files by number. Without btrfs,
//! directories are plain, and a sandbox that exceeds its share is killed soon after;
//! [`Disk::describe`] says so.

mod btrfs;
mod image;
mod reserve;
mod tree;

use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use shoal_core::driver::Owner;
use shoal_core::id::TeamId;
use shoal_core::resources::Mib;

pub use self::btrfs::Room;
use self::reserve::usable;

/// The directory's name in the data directory.
const DISK: &str = "disk";
/// Directory of paused sandboxes, by id.
const PAUSED: &str = ".paused";
/// Directory of snapshots, by id.
const SNAPSHOTS: &str = ".snapshots";

/// How long a full quota waits for the space of recently deleted subvolumes.
const GIVEN_BACK: Duration = Duration::from_secs(2);

/// How the disk of the sandboxes is provided.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum DiskConfig {
    /// btrfs if available, otherwise plain directories.
    #[default]
    Auto,
    /// btrfs in a file of this size.
    Btrfs {
        /// The size of the file; by default a share of the free space.
        size: Option<Mib>,
    },
    /// Plain directories.
    Plain,
}

/// The directories of this installation's sandboxes.
#[derive(Debug)]
pub struct Disk {
    root: PathBuf,
    /// The btrfs volume mounted at `root`; `None` for a plain directory.
    volume: Option<btrfs::Volume>,
}

impl Disk {
    /// Opens the disk below `data`, and creates it if it does not exist.
    ///
    /// # Errors
    /// When btrfs was requested and is not available, or there is no space. The text says what to
    /// do.
    pub fn open(data: &Path, config: &DiskConfig) -> io::Result<Self> {
        let disk = Self::set_up(data, config)?;
        // Root inside a sandbox may leave setuid programs here.
        fs::set_permissions(&disk.root, Permissions::from_mode(0o700))?;
        for directory in [disk.paused(), disk.snapshots()] {
            fs::create_dir_all(directory)?;
        }
        Ok(disk)
    }

    fn set_up(data: &Path, config: &DiskConfig) -> io::Result<Self> {
        let root = data.join(DISK);
        fs::create_dir_all(&root)?;
        let size = match config {
            DiskConfig::Plain => {
                return Ok(Self { root, volume: None });
            }
            DiskConfig::Btrfs { size } => *size,
            DiskConfig::Auto => None,
        };
        let opened = image::mount(&data.join("disk.btrfs"), &root, size)
            .and_then(|()| btrfs::Volume::open(&root, usable(&root)?.bytes()));
        match opened {
            Ok(volume) => Ok(Self {
                root,
                volume: Some(volume),
            }),
            Err(error) if *config == DiskConfig::Auto && !image::is_full(&error) => {
                tracing::warn!(%error, "no btrfs: a sandbox that exceeds its disk share is killed afterwards instead of getting an error");
                Ok(Self { root, volume: None })
            }
            Err(error) => Err(error),
        }
    }

    /// Describes, for people, how a sandbox's share is bounded.
    pub fn describe(&self) -> &'static str {
        match &self.volume {
            Some(volume) if volume.groups().is_none() => {
                "btrfs quota, in a file of fixed size; team quotas need Linux 6.7"
            }
            Some(_) => "btrfs quota, in a file of fixed size",
            None => "plain directories: a sandbox that exceeds its share is killed within seconds",
        }
    }

    /// Whether the kernel enforces a sandbox's share.
    pub fn is_bounded(&self) -> bool {
        self.volume.is_some()
    }

    /// Whether programs can write files past the system's cache. Plain directories may be on any file
    /// system.
    pub fn takes_direct_writes(&self) -> bool {
        self.volume.is_some()
    }

    /// Creates an empty directory that holds at most `limit`.
    ///
    /// # Errors
    /// When it exists, or the disk is full.
    pub fn create(&self, name: &str, limit: Mib, owner: Owner) -> io::Result<PathBuf> {
        let path = self.path(name);
        match &self.volume {
            Some(volume) => volume.create(name, limit.bytes(), self.group(owner)?)?,
            None => fs::create_dir(&path)?,
        }
        Ok(path)
    }

    /// Creates a directory with the contents of `source`, which [`Disk::keep`] made, that can hold
    /// up to `limit` more.
    ///
    /// # Errors
    /// When it exists, or the disk is full.
    pub fn create_from(
        &self,
        source: &Path,
        name: &str,
        limit: Mib,
        owner: Owner,
    ) -> io::Result<()> {
        match &self.volume {
            Some(volume) => volume.create_from(source, name, limit.bytes(), self.group(owner)?),
            None => tree::copy(source, &self.path(name)),
        }
    }

    /// Saves the contents of the directory `name` at `target`, a path on this disk that does not
    /// exist.
    ///
    /// # Errors
    /// When the disk is full.
    pub fn keep(&self, name: &str, target: &Path) -> io::Result<()> {
        match &self.volume {
            Some(_) => btrfs::snapshot(&self.path(name), target),
            None => {
                // A partial copy must never have the final name.
                let part = target.with_extension("part");
                self.remove_at(&part)?;
                tree::copy(&self.path(name), &part)?;
                fs::rename(part, target)
            }
        }
    }

    /// The bytes that are free for sandboxes.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn free(&self) -> io::Result<u64> {
        let stat = rustix::fs::statvfs(&self.root)?;
        let free = stat.f_bavail.saturating_mul(stat.f_frsize);
        let reserved = match &self.volume {
            Some(_) => {
                let all = stat.f_blocks.saturating_mul(stat.f_frsize);
                all.saturating_sub(usable(&self.root)?.bytes())
            }
            None => 0,
        };
        Ok(free.saturating_sub(reserved))
    }

    /// Creates an empty directory at `path` on this disk. Its contents count against the quota of
    /// `owner`, if one is given.
    ///
    /// # Errors
    /// When it exists, or the disk is full.
    pub(crate) fn make_place(&self, path: &Path, owner: Option<Owner>) -> io::Result<()> {
        let group = owner.map(|owner| self.group(owner)).transpose()?.flatten();
        match (&self.volume, group) {
            (Some(_), Some(group)) => btrfs::make_in(path, Some(group)),
            _ => fs::create_dir(path),
        }
    }

    /// The team's quota group, on a disk with group quotas.
    fn group(&self, owner: Owner) -> io::Result<Option<btrfs::Group>> {
        let groups = self.volume.as_ref().and_then(btrfs::Volume::groups);
        groups.map(|groups| groups.ensure(owner)).transpose()
    }

    /// Whether a team can write more. If not, waits briefly for space that was freed a moment ago.
    ///
    /// # Errors
    /// When the counters cannot be read.
    pub fn room(&self, owner: Owner) -> io::Result<Room> {
        let Some(volume) = &self.volume else {
            return Ok(Room::Some);
        };
        let Some(groups) = volume.groups() else {
            return Ok(Room::Some);
        };
        let room = groups.room(owner)?;
        if room == Room::Some {
            return Ok(room);
        }
        volume.clean()?;
        let end = Instant::now() + GIVEN_BACK;
        loop {
            let room = groups.room(owner)?;
            if room == Room::Some || Instant::now() >= end {
                return Ok(room);
            }
            std::thread::sleep(GIVEN_BACK / 40);
        }
    }

    /// The bytes of a team, on a disk with group quotas.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn used(&self, team: TeamId) -> io::Result<Option<u64>> {
        let groups = self.volume.as_ref().and_then(btrfs::Volume::groups);
        groups.map(|groups| groups.used(team)).transpose()
    }

    /// Moves the directory `name` to another team's quota.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn give(&self, name: &str, before: Option<Owner>, owner: Owner) -> io::Result<()> {
        match (&self.volume, self.group(owner)?) {
            (Some(volume), Some(group)) => {
                let before = before.map(|before| btrfs::Group::of(before.team));
                volume.move_to(name, before, group)
            }
            _ => Ok(()),
        }
    }

    /// The space of all sandboxes together; `None` if it is not bounded.
    pub fn size(&self) -> Option<Mib> {
        self.volume.as_ref()?;
        usable(&self.root).ok()
    }

    /// Creates an empty directory at `path` on this disk, of the kind that [`Disk::keep`] makes.
    ///
    /// # Errors
    /// When it exists, or the disk is full.
    pub fn make_at(&self, path: &Path) -> io::Result<()> {
        match &self.volume {
            Some(_) => btrfs::make(path),
            None => fs::create_dir(path),
        }
    }

    /// Describes, for people, how [`Disk::keep`] saves a directory.
    pub fn keeps_by(&self) -> &'static str {
        match &self.volume {
            Some(_) => "btrfs snapshot: no byte is copied",
            None => "a copy that shares blocks where the file system can",
        }
    }

    /// Replaces the directory `name` with the one saved at `kept`.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn put_back(&self, kept: &Path, name: &str) -> io::Result<()> {
        self.remove(name)?;
        fs::rename(kept, self.path(name))
    }

    /// The directory of paused sandboxes. It is on this disk because only there a writable layer
    /// can be saved without copying it.
    pub fn paused(&self) -> PathBuf {
        self.root.join(PAUSED)
    }

    /// The directory of snapshots.
    pub fn snapshots(&self) -> PathBuf {
        self.root.join(SNAPSHOTS)
    }

    /// Syncs everything written so far to disk.
    ///
    /// # Errors
    /// When the disk fails.
    pub fn sync(&self) -> io::Result<()> {
        let root = File::open(&self.root)?;
        Ok(rustix::fs::syncfs(root)?)
    }

    /// The path of the directory `name`, whether or not it exists.
    pub fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    /// The bytes in the directory.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn usage(&self, name: &str) -> io::Result<u64> {
        match &self.volume {
            Some(volume) => volume.usage(name),
            None => tree::bytes(&self.path(name)),
        }
    }

    /// Deletes the directory and its contents. Idempotent.
    ///
    /// # Errors
    /// When a file remains.
    pub fn remove(&self, name: &str) -> io::Result<()> {
        self.remove_at(&self.path(name))
    }

    /// Like [`Disk::remove`], for a directory that [`Disk::keep`] made.
    ///
    /// # Errors
    /// When a file remains.
    pub(crate) fn remove_at(&self, path: &Path) -> io::Result<()> {
        let gone = match &self.volume {
            Some(volume) => btrfs::remove(path).inspect(|()| volume.clean_if_tight()),
            None => fs::remove_dir_all(path),
        };
        match gone {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Changes a place ([`Disk::make_place`]) although its team's quota is used up: any change, also a removal, reserves a few
    /// bytes in the place. The place no longer counts against the quota then, so use it only for a place that is removed, or
    /// whose sandbox resumes.
    ///
    /// # Errors
    /// That of the change.
    pub fn past_quota<T>(&self, place: &Path, change: impl Fn() -> io::Result<T>) -> io::Result<T> {
        match (&self.volume, change()) {
            (Some(volume), Err(error)) if error.kind() == io::ErrorKind::QuotaExceeded => {
                volume.release(place)?;
                change()
            }
            (_, changed) => changed,
        }
    }

    /// The names of all directories.
    ///
    /// # Errors
    /// When the disk cannot be read.
    pub fn names(&self) -> io::Result<Vec<String>> {
        let entries = fs::read_dir(&self.root)?;
        let names: io::Result<Vec<String>> = entries
            .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
            .collect();
        // Directories that belong to no sandbox start with a dot.
        Ok(names?.into_iter().filter(|n| !n.starts_with('.')).collect())
    }

    /// Unmounts the disk, unless sandboxes run on it.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn close(&self, in_use: bool) -> io::Result<()> {
        if self.volume.is_some() && !in_use {
            image::unmount(&self.root)
        } else {
            Ok(())
        }
    }
}

/// The directory of snapshots of the installation in `data`.
pub fn snapshots(data: &Path) -> PathBuf {
    data.join(DISK).join(SNAPSHOTS)
}

#[cfg(test)]
mod tests;
