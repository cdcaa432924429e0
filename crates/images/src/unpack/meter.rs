//! Limits on unpacking, and the disk's free space.

use std::os::fd::BorrowedFd;

use rustix::fs::{StatVfs, fstatvfs};

use super::{Limits, UnpackError, Unpacked};

/// How many bytes are written between checks of the free space.
const BYTES_BETWEEN_LOOKS: u64 = 16 << 20;

/// How many members are created between checks of the free space.
const ENTRIES_BETWEEN_LOOKS: u64 = 1024;

/// Counts usage, and stops before the disk is full, which would stop running sandboxes.
pub struct Meter<'a> {
    disk: BorrowedFd<'a>,
    limits: &'a Limits,
    used: Unpacked,
    /// Bytes that may be written before the next check.
    bytes: u64,
    entries: u64,
}

impl<'a> Meter<'a> {
    /// Starts counting, with a check of the free space.
    pub fn new(disk: BorrowedFd<'a>, limits: &'a Limits) -> Result<Self, UnpackError> {
        let mut meter = Self {
            disk,
            limits,
            used: Unpacked::default(),
            bytes: 0,
            entries: 0,
        };
        meter.look()?;
        Ok(meter)
    }

    /// Counts one member.
    pub(super) fn entry(&mut self) -> Result<(), UnpackError> {
        self.used.entries += 1;
        if self.entries == 0 {
            self.look()?;
        }
        self.entries -= 1;
        Ok(())
    }

    /// Counts bytes before they are written.
    pub fn write(&mut self, bytes: u64) -> Result<(), UnpackError> {
        if self.bytes < bytes {
            self.look()?;
        }
        self.used.bytes = self.used.bytes.saturating_add(bytes);
        self.bytes = self.bytes.saturating_sub(bytes);
        Ok(())
    }

    /// The total usage.
    pub(super) fn used(&self) -> Unpacked {
        self.used
    }

    fn look(&mut self) -> Result<(), UnpackError> {
        let disk = fstatvfs(self.disk).map_err(|error| UnpackError::Io {
            action: "measure",
            path: "/".into(),
            source: error.into(),
        })?;
        let free = disk.f_bavail.saturating_mul(disk.f_frsize);
        let spare = free.saturating_sub(self.limits.reserve_bytes);
        if spare == 0 || inodes(&disk) <= self.limits.reserve_inodes {
            return Err(UnpackError::NoSpace);
        }
        self.bytes = spare.min(BYTES_BETWEEN_LOOKS);
        self.entries = ENTRIES_BETWEEN_LOOKS;
        Ok(())
    }
}

/// The free inodes. File systems that create inodes on demand report zero of zero.
fn inodes(disk: &StatVfs) -> u64 {
    if disk.f_files == 0 {
        u64::MAX
    } else {
        disk.f_favail
    }
}
