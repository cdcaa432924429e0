//! Subvolumes with quotas.

#![expect(
    unsafe_code,
    reason = "btrfs is controlled through ioctls that no maintained library wraps"
)]
#![expect(
    unreachable_pub,
    reason = "the macro that makes the calls makes them public"
)]

mod groups;

use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::errno::Errno;

pub(super) use self::groups::Group;
pub use self::groups::Room;
use self::groups::{Groups, Inherit};

/// The kernel's letter for btrfs ioctls.
const MAGIC: u8 = 0x94;
/// Bytes of a name in [`VolumeArgs`], with its terminating zero.
const NAME_BYTES: usize = 4088;
/// Bytes of a name in [`SnapshotArgs`], with its terminating zero.
const SNAPSHOT_NAME_BYTES: usize = 4040;
/// The size of an empty subvolume: one node, counted from its first transaction on.
const NODE: u64 = 16 << 10;
/// The inode number of a subvolume's root.
const ROOT_INODE: u64 = 256;
/// Quota commands: full accounting, and the cheaper simple accounting of Linux 6.7.
const QUOTA_ENABLE: u64 = 1;
const QUOTA_ENABLE_SIMPLE: u64 = 4;
/// Limits what a subvolume references.
const LIMIT_REFERENCED: u64 = 1;
/// The new subvolume joins the named quota groups.
const INHERIT: u64 = 1 << 2;

/// `btrfs_ioctl_vol_args`.
#[repr(C)]
pub struct VolumeArgs {
    fd: i64,
    name: [u8; NAME_BYTES],
}

/// `btrfs_ioctl_quota_ctl_args`.
#[repr(C)]
pub struct QuotaArgs {
    command: u64,
    status: u64,
}

/// `btrfs_ioctl_qgroup_limit_args`; group 0 is that of the descriptor's own subvolume.
#[repr(C)]
pub struct LimitArgs {
    group: u64,
    flags: u64,
    max_referenced: u64,
    max_exclusive: u64,
    reserved_referenced: u64,
    reserved_exclusive: u64,
}

/// `btrfs_ioctl_ino_lookup_args`.
#[repr(C)]
pub struct LookupArgs {
    tree: u64,
    object: u64,
    name: [u8; 4080],
}

/// `btrfs_ioctl_fs_info_args`.
#[repr(C)]
pub struct FsInfoArgs {
    max_id: u64,
    devices: u64,
    fsid: [u8; 16],
    rest: [u8; 992],
}

/// `btrfs_ioctl_vol_args_v2`: a subvolume, or a snapshot of the one behind `fd`.
#[repr(C)]
pub struct SnapshotArgs {
    fd: i64,
    transaction: u64,
    flags: u64,
    inherit_bytes: u64,
    inherit: *const Inherit,
    unused: [u64; 2],
    name: [u8; SNAPSHOT_NAME_BYTES],
}

nix::ioctl_none!(sync_and_clean, MAGIC, 8);
nix::ioctl_write_ptr!(subvolume_create, MAGIC, 14, VolumeArgs);
nix::ioctl_write_ptr!(snapshot_create, MAGIC, 23, SnapshotArgs);
nix::ioctl_write_ptr!(subvolume_create_in, MAGIC, 24, SnapshotArgs);
nix::ioctl_write_ptr!(snapshot_destroy, MAGIC, 15, VolumeArgs);
nix::ioctl_readwrite!(ino_lookup, MAGIC, 18, LookupArgs);
nix::ioctl_read!(fs_info, MAGIC, 31, FsInfoArgs);
nix::ioctl_readwrite!(quota_control, MAGIC, 40, QuotaArgs);
nix::ioctl_read!(quota_limit, MAGIC, 43, LimitArgs);

/// A directory on btrfs whose subvolumes have quotas.
#[derive(Debug)]
pub(super) struct Volume {
    root: PathBuf,
    /// The directory of the kernel's counters.
    counters: PathBuf,
    /// The teams' groups. `None` where the kernel has only full accounting, which is slow and does
    /// not add up shared data.
    groups: Option<Groups>,
    /// Whether a thread frees the space of deleted subvolumes.
    cleaning: Arc<AtomicBool>,
}

impl Volume {
    /// Opens `root` and enables quotas. All teams together hold at most `all_bytes`.
    ///
    /// # Errors
    /// When the kernel does not support quotas.
    pub(super) fn open(root: &Path, all_bytes: u64) -> io::Result<Self> {
        let directory = File::open(root)?;
        enable_quota(&directory)?;
        let mut info = FsInfoArgs {
            max_id: 0,
            devices: 0,
            fsid: [0; 16],
            rest: [0; 992],
        };
        // SAFETY: the descriptor is open and `info` has the size that the kernel fills.
        unsafe { fs_info(directory.as_raw_fd(), &raw mut info) }?;
        let id = hex::encode(info.fsid);
        let uuid = [&id[..8], &id[8..12], &id[12..16], &id[16..20], &id[20..]].join("-");
        let counters = Path::new("/sys/fs/btrfs").join(uuid).join("qgroups");
        let mode = fs::read_to_string(counters.join("mode")).unwrap_or_default();
        let groups = match mode.trim() {
            "squota" => Some(Groups::open(root, &counters, all_bytes)?),
            _ => None,
        };
        Ok(Self {
            root: root.to_owned(),
            counters,
            groups,
            cleaning: Arc::default(),
        })
    }

