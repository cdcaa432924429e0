//! The files of a session in its sandbox: changes inside, and changes from outside.

use bytes::Bytes;
use futures_core::stream::BoxStream;
pub use shoal_session_files::state::{Digest, FileState};

use super::{FileContents, InsideError};
use crate::BoxFuture;
use crate::session::path::SessionPath;

/// An event of a watch of the home directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HomeEvent {
    /// A file that returns to the session is at this path.
    Present {
        /// Where it is.
        path: SessionPath,
        /// Its contents.
        state: FileState,
    },
    /// No file is at this path any more: it was removed or renamed, or something else took its place.
    Absent {
        /// Where it was.
        path: SessionPath,
    },
    /// The file at this path is still there, but does not return any more: it is ignored now, too large, or no text.
    Withheld {
        /// Where it is.
        path: SessionPath,
    },
    /// Something is not seen, or is seen late: a directory that cannot be read, a `.gitignore` that is too large. For people.
    Limited {
        /// The affected path; everything when absent.
        path: Option<SessionPath>,
        /// Why.
        reason: String,
    },
    /// Every change before this [`HomeFiles::flush`] has been reported; 0 is the beginning of the watch. The files that
    /// return are those last reported as present.
    Settled(u64),
}

/// The events of a watch, until it fails.
pub type HomeEvents = BoxStream<'static, Result<HomeEvent, InsideError>>;

/// A change from outside. It is made only when the path still has the state that the caller has seen.
#[derive(Debug, Clone)]
pub struct HomeChange {
    /// Where.
    pub path: SessionPath,
    /// The state that the caller has seen there; none for no file.
    pub expected: Option<Digest>,
    /// The file to write; none to remove it.
    pub file: Option<HomeFile>,
}

/// A file to write.
#[derive(Debug, Clone)]
pub struct HomeFile {
    /// Its contents.
    pub contents: Bytes,
    /// Whether its owner may execute it.
    pub executable: bool,
}

/// The result of a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Applied {
    /// It was made, or the path was already as it asks.
    Done,
    /// Another file exists, and was kept; none when no file exists.
    Differs(Option<FileState>),
    /// It cannot be made, for this reason: a directory or a link is in the way, or the disk is full.
    Failed(String),
}

/// The entry at a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    /// Nothing.
    Nothing,
    /// A regular file, whether it returns or not.
    File(FileState),
    /// Something else, or a file that cannot be read: a directory, a link, a file larger than any that is compared.
    Other(String),
}

/// The home directory of a sandbox, as a place of a session's files.
///
/// Names that are no [`SessionPath`], links, and what lies behind links are not seen. Nothing is written through a link or
/// outside of the directory. Other file systems that are mounted below it are not seen either.
///
/// An event has the state of a path at one moment. It is never older than the outcome of a change at the same path that the caller
/// has from this object; but the file may have changed again when the caller reads it, so the caller
/// must compare the result of [`HomeFiles::read`] with the digest.
pub trait HomeFiles: Send + Sync {
    /// Reports all files that return ([`crate::session::returning`], `.gitignore`) and have at most `file_max` bytes, then
    /// each change. A watch that loses track looks at all files again, and reports what it missed. Changes by
    /// [`HomeFiles::apply`] are not reported. There is one watch at a time: a new one ends the previous one.
    ///
    /// # Errors
    /// When the daemon does not answer. The stream ends with an error: with [`InsideError::TooMuch`] for more files than can be
    /// watched, with [`InsideError::NotFound`] when the directory is gone.
    fn watch(&self, file_max: u64) -> BoxFuture<'_, Result<HomeEvents, InsideError>>;

    /// Makes changes in their order, and returns the result of each.
    ///
    /// Files are written in place, so that watchers inside see a change of the same file. When the daemon ends in the
    /// middle of that, the file holds a part of both contents: [`crate::session::interrupted`] recognises it. Directories are
    /// made as needed; one that removals have emptied is removed at the end.
    ///
    /// # Errors
    /// When the daemon does not answer, or a file is larger than it takes. Any part of the changes may have been made
    /// then.
    fn apply(&self, changes: Vec<HomeChange>) -> BoxFuture<'_, Result<Vec<Applied>, InsideError>>;

    /// Returns the entry at each of these paths. A file that the watch did not report at its beginning is either gone or
    /// does not return.
    ///
    /// # Errors
    /// When the daemon does not answer.
    fn look(&self, paths: Vec<SessionPath>) -> BoxFuture<'_, Result<Vec<Found>, InsideError>>;

    /// Opens a file.
    ///
    /// # Errors
    /// When it is missing or no regular file, or the daemon does not answer.
    fn read(&self, path: SessionPath) -> BoxFuture<'_, Result<FileContents, InsideError>>;

    /// Makes the watch report [`HomeEvent::Settled`] with this number or a later one, after every change before this
    /// call.
    ///
    /// # Errors
    /// When the daemon does not answer, or nothing watches.
    fn flush(&self) -> BoxFuture<'_, Result<u64, InsideError>>;
}
