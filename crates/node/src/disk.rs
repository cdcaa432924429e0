//! What sandboxes write: one bounded directory each.
//!
//! The bound is a btrfs quota. A file in the data directory is formatted and mounted, with all its
//! space taken in advance: a sandbox that fills its share meets an error of its own, and never a
//! full disk of the machine. A file on btrfs, too: subvolumes of one file system number their files
//! each from the same beginning, and in an overlay of two of them different files would have one
//! number. gVisor tells files apart by it. Where btrfs cannot be had, directories are plain and
//! whoever writes more is ended soon after, which [`Disk::describe`] says.

mod btrfs;
mod image;

use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use shoal_core::driver::Owner;
use shoal_core::id::TeamId;
use shoal_core::resources::Mib;

pub use self::btrfs::Room;

/// The directory's name in the data directory.
const DISK: &str = "disk";
/// What is kept of sandboxes that rest, by their ids.
const PAUSED: &str = ".paused";
/// What is kept for others to start from, by its id.
const SNAPSHOTS: &str = ".snapshots";

/// How long whoever finds no room waits for what was removed before.
const GIVEN_BACK: Duration = Duration::from_secs(2);

/// The part of the disk that is kept for the file system, and the most that is, in MiB.
const RESERVE_PART: u64 = 10;
const RESERVE_MOST: u64 = 4 << 10;

/// What btrfs takes for its own trees at once, twice: this part of a disk, and at most so many MiB, which
/// are more on a disk that is larger than that.
const TREES_PART: u64 = 10;
const TREES_MOST: (u64, u64) = (256, 1024);
const LARGE: u64 = 50 << 10;

/// How the disk of sandboxes is had.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum DiskConfig {
    /// btrfs when it can be had, else plain directories.
    #[default]
    Auto,
    /// btrfs in a file of this size.
    Btrfs {
        /// The size of the file; a share of the free space when none is given.
        size: Option<Mib>,
    },
    /// Plain directories.
    Plain,
}

/// The directories of this installation's sandboxes.
#[derive(Debug)]
pub struct Disk {
    root: PathBuf,
    /// What is mounted at `root`; it is a plain directory when there is none.
    volume: Option<btrfs::Volume>,
}

