//! Process limits that differ between the daemon and its children.

use rustix::process::Rlimit;

/// Umask of the daemon, which its children inherit.
pub(crate) const UMASK: u32 = 0o022;

/// Limits to restore in children, because the daemon changed its own.
#[derive(Debug, Clone, Copy)]
pub(crate) struct InheritedLimits {
    /// Original limit of open descriptors.
    pub(crate) descriptors: Option<Rlimit>,
    /// Whether the daemon has a non-default priority.
    pub(crate) niced: bool,
}
