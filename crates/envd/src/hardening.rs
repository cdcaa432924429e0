//! Hardening of the daemon before it listens.
//!
//! The daemon runs as root among untrusted processes. None may trace it, read its memory (which
//! holds the token) or inherit its descriptors.

use std::io;

use rustix::fs::{Mode, OFlags};
use rustix::process::{DumpableBehavior, Resource, Rlimit};

use crate::process::{InheritedLimits, UMASK, close_inherited};

/// Descriptor limit: four per process, a few per connection and watcher.
const MAX_DESCRIPTORS: u64 = 65_536;

/// Hardens the process. Must run before it starts threads or opens files.
///
/// # Errors
/// If standard descriptors are missing and cannot be replaced, or the process cannot be made
/// undumpable.
pub(crate) fn harden() -> io::Result<InheritedLimits> {
    fill_standard_descriptors()?;
    // The parent may have leaked descriptors.
    close_inherited();
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    rustix::process::umask(Mode::from_raw_mode(UMASK));
    let niced = rustix::process::getpriority_process(None).is_ok_and(|nice| nice != 0);
    Ok(InheritedLimits {
        descriptors: raise_descriptors(),
        niced,
    })
}

/// Opens descriptors 0, 1 and 2 if closed, so that no file of the daemon becomes a standard stream.
fn fill_standard_descriptors() -> io::Result<()> {
    loop {
        let fd = rustix::fs::open("/dev/null", OFlags::RDWR, Mode::empty())?;
        if std::os::fd::AsRawFd::as_raw_fd(&fd) > 2 {
            return Ok(());
        }
        // Stays open for the daemon's lifetime, on purpose.
        std::mem::forget(fd);
    }
}

fn raise_descriptors() -> Option<Rlimit> {
    let original = rustix::process::getrlimit(Resource::Nofile);
    let most = original
        .maximum
        .unwrap_or(MAX_DESCRIPTORS)
        .min(MAX_DESCRIPTORS);
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
