//! The files of a session in its sandbox: what changes there, and changes from outside.

use bytes::Bytes;
use futures_core::stream::BoxStream;

use super::{FileContents, InsideError};
use crate::BoxFuture;
use crate::session::path::SessionPath;

/// The SHA-256 digest of a file's contents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Digest(pub [u8; 32]);

/// What a regular file contains.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileState {
    /// The digest of its contents.
    pub digest: Digest,
    /// Its size, in bytes.
    pub size: u64,
    /// Whether its owner may execute it.
    pub executable: bool,
}

/// What a watch of the home directory tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HomeEvent {
    /// A file that returns to the session is at this path.
    Present {
        /// Where it is.
        path: SessionPath,
        /// What it contains.
        state: FileState,
    },
    /// No file that returns is at this path any more.
    Absent {
        /// Where it was.
        path: SessionPath,
    },
    /// Everything that changed before the watch or a [`HomeFiles::flush`] began has been told. The files that were told as
    /// present since the last [`HomeEvent::Scan`] and not absent since are all there are.
    Settled,
    /// The watch has lost track and tells all files again.
    Scan,
}

/// A change from outside. It is made only when the path still has the state that the caller has seen.
pub struct HomeChange {
    /// Where.
    pub path: SessionPath,
    /// The state that the caller has seen there; none for no file.
    pub expected: Option<Digest>,
    /// The file to write; none to remove it.
    pub file: Option<HomeFile>,
}

/// A file to write.
pub struct HomeFile {
    /// Its contents.
    pub contents: Bytes,
    /// Whether its owner may execute it.
    pub executable: bool,
}

/// What became of a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Applied {
    /// It was made.
    Done,
    /// Another file is there, and has stayed.
    Differs(Option<FileState>),
    /// It cannot be made, for this reason: a directory or a link is in the way, or the disk is full.
    Failed(String),
}

/// The home directory of a sandbox, as a place of a session's files.
///
/// Names that are no [`SessionPath`], links, and what lies behind links are not seen. Nothing is written through a link or
/// outside of the directory.
pub trait HomeFiles: Send + Sync {
    /// Tells all files that return ([`crate::session::returning`], `.gitignore`), then what changes. Only one watch at a time:
    /// a later one ends the former.
    ///
    /// # Errors
    /// When the daemon does not answer.
    fn watch(
        &self,
    ) -> BoxFuture<'_, Result<BoxStream<'static, Result<HomeEvent, InsideError>>, InsideError>>;

    /// Makes changes in their order, and tells what became of each. Files are written in place, so that watchers inside see
    /// a change of the same file, and a reader never sees a mixture that stays.
    ///
    /// # Errors
    /// When the daemon does not answer. Any part of the changes may have been made then.
    fn apply(&self, changes: Vec<HomeChange>) -> BoxFuture<'_, Result<Vec<Applied>, InsideError>>;

    /// Opens a file that the watch has told.
    ///
    /// # Errors
    /// When it is missing or no regular file, or the daemon does not answer.
    fn read(&self, path: SessionPath) -> BoxFuture<'_, Result<FileContents, InsideError>>;

    /// Makes the watch tell [`HomeEvent::Settled`] after everything that has changed before this call.
    ///
    /// # Errors
    /// When the daemon does not answer, or nothing watches.
    fn flush(&self) -> BoxFuture<'_, Result<(), InsideError>>;
}