impl Disk {
    /// Opens the disk below `data`, making it when there is none.
    ///
    /// # Errors
    /// When btrfs was asked for and cannot be had, or there is no space; says what to do.
    pub fn open(data: &Path, config: &DiskConfig) -> io::Result<Self> {
        let disk = Self::set_up(data, config)?;
        // Root of a sandbox may leave programs there that run as root of the machine.
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
                tracing::warn!(%error, "no btrfs: a sandbox that writes more than its share is ended soon after, not stopped from it");
                Ok(Self { root, volume: None })
            }
            Err(error) => Err(error),
        }
    }

    /// How a sandbox's share is bounded, for people.
    pub fn describe(&self) -> &'static str {
        match &self.volume {
            Some(volume) if volume.groups().is_none() => {
                "btrfs quota, in a file of fixed size; sums of teams need Linux 6.7"
            }
            Some(_) => "btrfs quota, in a file of fixed size",
            None => "plain directories: a sandbox that writes more is ended within seconds",
        }
    }

    /// Whether the kernel itself keeps a sandbox within its share.
    pub fn is_bounded(&self) -> bool {
        self.volume.is_some()
    }

    /// Makes an empty directory that holds at most `limit`.
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

    /// Makes a directory that holds what `source`, which [`Disk::keep`] has made, does, and at most
    /// `limit` beside.
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
            None => copy(source, &self.path(name)),
        }
    }

    /// Keeps what the directory called `name` holds now at `target`, which does not exist and is on
    /// this disk.
    ///
    /// # Errors
    /// When the disk is full.
    pub fn keep(&self, name: &str, target: &Path) -> io::Result<()> {
        match &self.volume {
            Some(_) => btrfs::snapshot(&self.path(name), target),
            None => {
                // Half a copy is never met under its name.
                let part = target.with_extension("part");
                self.remove_at(&part)?;
                copy(&self.path(name), &part)?;
                fs::rename(part, target)
            }
        }
    }

    /// Makes an empty directory at `path`, on this disk. What is made in it is counted for `owner`, whom
    /// nobody has been asked for where there is none.
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

    /// The group in which what a team holds is counted, where it is.
    fn group(&self, owner: Owner) -> io::Result<Option<btrfs::Group>> {
        let groups = self.volume.as_ref().and_then(btrfs::Volume::groups);
        groups.map(|groups| groups.ensure(owner)).transpose()
    }

    /// Whether a team can hold more. What was removed a moment ago is waited for, a little.
    ///
    /// # Errors
    /// When that cannot be read.
    pub fn room(&self, owner: Owner) -> io::Result<Room> {
        let groups = self.volume.as_ref().and_then(btrfs::Volume::groups);
        let Some(groups) = groups else {
            return Ok(Room::Some);
        };
        let room = groups.room(owner)?;
        if room == Room::Some {
            return Ok(room);
        }
        // The kernel gives back what a removed subvolume had when a transaction has ended.
        self.sync()?;
        let end = Instant::now() + GIVEN_BACK;
        loop {
            let room = groups.room(owner)?;
            if room == Room::Some || Instant::now() >= end {
                return Ok(room);
            }
            std::thread::sleep(GIVEN_BACK / 40);
        }
    }

    /// What a team holds, in bytes, where that is counted.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn used(&self, team: TeamId) -> io::Result<Option<u64>> {
        let groups = self.volume.as_ref().and_then(btrfs::Volume::groups);
        groups.map(|groups| groups.used(team)).transpose()
    }

    /// Counts the directory called `name` for another team.
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

    /// What all sandboxes have together; none where that is not bounded.
    pub fn size(&self) -> Option<Mib> {
        self.volume.as_ref()?;
        usable(&self.root).ok()
    }

    /// Makes an empty directory at `path`, on this disk, of the kind that [`Disk::keep`] makes.
    ///
    /// # Errors
    /// When it exists, or the disk is full.
    pub fn make_at(&self, path: &Path) -> io::Result<()> {
        match &self.volume {
            Some(_) => btrfs::make(path),
            None => fs::create_dir(path),
        }
    }

    /// How [`Disk::keep`] keeps, for people.
    pub fn keeps_by(&self) -> &'static str {
        match &self.volume {
            Some(_) => "btrfs snapshot: no byte is copied",
            None => "a copy, of references where the file system has them",
        }
    }

    /// Puts what was kept at `kept` in the place of the directory called `name`.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn put_back(&self, kept: &Path, name: &str) -> io::Result<()> {
        self.remove(name)?;
        fs::rename(kept, self.path(name))
    }

    /// Where what is saved of sandboxes lies: beside what they write, because only there it can be
    /// kept without a copy.
    pub fn paused(&self) -> PathBuf {
        self.root.join(PAUSED)
    }

    /// Where snapshots lie.
    pub fn snapshots(&self) -> PathBuf {
        self.root.join(SNAPSHOTS)
    }

    /// Makes everything that was written before survive the machine.
    ///
    /// # Errors
    /// When the disk fails.
    pub fn sync(&self) -> io::Result<()> {
        let root = File::open(&self.root)?;
        Ok(rustix::fs::syncfs(root)?)
    }

    /// The directory called `name`, made or not.
    pub fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    /// Bytes in the directory.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn usage(&self, name: &str) -> io::Result<u64> {
        match &self.volume {
            Some(volume) => volume.usage(name),
            None => tree_bytes(&self.path(name)),
        }
    }

    /// Takes the directory away with all that is in it. Success when there is none.
    ///
    /// # Errors
    /// When something stays.
    pub fn remove(&self, name: &str) -> io::Result<()> {
        self.remove_at(&self.path(name))
    }

    /// The same for what [`Disk::keep`] has made.
    ///
    /// # Errors
    /// When something stays.
    pub(crate) fn remove_at(&self, path: &Path) -> io::Result<()> {
        let gone = match &self.volume {
            Some(_) => btrfs::remove(path),
            None => fs::remove_dir_all(path),
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
    pub fn names(&self) -> io::Result<Vec<String>> {
        let entries = fs::read_dir(&self.root)?;
        let names: io::Result<Vec<String>> = entries
            .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
            .collect();
        // No sandbox is called like what is beside them.
        Ok(names?.into_iter().filter(|n| !n.starts_with('.')).collect())
    }

    /// Unmounts what [`Disk::open`] mounted, unless sandboxes run on it.
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

/// What sandboxes may have together of the disk that is mounted at `root`: the rest is for the file
/// system itself, so that it is never met that nothing can be removed because nothing can be written.
fn usable(root: &Path) -> io::Result<Mib> {
    let found = rustix::fs::statvfs(root)?;
    let all = found.f_blocks.saturating_mul(found.f_frsize) >> 20;
    let most = if all > LARGE {
        TREES_MOST.1
    } else {
        TREES_MOST.0
    };
    let trees = (all / TREES_PART).min(most) * 2;
    let kept = trees + (all / RESERVE_PART).min(RESERVE_MOST);
    Ok(Mib(u32::try_from(all - kept).unwrap_or(u32::MAX)))
}

/// Where the snapshots of the installation in `data` lie.
pub fn snapshots(data: &Path) -> PathBuf {
    data.join(DISK).join(SNAPSHOTS)
}

/// Copies a tree with all that it has: owners, attributes, links, holes. By a program of the
/// system's, which shares bytes where the file system can.
fn copy(source: &Path, target: &Path) -> io::Result<()> {
    let output = Command::new("cp")
        .args(["--archive", "--reflink=auto", "--no-target-directory", "--"])
        .args([source, target])
        .output()?;
    if output.status.success() {
        return Ok(());
    }
    // What is half copied is not there.
    let _ = fs::remove_dir_all(target);
    let said = String::from_utf8_lossy(&output.stderr);
    if said.contains("No space left") || said.contains("quota exceeded") {
        return Err(io::ErrorKind::StorageFull.into());
    }
    let said: String = said.chars().take(400).collect();
    Err(io::Error::other(format!("cp failed: {}", said.trim())))
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
