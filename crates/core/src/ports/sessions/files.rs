//! The files of sessions.

use bytes::Bytes;

use super::SessionError;
use crate::BoxFuture;
use crate::auth::Principal;
use crate::session::SessionId;
use crate::session::files::{StoredFile, SyncState};
use crate::session::path::{InvalidPath, SessionPath};
use crate::session::returning;
use crate::store::StoreError;

pub use shoal_session_files::state::{Digest, FileState};

/// The largest file that a session takes, in bytes. A machine gets files up to this size too.
pub const FILE_MAX: u64 = 64 << 20;

/// The largest file that returns from a machine, in bytes.
pub const RETURN_MAX: u64 = returning::FILE_MAX;

/// A file of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionFile {
    /// Where it is.
    pub path: SessionPath,
    /// Its kind.
    pub file: StoredFile,
}

/// When a file is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnlyIf {
    /// Always.
    #[default]
    Always,
    /// When there is none yet.
    Absent,
    /// When it has these contents.
    Has(Digest),
}

/// A file to write.
#[derive(Debug, Clone)]
pub struct WriteFile {
    /// Where.
    pub path: SessionPath,
    /// Its contents.
    pub contents: Bytes,
    /// Whether its owner may execute it; as before when absent.
    pub executable: Option<bool>,
    /// When.
    pub only_if: OnlyIf,
}

/// How the files of a session and of its machine stand.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SyncView {
    /// In one word.
    pub state: SyncState,
    /// How many files of the session wait for the machine.
    pub behind: usize,
    /// Whether there is a machine that is kept equal.
    pub connected: bool,
    /// The copies of conflicts.
    pub conflicts: Vec<SessionPath>,
    /// The files that are not synchronised, and why, for people.
    pub notes: Vec<String>,
}

/// Why an operation on a session's files was not done.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// No such file exists.
    #[error("the session has no file {0}")]
    NotFound(SessionPath),
    /// The text is no path.
    #[error(transparent)]
    Path(#[from] InvalidPath),
    /// Something else is where the file would be.
    #[error("{path}: {with} is in the way")]
    InTheWay {
        /// The path.
        path: SessionPath,
        /// The existing entry.
        with: SessionPath,
    },
    /// The condition of the request is not met.
    #[error("{0} has changed: read it again")]
    Changed(SessionPath),
    /// The file is too large.
    #[error("a file of a session has at most {} MiB", FILE_MAX >> 20)]
    TooLarge,
    /// The session has its maximum of files.
    #[error("the session has {0} files: delete some")]
    TooMany(usize),
    /// The session's files have their maximum of bytes.
    #[error("the files of a session have at most {0} bytes together: delete some")]
    Full(u64),
    /// The session is being deleted.
    #[error("session {0} is being deleted")]
    Ending(SessionId),
    /// The contents of the file are lost.
    #[error("the contents of {0} are missing in the store: write the file again")]
    Lost(SessionPath),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The files of all sessions. They are there with and without a machine, and the machine is kept equal.
pub trait SessionFiles: Send + Sync {
    /// The files at or below a path, or all, sorted by path.
    ///
    /// # Errors
    /// See [`SessionError`].
    fn list<'a>(
        &'a self,
        principal: &'a Principal,
        id: &'a str,
        below: Option<&'a SessionPath>,
    ) -> BoxFuture<'a, Result<Vec<SessionFile>, SessionError>>;

    /// Reads a file.
    ///
    /// # Errors
    /// See [`SessionError`].
    fn read<'a>(
        &'a self,
        principal: &'a Principal,
        id: &'a str,
        path: &'a SessionPath,
    ) -> BoxFuture<'a, Result<(SessionFile, Bytes), SessionError>>;

    /// Writes a file, and brings it to the machine at once.
    ///
    /// # Errors
    /// See [`SessionError`].
    fn write<'a>(
        &'a self,
        principal: &'a Principal,
        id: &'a str,
        file: WriteFile,
    ) -> BoxFuture<'a, Result<SessionFile, SessionError>>;

    /// Removes the file at a path, or the files below it. Returns how many.
    ///
    /// # Errors
    /// See [`SessionError`].
    fn remove<'a>(
        &'a self,
        principal: &'a Principal,
        id: &'a str,
        path: &'a SessionPath,
    ) -> BoxFuture<'a, Result<usize, SessionError>>;

    /// Moves the file at a path, or the files below it. Returns how many.
    ///
    /// # Errors
    /// See [`SessionError`].
    fn rename<'a>(
        &'a self,
        principal: &'a Principal,
        id: &'a str,
        from: &'a SessionPath,
        to: &'a SessionPath,
    ) -> BoxFuture<'a, Result<usize, SessionError>>;

    /// How the two sides stand.
    ///
    /// # Errors
    /// See [`SessionError`].
    fn sync<'a>(
        &'a self,
        principal: &'a Principal,
        id: &'a str,
    ) -> BoxFuture<'a, Result<SyncView, SessionError>>;
}
