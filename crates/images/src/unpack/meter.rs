//! What unpacking has used, and what is left on the disk.

use std::os::fd::BorrowedFd;

use rustix::fs::{StatVfs, fstatvfs};

use super::{Limits, UnpackError, Unpacked};

/// How many bytes may be written before the disk is asked again what is left.
const BYTES_BETWEEN_LOOKS: u64 = 16 << 20;

/// How many members may be made before the disk is asked again.
const ENTRIES_BETWEEN_LOOKS: u64 = 1024;

/// Counts, and stops before the disk is full: a disk that is full stops the sandboxes that run.
pub struct Meter<'a> {
    disk: BorrowedFd<'a>,
    limits: &'a Limits,
    used: Unpacked,
    /// What may still be written before the next look.
    bytes: u64,
    entries: u64,
}

impl<'a> Meter<'a> {
    /// Begins to count, with a look at the disk.
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

    /// Asks leave to write so many bytes.
    pub fn write(&mut self, bytes: u64) -> Result<(), UnpackError> {
        if self.bytes < bytes {
            self.look()?;
        }
        self.used.bytes = self.used.bytes.saturating_add(bytes);
        self.bytes = self.bytes.saturating_sub(bytes);
        Ok(())
    }

    /// What was used in all.
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

/// Inodes that are free; file systems that make them as they need them say zero of zero.
fn inodes(disk: &StatVfs) -> u64 {
    if disk.f_files == 0 {
        u64::MAX
    } else {
        disk.f_favail
    }
}
