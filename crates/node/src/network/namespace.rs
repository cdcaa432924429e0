//! Network namespaces bound to files, so that they exist without a process in them.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::path::{Path, PathBuf};

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, setns, unshare};

/// Opens the namespace of the calling thread.
///
/// # Errors
/// When `/proc` cannot be read.
pub(super) fn own() -> io::Result<File> {
    File::open("/proc/thread-self/ns/net")
}

/// Moves the calling thread into a new namespace and binds that to the file `path`.
///
/// For short-lived threads only: the thread stays in the namespace.
///
/// # Errors
/// When the kernel refuses; nothing remains at `path`.
pub(super) fn enter_new(path: &Path) -> io::Result<File> {
    File::create_new(path)?;
    let entered = unshare(CloneFlags::CLONE_NEWNET).and_then(|()| {
        let source = Path::new("/proc/thread-self/ns/net");
        mount(
            Some(source),
            path,
            None::<&str>,
            MsFlags::MS_BIND,
            None::<&str>,
        )
    });
    if let Err(errno) = entered {
        fs::remove_file(path)?;
        return Err(errno.into());
    }
    own()
}

/// Moves the calling thread into a namespace. For short-lived threads only.
///
/// # Errors
/// When the kernel refuses.
pub(super) fn enter(namespace: BorrowedFd<'_>) -> io::Result<()> {
    Ok(setns(namespace, CloneFlags::CLONE_NEWNET)?)
}

/// Removes the file at `path`; the namespace ends with its last process. Idempotent.
///
/// # Errors
/// When the file cannot be removed.
pub(super) fn remove(path: &Path) -> io::Result<()> {
    // An error means that nothing is mounted there; only the removal of the file matters.
    let _ = umount2(path, MntFlags::MNT_DETACH);
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Runs `work` on a separate thread inside the namespace at `path`.
///
/// # Errors
/// When the namespace does not exist, and the errors of `work`.
pub(super) fn within<T: Send>(
    path: &Path,
    work: impl FnOnce() -> io::Result<T> + Send,
) -> io::Result<T> {
    let namespace = File::open(path)?;
    on_thread(move || {
        enter(namespace.as_fd())?;
        work()
    })
}

/// Runs `work` on a separate thread that ends with it: a thread that has changed its namespace must
/// not return to a pool.
///
/// # Errors Those of `work`.
pub(super) fn on_thread<T: Send>(work: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("netns".to_owned());
        thread
            .spawn_scoped(scope, work)?
            .join()
            .map_err(|_| io::Error::other("a thread panicked"))?
    })
}

/// The descriptor that names the open namespace to the kernel, valid while `file` lives.
pub(super) fn raw(file: &File) -> i32 {
    file.as_raw_fd()
}

/// Every namespace file in `directory`.
///
/// # Errors
/// When the directory cannot be read.
pub(super) fn list(directory: &Path) -> io::Result<Vec<PathBuf>> {
    fs::read_dir(directory)?
        .map(|entry| Ok(entry?.path()))
        .collect()
}
