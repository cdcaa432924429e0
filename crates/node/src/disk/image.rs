//! A file system in a file.

use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{FallocateFlags, fallocate};
use nix::mount::{MntFlags, umount2};
use nix::sys::statvfs::statvfs;
use rustix::fs::{IFlags, ioctl_setflags};
use shoal_core::resources::Mib;

use crate::modes;
use crate::rootfs::mounts_below;

/// The size by default: a quarter of the free space, within these bounds.
const LEAST: u64 = 1 << 30;
const MOST: u64 = 32 << 30;

/// No data checksums: saved files have their own digests. No discards: freed space must stay
/// reserved for the file. No setuid programs or devices: sandboxes write these files.
const OPTIONS: &str = "noatime,nodiscard,nodatasum,nosuid,nodev";

/// How long files on the mount may stay open by accident: between fork and exec, a new child
/// process holds all descriptors of this process.
const BUSY: Duration = Duration::from_secs(2);

/// How often `mkfs.btrfs` is started while other file systems come and go, and the pause between.
const FORMAT_ATTEMPTS: u32 = 10;
const FORMAT_PAUSE: Duration = Duration::from_millis(100);
/// Its message in that case.
const MOUNTS_CHANGED: &str = "cannot check mount status";

/// Whether something is mounted at `path`.
///
/// # Errors
/// When `/proc` cannot be read.
pub(super) fn is_mounted(path: &Path) -> io::Result<bool> {
    let path = path.canonicalize()?;
    Ok(mounts_below(&path)?.contains(&path))
}

/// Whether `error` says that there is no space.
pub(super) fn is_full(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
    )
}

/// Mounts the file system in `file` at `point`, and creates it if it does not exist. Succeeds if it
/// is already mounted: the mount outlives the server, like the sandboxes on it.
///
/// # Errors
/// When there is no space, no `mkfs.btrfs`, or no btrfs in the kernel.
pub(super) fn mount(file: &Path, point: &Path, size: Option<Mib>) -> io::Result<()> {
    if is_mounted(point)? {
        return Ok(());
    }
    if !file.exists() {
        make(file, size)?;
    }
    let attach = || {
        run(Command::new("losetup")
            .args(["--find", "--show", "--direct-io=on"])
            .arg(file))
    };
    let mount = |device: &str| {
        run(Command::new("mount")
            .args(["-t", "btrfs", "-o", OPTIONS, device])
            .arg(point))
    };
    // Another device of the same file would be a second file system that overwrites the first.
    for device in still_attached(file)? {
        if mount(&device).is_ok() {
            return Ok(());
        }
        // Its last user has gone meanwhile, and the device with it.
        if attached(file)?.contains(&device) {
            let text = format!("{device} of {} is in use", file.display());
            return Err(io::Error::new(io::ErrorKind::ResourceBusy, text));
        }
    }
    let device = attach()?;
    let device = device.trim();
    let mounted = mount(device);
    // The device detaches by itself with its last user: the mount, or none if mounting failed.
    run(Command::new("losetup").args(["--detach", device]))?;
    mounted.map(|_| ())
}

/// Detaches the loop devices of `file`, which is not mounted here. One remains when a server is
/// killed between attaching and mounting it.
///
/// Returns the devices that are still in use: a mount namespace that was made while the file was
/// mounted has a copy of the mount, which keeps the file system alive.
fn still_attached(file: &Path) -> io::Result<Vec<String>> {
    for device in attached(file)? {
        // It may have lost its last user meanwhile.
        let _ = run(Command::new("losetup").args(["--detach", &device]));
    }
    attached(file)
}

fn attached(file: &Path) -> io::Result<Vec<String>> {
    let devices = run(Command::new("losetup")
        .args(["--noheadings", "--output", "NAME", "--associated"])
        .arg(file))?;
    Ok(devices.split_whitespace().map(str::to_owned).collect())
}

/// Unmounts `point`. Succeeds if nothing is mounted there.
///
/// # Errors
/// When the kernel refuses.
pub(super) fn unmount(point: &Path) -> io::Result<()> {
    if !is_mounted(point)? {
        return Ok(());
    }
    let end = Instant::now() + BUSY;
    loop {
        match umount2(point, MntFlags::empty()) {
            Err(Errno::EBUSY) if Instant::now() < end => std::thread::sleep(BUSY / 100),
            unmounted => return Ok(unmounted?),
        }
    }
}

/// Creates the file under another name and renames it, so that a partial file system is never
/// visible.
fn make(file: &Path, size: Option<Mib>) -> io::Result<()> {
    let beside = file.with_extension("new");
    let directory = file.parent().unwrap_or(Path::new("/"));
    let free = statvfs(directory)?;
    let free = free.blocks_available() * free.fragment_size();
    let bytes = size.map_or_else(|| (free / 4).clamp(LEAST, MOST), Mib::bytes);
    let made = allocate(&beside, bytes, free).and_then(|()| {
        // Without discards the file keeps the space just allocated.
        format(&beside)?;
        fs::rename(&beside, file)
    });
    if made.is_err() {
        // Report the first error.
        let _ = fs::remove_file(&beside);
    }
    made
}

/// Makes the file system. The program looks at all loop devices that are mounted, and gives up when one of them is
/// detached meanwhile.
fn format(file: &Path) -> io::Result<()> {
    let make = || {
        run(Command::new("mkfs.btrfs")
            .args(["--quiet", "--nodiscard"])
            .arg(file))
        .map(drop)
    };
    for _ in 1..FORMAT_ATTEMPTS {
        match make() {
            Err(error) if error.to_string().contains(MOUNTS_CHANGED) => {
                std::thread::sleep(FORMAT_PAUSE);
            }
            made => return made,
        }
    }
    make()
}

fn allocate(file: &Path, bytes: u64, free: u64) -> io::Result<()> {
    let full = || {
        let text = format!(
            "the disk of the sandboxes needs {} MiB at {}, and {} MiB are free: \
             free some, or set a smaller disk.size",
            bytes >> 20,
            file.display(),
            free >> 20,
        );
        io::Error::new(io::ErrorKind::StorageFull, text)
    };
    if bytes > free {
        return Err(full());
    }
    let opened = modes::create_file(file)?;
    // On btrfs only: with copy on write, each write would need space in addition to the allocated one.
    // Other file systems do not support the flag.
    let _ = ioctl_setflags(&opened, IFlags::NOCOW);
    let length = i64::try_from(bytes).map_err(io::Error::other)?;
    match fallocate(opened.as_fd(), FallocateFlags::empty(), 0, length) {
        Ok(()) => Ok(()),
        Err(Errno::ENOSPC) => Err(full()),
        // A file system that cannot allocate in advance gets a file that grows.
        Err(Errno::EOPNOTSUPP) => opened.set_len(bytes),
        Err(errno) => Err(errno.into()),
    }
}

fn run(command: &mut Command) -> io::Result<String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command
        .output()
        .map_err(|e| io::Error::new(e.kind(), format!("cannot run {program}: {e}")))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said: String = String::from_utf8_lossy(&output.stderr)
        .chars()
        .take(400)
        .collect();
    Err(io::Error::other(format!(
        "{program} failed: {}",
        said.trim()
    )))
}
