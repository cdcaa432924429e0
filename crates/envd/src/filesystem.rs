//! Files and directories of the sandbox, without file contents.
//!
//! [`entry`] describes a file; [`tree`] creates, lists, moves and removes; [`watch`] reports
//! changes; [`service`] maps these to the wire protocol. All disk access runs on the blocking pool.

pub(crate) mod directories;
pub(crate) mod entry;
pub(crate) mod metadata;
mod service;
mod tree;
mod watch;
mod watchers;

pub(crate) use service::FilesystemService;

use std::io;
use std::path::PathBuf;

/// A failed file operation.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FileError {
    /// The path does not exist.
    #[error("path not found: {}", .0.display())]
    NotFound(PathBuf),
    /// The path exists already.
    #[error("directory already exists: {}", .0.display())]
    Exists(PathBuf),
    /// The path is not a directory.
    #[error("path is not a directory: {}", .0.display())]
    NotDirectory(PathBuf),
    /// The operation is not permitted on this path.
    #[error("refusing to remove {}", .0.display())]
    Protected(PathBuf),
    /// Symlink loop.
    #[error("cyclic symlink at {}", .0.display())]
    Cycle(PathBuf),
    /// Limit exceeded.
    #[error("more than {limit} {what} in {}", path.display())]
    TooMany {
        /// The items counted.
        what: &'static str,
        /// The limit.
        limit: usize,
        /// The path.
        path: PathBuf,
    },
    /// Network file system, on which remote changes are not reported.
    #[error("cannot watch path on network filesystem: {}", .0.display())]
    Network(PathBuf),
    /// The kernel's event queue overflowed.
    #[error("event queue overflow: some changes were lost")]
    Lost,
    /// A system call failed.
    #[error("cannot {action} {}: {source}", path.display())]
    System {
        /// The failed action.
        action: &'static str,
        /// The path.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
}

impl FileError {
    /// Classifies a system error.
    pub(crate) fn new(
        action: &'static str,
        path: impl Into<PathBuf>,
        source: impl Into<io::Error>,
    ) -> Self {
        let (path, source) = (path.into(), source.into());
        match source.raw_os_error() {
            Some(libc::ENOENT) => Self::NotFound(path),
            Some(libc::ELOOP) => Self::Cycle(path),
            _ => Self::System {
                action,
                path,
                source,
            },
        }
    }
}
