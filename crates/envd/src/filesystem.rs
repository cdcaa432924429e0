//! The files of a sandbox, but for their contents.
//!
//! [`entry`] describes a file, [`tree`] makes, lists, moves and removes, [`watch`] hears of changes,
//! and [`service`] is the rim towards the wire. Everything that touches a disk runs on a thread for
//! that, never on the one that answers everybody.

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

/// Why something could not be done with a file.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FileError {
    /// It is not there.
    #[error("path not found: {}", .0.display())]
    NotFound(PathBuf),
    /// It is there, and must not be.
    #[error("directory already exists: {}", .0.display())]
    Exists(PathBuf),
    /// Something else is there.
    #[error("path is not a directory: {}", .0.display())]
    NotDirectory(PathBuf),
    /// It must not be done to this path.
    #[error("refusing to remove {}", .0.display())]
    Protected(PathBuf),
    /// Links lead in a circle.
    #[error("cyclic symlink at {}", .0.display())]
    Cycle(PathBuf),
    /// There is more than can be told at once.
    #[error("more than {limit} {what} in {}", path.display())]
    TooMany {
        /// What there is too much of.
        what: &'static str,
        /// How much is enough.
        limit: usize,
        /// Where.
        path: PathBuf,
    },
    /// The directory lies on another machine, and changes there would go unseen.
    #[error("cannot watch path on network filesystem: {}", .0.display())]
    Network(PathBuf),
    /// The kernel lost count of the changes.
    #[error("changes came faster than they were read, and some were lost")]
    Lost,
    /// The system failed.
    #[error("cannot {action} {}: {source}", path.display())]
    System {
        /// What was to be done.
        action: &'static str,
        /// To what.
        path: PathBuf,
        /// What it said.
        source: io::Error,
    },
}

impl FileError {
    /// What failed, with the common failures told apart.
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
