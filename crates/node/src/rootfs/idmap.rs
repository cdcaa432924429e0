//! Mounts in which the users on disk are other users of the machine.
//!
//! Layers are on disk once, with the users that the image gave them. A sandbox with a user
//! namespace sees them through a mount that adds the first user of its range, so nothing is
//! copied or changed on disk, and two sandboxes share no user.

#![expect(
    unsafe_code,
    reason = "the calls for mapped mounts have no wrapper in the libraries at hand"
)]

use std::ffi::CString;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use nix::mount::{MntFlags, umount2};

use super::USERS;

/// A user namespace that maps root to `first_user`, kept open without a process in it.
#[derive(Debug)]
pub(super) struct UserNamespace(File);

impl UserNamespace {
    /// Makes one.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub(super) fn new(first_user: u32) -> io::Result<Self> {
        let flags = libc::CLONE_NEWUSER | libc::SIGCHLD;
        let null = std::ptr::null_mut::<libc::c_void>();
        let parent = std::process::id();
        // SAFETY: without CLONE_VM the child has memory of its own; it only waits to be ended.
        let pid = unsafe { libc::syscall(libc::SYS_clone, flags, null, null, null, 0) };
        if pid == 0 {
            wait_to_be_ended(parent);
        }
        let pid = i32::try_from(pid).map_err(io::Error::other)?;
        if pid < 0 {
            return Err(io::Error::last_os_error());
        }
        let namespace = Self::map(pid, first_user);
        // SAFETY: the child is ours and has not been waited for.
        unsafe {
            libc::kill(pid, libc::SIGKILL);
            libc::waitpid(pid, std::ptr::null_mut(), 0);
        }
        namespace
    }

    fn map(pid: i32, first_user: u32) -> io::Result<Self> {
        let process = PathBuf::from(format!("/proc/{pid}"));
        let range = format!("0 {first_user} {USERS}\n");
        fs::write(process.join("uid_map"), &range)?;
        fs::write(process.join("gid_map"), &range)?;
        File::open(process.join("ns/user")).map(Self)
    }
}

/// What the child does. A server that is killed at this very moment must not leave it: it would
/// hold the locks and the listener of the server.
fn wait_to_be_ended(parent: u32) -> ! {
    // SAFETY: system calls on numbers, which are safe after a fork; the descriptors are the child's
    // own copies, and nothing of this program runs in it any more.
    unsafe {
        libc::syscall(libc::SYS_close_range, 0, libc::c_uint::MAX, 0);
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        // Whose parent ended before that is told of no end.
        while libc::getppid().unsigned_abs() == parent {
            libc::pause();
        }
        libc::_exit(0)
    }
}

/// A mapped mount; unmounted when dropped.
#[derive(Debug)]
pub(super) struct Mapped(PathBuf);

impl Mapped {
    /// Mounts `source` at `point`, which is made, with the users of `users`.
    ///
    /// # Errors
    /// When the kernel refuses, as it does for file systems that know no mapping.
    pub(super) fn mount(source: &Path, point: &Path, users: &UserNamespace) -> io::Result<Self> {
        fs::create_dir(point)?;
        let tree = open_tree(source)?;
        let attributes = libc::mount_attr {
            attr_set: libc::MOUNT_ATTR_IDMAP,
            attr_clr: 0,
            propagation: 0,
            userns_fd: u64::from(users.0.as_raw_fd().unsigned_abs()),
        };
        // SAFETY: the descriptors are open, the path is empty and ends in a zero, and the size is
        // that of the structure.
        let set = unsafe {
            libc::syscall(
                libc::SYS_mount_setattr,
                tree.as_raw_fd(),
                c"".as_ptr(),
                libc::AT_EMPTY_PATH,
                &raw const attributes,
                size_of::<libc::mount_attr>(),
            )
        };
        if set < 0 {
            return Err(io::Error::last_os_error());
        }
        let target = c_path(point)?;
        // SAFETY: both descriptors are valid and both paths end in a zero.
        let moved = unsafe {
            libc::syscall(
                libc::SYS_move_mount,
                tree.as_raw_fd(),
                c"".as_ptr(),
                libc::AT_FDCWD,
                target.as_ptr(),
                libc::MOVE_MOUNT_F_EMPTY_PATH,
            )
        };
        if moved < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Self(point.to_owned()))
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // What stays is found and unmounted with the sandbox's directory.
        let _ = umount2(&self.0, MntFlags::MNT_DETACH);
        let _ = fs::remove_dir(&self.0);
    }
}

/// Runs `work` on a thread of its own that owns what it makes as `user`, all its rights kept.
///
/// An overlay makes its scratch space, and later its copies, as whoever mounted it; root of the
/// machine is nobody in a mapped mount, and could make nothing.
///
/// # Errors
/// When the kernel refuses, and what `work` returns.
pub(super) fn as_user(user: u32, work: impl FnOnce() -> io::Result<()> + Send) -> io::Result<()> {
    std::thread::scope(|scope| {
        let thread = scope.spawn(move || {
            // SAFETY: three calls with integers, each for the calling thread alone, which ends
            // with `work`: the wrappers of the C library would change every thread.
            let kept = unsafe {
                let kept = libc::prctl(libc::PR_SET_SECUREBITS, libc::SECBIT_NO_SETUID_FIXUP);
                libc::syscall(libc::SYS_setfsgid, user);
                libc::syscall(libc::SYS_setfsuid, user);
                kept
            };
            if kept < 0 {
                return Err(io::Error::last_os_error());
            }
            work()
        });
        thread
            .join()
            .map_err(|_| io::Error::other("a thread panicked"))?
    })
}

fn open_tree(path: &Path) -> io::Result<OwnedFd> {
    let path = c_path(path)?;
    let flags = libc::OPEN_TREE_CLONE | libc::OPEN_TREE_CLOEXEC;
    // SAFETY: the path ends in a zero.
    let fd = unsafe { libc::syscall(libc::SYS_open_tree, libc::AT_FDCWD, path.as_ptr(), flags) };
    let fd = i32::try_from(fd).map_err(io::Error::other)?;
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is new and nobody else's.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn c_path(path: &Path) -> io::Result<CString> {
    CString::new(path.as_os_str().as_bytes()).map_err(io::Error::other)
}