    /// Writes everything to disk, and has the kernel free the space of deleted subvolumes now. By
    /// itself it does that twice a minute; `syncfs` does not make it.
    pub(super) fn clean(&self) -> io::Result<()> {
        clean(&self.root)
    }

    /// Starts [`Volume::clean`] if much of the disk is in use: a program that writes to a full disk
    /// does not wait, as a create does. Does nothing while an earlier call runs.
    pub(super) fn clean_if_tight(&self) {
        let is_tight = self.groups.as_ref().is_some_and(Groups::are_half_full);
        if !is_tight || self.cleaning.swap(true, Ordering::AcqRel) {
            return;
        }
        let (root, cleaning) = (self.root.clone(), self.cleaning.clone());
        std::thread::spawn(move || {
            if let Err(error) = clean(&root) {
                tracing::debug!(%error, "the space of deleted files is freed later");
            }
            cleaning.store(false, Ordering::Release);
        });
    }

    /// The teams' groups, if the kernel supports them.
    pub(super) fn groups(&self) -> Option<&Groups> {
        self.groups.as_ref()
    }

    pub(super) fn create(
        &self,
        name: &str,
        limit_bytes: u64,
        group: Option<Group>,
    ) -> io::Result<()> {
        make_in(&self.root.join(name), group)?;
        self.limit(name, limit_bytes)
    }

    /// Limits a new subvolume; deletes it when that fails.
    fn limit(&self, name: &str, limit_bytes: u64) -> io::Result<()> {
        let mut limit = LimitArgs {
            group: 0,
            flags: LIMIT_REFERENCED,
            max_referenced: limit_bytes,
            max_exclusive: 0,
            reserved_referenced: 0,
            reserved_exclusive: 0,
        };
        let subvolume = File::open(self.root.join(name))?;
        // SAFETY: the descriptor is open and `limit` has the size that the kernel reads.
        let limited = unsafe { quota_limit(subvolume.as_raw_fd(), &raw mut limit) };
        if let Err(errno) = limited {
            remove(&self.root.join(name))?;
            return Err(errno.into());
        }
        Ok(())
    }

    /// Creates `name` as a snapshot of the subvolume at `source` and limits later
    /// writes to it. No byte is copied.
    pub(super) fn create_from(
        &self,
        source: &Path,
        name: &str,
        limit_bytes: u64,
        group: Option<Group>,
    ) -> io::Result<()> {
        snapshot_in(source, &self.root.join(name), group)?;
        self.limit(name, limit_bytes)
    }

    /// Moves a subvolume from the group `from` to the group `to`.
    pub(super) fn move_to(&self, name: &str, from: Option<Group>, to: Group) -> io::Result<()> {
        let Some(groups) = &self.groups else {
            return Ok(());
        };
        let tree = self.tree(name)?;
        if let Some(from) = from.filter(|from| *from != to) {
            groups.assign(tree, from, false)?;
        }
        groups.assign(tree, to, true)
    }

    /// Removes the subvolume at `path` from the groups of all teams.
    pub(super) fn release(&self, path: &Path) -> io::Result<()> {
        match &self.groups {
            Some(groups) => groups.release(self.tree(path)?),
            None => Ok(()),
        }
    }

    pub(super) fn usage(&self, name: &str) -> io::Result<u64> {
        let group = self.counters.join(format!("0_{}", self.tree(name)?));
        // New writes are only reserved until the next transaction counts them, up to 30 seconds
        // later.
        let reserved = counter(&group, "rsv_data")?;
        Ok(counter(&group, "referenced")?.max(NODE) + reserved)
    }

    /// The id of a subvolume, by its name or path.
    fn tree(&self, subvolume: impl AsRef<Path>) -> io::Result<u64> {
        let subvolume = File::open(self.root.join(subvolume))?;
        let mut args = LookupArgs {
            tree: 0,
            object: ROOT_INODE,
            name: [0; 4080],
        };
        // SAFETY: the descriptor is open and `args` has the size that the kernel fills.
        unsafe { ino_lookup(subvolume.as_raw_fd(), &raw mut args) }?;
        Ok(args.tree)
    }
}

