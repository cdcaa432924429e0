//! The quota groups of teams: one above each team's subvolumes, and one above all teams.
//!
//! The simple quotas of Linux 6.7 count a byte for the subvolume that wrote it, and thus for its
//! team, as long as anything references it. A snapshot therefore costs only later writes,
//! and the data of clones is included in the sum.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use parking_lot::Mutex;
use shoal_core::driver::Owner;
use shoal_core::id::TeamId;
use shoal_core::resources::Mib;

use super::{LIMIT_REFERENCED, LimitArgs, MAGIC, counter, quota_limit};

/// The position of the level in a group's number.
const LEVEL: u32 = 48;
/// The group of all teams.
const ALL: Group = Group(2 << LEVEL);
/// The value for "unlimited".
const NO_LIMIT: u64 = u64::MAX;
/// Less space than this is too little for a sandbox or a snapshot.
const LEAST: u64 = 4 << 20;

/// The number of a team's quota group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(in crate::disk) struct Group(u64);

impl Group {
    /// The group of a team; always the same.
    pub(in crate::disk) fn of(team: TeamId) -> Self {
        let digest = blake3::hash(team.to_string().as_bytes());
        let number = digest.as_bytes().iter().take(6);
        let number = number.fold(0, |number, byte| number << 8 | u64::from(*byte));
        Self(1 << LEVEL | number)
    }

    /// The group of a team with this directory in the counters.
    fn of_team_named(name: &str) -> Option<Self> {
        let number: u64 = name.strip_prefix("1_")?.parse().ok()?;
        Some(Self(1 << LEVEL | number))
    }

    /// Its directory in the counters.
    fn name(self) -> String {
        format!("{}_{}", self.0 >> LEVEL, self.0 & ((1 << LEVEL) - 1))
    }
}

/// `btrfs_qgroup_inherit` with one group.
#[repr(C)]
pub struct Inherit {
    flags: u64,
    groups: u64,
    copies: [u64; 2],
    limit: [u64; 5],
    group: u64,
}

impl Inherit {
    pub(super) fn of(group: Group) -> Self {
        Self {
            flags: 0,
            groups: 1,
            copies: [0; 2],
            limit: [0; 5],
            group: group.0,
        }
    }
}

/// `btrfs_ioctl_qgroup_assign_args`.
#[repr(C)]
pub struct AssignArgs {
    assign: u64,
    source: u64,
    target: u64,
}

/// `btrfs_ioctl_qgroup_create_args`.
#[repr(C)]
pub struct CreateArgs {
    create: u64,
    group: u64,
}

nix::ioctl_write_ptr!(group_assign, MAGIC, 41, AssignArgs);
nix::ioctl_write_ptr!(group_create, MAGIC, 42, CreateArgs);

/// The quota groups of a disk.
#[derive(Debug)]
pub(in crate::disk) struct Groups {
    root: PathBuf,
    counters: PathBuf,
    all_bytes: u64,
    /// The existing groups, with their limits.
    limits: Mutex<HashMap<Group, Option<Mib>>>,
}

impl Groups {
    pub(super) fn open(root: &Path, counters: &Path, all_bytes: u64) -> io::Result<Self> {
        let groups = Self {
            root: root.to_owned(),
            counters: counters.to_owned(),
            all_bytes,
            limits: Mutex::default(),
        };
        groups.create(ALL)?;
        groups.limit(ALL, Some(all_bytes))?;
        Ok(groups)
    }

    /// Returns the team's group, and creates or updates it to the team's current limit.
    pub(in crate::disk) fn ensure(&self, owner: Owner) -> io::Result<Group> {
        let group = Group::of(owner.team);
        let mut limits = self.limits.lock();
        match limits.get(&group) {
            Some(limit) if *limit == owner.disk => return Ok(group),
            Some(_) => {}
            None => {
                self.create(group)?;
                self.relate(group.0, ALL, true)?;
            }
        }
        self.limit(group, owner.disk.map(Mib::bytes))?;
        limits.insert(group, owner.disk);
        Ok(group)
    }

    /// The bytes that a team uses.
    pub(in crate::disk) fn used(&self, team: TeamId) -> io::Result<u64> {
        self.read(Group::of(team))
    }

    /// Whether a team can write more.
    pub(in crate::disk) fn room(&self, owner: Owner) -> io::Result<Room> {
        let group = self.ensure(owner)?;
        if let Some(limit) = owner.disk {
            let used = self.read(group)?;
            if used.saturating_add(LEAST) > limit.bytes() {
                return Ok(Room::TeamIsFull { used });
            }
        }
        let all = self.read(ALL)?;
        Ok(if all.saturating_add(LEAST) > self.all_bytes {
            Room::DiskIsFull
        } else {
            Room::Some
        })
    }

    /// Whether all teams together have written half of the disk.
    pub(super) fn are_half_full(&self) -> bool {
        self.read(ALL).is_ok_and(|all| all > self.all_bytes / 2)
    }

    /// Adds a subvolume to a group, or removes it.
    pub(super) fn assign(&self, tree: u64, group: Group, is: bool) -> io::Result<()> {
        self.relate(tree, group, is)
    }

    /// Removes a subvolume from the groups of all teams.
    pub(super) fn release(&self, tree: u64) -> io::Result<()> {
        for entry in std::fs::read_dir(&self.counters)? {
            let name = entry?.file_name();
            if let Some(group) = name.to_str().and_then(Group::of_team_named) {
                self.relate(tree, group, false)?;
            }
        }
        Ok(())
    }

    fn read(&self, group: Group) -> io::Result<u64> {
        let group = self.counters.join(group.name());
        if !group.exists() {
            // The team has never written anything.
            return Ok(0);
        }
        // New writes are only reserved until the next transaction counts them.
        Ok(counter(&group, "referenced")? + counter(&group, "rsv_data")?)
    }

    fn create(&self, group: Group) -> io::Result<()> {
        let root = File::open(&self.root)?;
        let args = CreateArgs {
            create: 1,
            group: group.0,
        };
        // SAFETY: the descriptor is open and `args` has the size that the kernel reads.
        match unsafe { group_create(root.as_raw_fd(), &raw const args) } {
            Ok(_) | Err(Errno::EEXIST) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    fn relate(&self, source: u64, target: Group, is: bool) -> io::Result<()> {
        let root = File::open(&self.root)?;
        let args = AssignArgs {
            assign: u64::from(is),
            source,
            target: target.0,
        };
        // SAFETY: the descriptor is open and `args` has the size that the kernel reads.
        match unsafe { group_assign(root.as_raw_fd(), &raw const args) } {
            // It is already so.
            Ok(_) | Err(Errno::EEXIST | Errno::ENOENT) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    fn limit(&self, group: Group, bytes: Option<u64>) -> io::Result<()> {
        let root = File::open(&self.root)?;
        let mut args = LimitArgs {
            group: group.0,
            flags: LIMIT_REFERENCED,
            max_referenced: bytes.unwrap_or(NO_LIMIT),
            max_exclusive: 0,
            reserved_referenced: 0,
            reserved_exclusive: 0,
        };
        // SAFETY: the descriptor is open and `args` has the size that the kernel reads.
        unsafe { quota_limit(root.as_raw_fd(), &raw mut args) }?;
        Ok(())
    }
}

/// Whether a team can write more to the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Room {
    /// It can.
    Some,
    /// The team's quota is used up.
    TeamIsFull {
        /// The quota in bytes.
        used: u64,
    },
    /// The quota of all teams together is used up.
    DiskIsFull,
}
