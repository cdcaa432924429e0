//! The part of the disk that sandboxes cannot use.

use std::io;
use std::path::Path;

use shoal_core::resources::Mib;

/// The share of the disk reserved for the file system, and its maximum in MiB.
const RESERVE_PART: u64 = 10;
const RESERVE_MOST: u64 = 4 << 10;

/// The immediate allocation of btrfs for its own trees, twice: this share of the disk, up to a
/// maximum in MiB. The maximum is higher on disks larger than [`LARGE`].
const TREES_PART: u64 = 10;
const TREES_MOST: (u64, u64) = (256, 1024);
const LARGE: u64 = 50 << 10;

/// The space for all sandboxes on the disk mounted at `root`. The rest is reserved for the file
/// system: a full btrfs could not even delete, because deleting writes.
pub(super) fn usable(root: &Path) -> io::Result<Mib> {
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