fn clean(root: &Path) -> io::Result<()> {
    let root = File::open(root)?;
    // SAFETY: the descriptor is open, and the call takes nothing else.
    unsafe { sync_and_clean(root.as_raw_fd()) }?;
    Ok(())
}

/// A counter of a group, in bytes.
fn counter(group: &Path, name: &str) -> io::Result<u64> {
    let text = fs::read_to_string(group.join(name))?;
    text.trim().parse().map_err(io::Error::other)
}

/// Creates an empty subvolume at `path`.
pub(super) fn make(path: &Path) -> io::Result<()> {
    let (parent, name) = split(path)?;
    let args = volume_args(name)?;
    // SAFETY: the descriptor is open and `args` holds a name that ends in a zero.
    unsafe { subvolume_create(parent.as_raw_fd(), &raw const args) }?;
    Ok(())
}

/// Like [`make`], in a quota group.
pub(super) fn make_in(path: &Path, group: Option<Group>) -> io::Result<()> {
    let Some(inherit) = group.map(Inherit::of) else {
        return make(path);
    };
    let (parent, name) = split(path)?;
    let args = snapshot_args(0, name, Some(&inherit));
    // SAFETY: the descriptor is open, `args` holds a name that ends in a zero, and what it points to
    // lives until the call has returned.
    unsafe { subvolume_create_in(parent.as_raw_fd(), &raw const args) }?;
    Ok(())
}

/// Creates `target` as a snapshot of the subvolume at `source`, with everything written before. No
/// byte is copied. It counts in the quota group of its parent directory.
pub(super) fn snapshot(source: &Path, target: &Path) -> io::Result<()> {
    snapshot_in(source, target, None)
}

fn snapshot_in(source: &Path, target: &Path, group: Option<Group>) -> io::Result<()> {
    let (parent, name) = split(target)?;
    let source = File::open(source)?;
    let inherit = group.map(Inherit::of);
    let args = snapshot_args(source.as_raw_fd().into(), name, inherit.as_ref());
    // SAFETY: both descriptors are open, `args` holds a name that ends in a zero, and what it points
    // to lives until the call has returned.
    unsafe { snapshot_create(parent.as_raw_fd(), &raw const args) }?;
    Ok(())
}

fn snapshot_args(fd: i64, name: &str, inherit: Option<&Inherit>) -> SnapshotArgs {
    let mut args = SnapshotArgs {
        fd,
        transaction: 0,
        flags: inherit.map_or(0, |_| INHERIT),
        inherit_bytes: inherit.map_or(0, |_| size_of::<Inherit>() as u64),
        inherit: inherit.map_or(std::ptr::null(), std::ptr::from_ref),
        unused: [0; 2],
        name: [0; SNAPSHOT_NAME_BYTES],
    };
    args.name[..name.len()].copy_from_slice(name.as_bytes());
    args
}

/// Deletes the subvolume at `path` and its contents.
pub(super) fn remove(path: &Path) -> io::Result<()> {
    let (parent, name) = split(path)?;
    let args = volume_args(name)?;
    // SAFETY: the descriptor is open and `args` holds a name that ends in a zero.
    match unsafe { snapshot_destroy(parent.as_raw_fd(), &raw const args) } {
        // A plain directory, made by something else, is deleted too.
        Err(Errno::EINVAL | Errno::ENOTTY) => fs::remove_dir_all(path),
        Err(errno) => Err(errno.into()),
        Ok(_) => Ok(()),
    }
}

/// The parent directory of `path`, and its name there.
fn split(path: &Path) -> io::Result<(File, &str)> {
    let name = path.file_name().and_then(|name| name.to_str());
    match (path.parent(), name) {
        (Some(parent), Some(name)) if name.len() <= 255 => Ok((File::open(parent)?, name)),
        _ => Err(io::ErrorKind::InvalidInput.into()),
    }
}

fn enable_quota(directory: &File) -> io::Result<()> {
    for command in [QUOTA_ENABLE_SIMPLE, QUOTA_ENABLE] {
        let mut args = QuotaArgs { command, status: 0 };
        // SAFETY: the descriptor is open and `args` has the size that the kernel reads.
        match unsafe { quota_control(directory.as_raw_fd(), &raw mut args) } {
            // Quotas are already enabled, in either mode.
            Ok(_) | Err(Errno::EEXIST) => return Ok(()),
            Err(Errno::EINVAL) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Err(io::Error::other("the kernel has no btrfs quotas"))
}

fn volume_args(name: &str) -> io::Result<VolumeArgs> {
    let mut args = VolumeArgs {
        fd: 0,
        name: [0; NAME_BYTES],
    };
    let bytes = name.as_bytes();
    if bytes.is_empty() || bytes.len() > 255 || bytes.contains(&b'/') || bytes.contains(&0) {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "not a name of a subvolume",
        ));
    }
    args.name[..bytes.len()].copy_from_slice(bytes);
    Ok(args)
}
