//! Mounts that map the users on disk to other users of the machine.
//!
//! Layers are on disk once, with the image's users. A sandbox with a user namespace sees them
//! through a mount that adds the first user of its range. Nothing is copied or changed on disk, and
//! no two sandboxes share a user.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use nix::mount::{MntFlags, umount2};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::waitpid;
use nix::unistd::{Gid, Pid, Uid, setfsgid, setfsuid};
use rustix::fs::CWD;
use rustix::mount::{MoveMountFlags, OpenTreeFlags, move_mount, open_tree};
use rustix::thread::{CapabilitiesSecureBits, set_capabilities_secure_bits};

use super::USERS;

/// A user namespace that maps root to `first_user`, held open without a process in it.
#[derive(Debug)]
pub(super) struct UserNamespace(File);

impl UserNamespace {
    /// Creates the namespace.
    ///
    /// # Errors
    /// When the kernel refuses.
    #[expect(unsafe_code, reason = "no library has a safe call for clone")]
    pub(super) fn new(first_user: u32) -> io::Result<Self> {
        let flags = libc::CLONE_NEWUSER | libc::SIGCHLD;
        let null = std::ptr::null_mut::<libc::c_void>();
        let parent = std::process::id();
        // SAFETY: without CLONE_VM the child has its own memory; it only waits to be killed.
        let pid = unsafe { libc::syscall(libc::SYS_clone, flags, null, null, null, 0) };
        if pid == 0 {
            wait_to_be_ended(parent);
        }
        let pid = i32::try_from(pid).map_err(io::Error::other)?;
        if pid < 0 {
            return Err(io::Error::last_os_error());
        }
        let namespace = Self::map(pid, first_user);
        // The child is ours and not reaped yet, so its id cannot be reused. The results of both
        // calls do not matter.
        let child = Pid::from_raw(pid);
        let _ = kill(child, Signal::SIGKILL);
        let _ = waitpid(child, None);
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

/// The child's code. It must not outlive a server that is killed at this moment: it would hold the
/// server's locks and listener.
#[expect(
    unsafe_code,
    reason = "after a fork nothing but system calls is allowed"
)]
fn wait_to_be_ended(parent: u32) -> ! {
    // SAFETY: system calls on numbers, which are safe after a fork. The descriptors are the child's
    // own copies, and no other code of this program runs in it.
    unsafe {
        libc::syscall(libc::SYS_close_range, 0, libc::c_uint::MAX, 0);
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        // A parent that died before this call sends no signal.
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
    /// Mounts `source` at `point`, which is created, with the mapping of `users`.
    ///
    /// # Errors
    /// When the kernel refuses, as it does for file systems without ID mapping.
    pub(super) fn mount(source: &Path, point: &Path, users: &UserNamespace) -> io::Result<Self> {
        fs::create_dir(point)?;
        let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
        let tree = open_tree(CWD, source, flags)?;
        map_users(&tree, users)?;
        let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
        move_mount(&tree, c"", CWD, point, flags)?;
        Ok(Self(point.to_owned()))
    }
}

/// Applies the mapping of `users` to the mount `tree`, which is not attached yet.
#[expect(unsafe_code, reason = "no library has a safe call for mount_setattr")]
fn map_users(tree: &OwnedFd, users: &UserNamespace) -> io::Result<()> {
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
    Ok(())
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // A mount that remains is found and unmounted with the sandbox's directory.
        let _ = umount2(&self.0, MntFlags::MNT_DETACH);
        let _ = fs::remove_dir(&self.0);
    }
}

/// Runs `work` on a separate thread that creates files as `user` but keeps all capabilities.
///
/// An overlay creates its work directory, and later its copies, as the user who mounted it. The
/// machine's root has no mapping in a mapped mount, and could create nothing.
///
/// # Errors When the kernel refuses, and the errors of `work`.
pub(super) fn as_user(user: u32, work: impl FnOnce() -> io::Result<()> + Send) -> io::Result<()> {
    std::thread::scope(|scope| {
        let thread = scope.spawn(move || {
            // These calls change only the calling thread, which ends with `work`.
            set_capabilities_secure_bits(CapabilitiesSecureBits::NO_SETUID_FIXUP)?;
            setfsgid(Gid::from_raw(user));
            setfsuid(Uid::from_raw(user));
            work()
        });
        thread
            .join()
            .map_err(|_| io::Error::other("a thread panicked"))?
    })
}
