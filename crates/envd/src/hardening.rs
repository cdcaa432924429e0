//! What the daemon does to itself before it listens to anybody.
//!
//! It runs as root among processes that it must not trust: none may trace it or read its memory,
//! where the token is, and none may inherit a descriptor of it.

use std::io;

use rustix::fs::{Mode, OFlags};
use rustix::process::{DumpableBehavior, Resource, Rlimit};

/// How many descriptors the daemon wants: four a process, a few a connection and a watcher.
const DESCRIPTORS: u64 = 65_536;

/// The mask of files that the daemon makes, and that processes begin with.
pub(crate) const UMASK: u32 = 0o022;

/// What children get back that the daemon changed for itself.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Original {
    /// The limit of open descriptors.
    pub(crate) descriptors: Option<Rlimit>,
    /// Whether the daemon's own priority is not the usual one.
    pub(crate) niced: bool,
}

/// Seals the daemon. Must run before it has threads or opens anything.
///
/// # Errors
/// When standard descriptors are missing and cannot be replaced, or the process cannot be made
/// undumpable.
pub(crate) fn seal() -> io::Result<Original> {
    fill_standard_descriptors()?;
    close_inherited_descriptors();
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    rustix::process::umask(Mode::from_raw_mode(UMASK));
    let niced = rustix::process::getpriority_process(None).is_ok_and(|nice| nice != 0);
    Ok(Original {
        descriptors: raise_descriptors(),
        niced,
    })
}

/// Makes sure that 0, 1 and 2 are taken, so that nothing of ours becomes a standard stream.
fn fill_standard_descriptors() -> io::Result<()> {
    loop {
        let fd = rustix::fs::open("/dev/null", OFlags::RDWR, Mode::empty())?;
        if std::os::fd::AsRawFd::as_raw_fd(&fd) > 2 {
            return Ok(());
        }
        // It stays open for the life of the daemon, which is the purpose.
        std::mem::forget(fd);
    }
}

/// Closes whatever else the daemon was started with: nobody here knows what it is.
fn close_inherited_descriptors() {
    let Ok(entries) = std::fs::read_dir("/proc/self/fd") else {
        return;
    };
    let inherited: Vec<i32> = entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|fd| *fd > 2)
        .collect();
    for fd in inherited {
        crate::process::raw::close_inherited(fd);
    }
}

fn raise_descriptors() -> Option<Rlimit> {
    let original = rustix::process::getrlimit(Resource::Nofile);
    let most = original.maximum.unwrap_or(DESCRIPTORS).min(DESCRIPTORS);
    if original.current.is_none_or(|current| current >= most) {
        return None;
    }
    let raised = Rlimit {
        current: Some(most),
        maximum: original.maximum,
    };
    rustix::process::setrlimit(Resource::Nofile, raised).ok()?;
    Some(original)
}
