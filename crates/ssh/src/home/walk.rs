//! Paths below a home directory, of which no part is a link.
//!
//! SFTP opens files by their whole path and follows links. Each part is looked at before, and the open file is compared with
//! that. A program of the same account may replace a part in between, but reaches only files that it can open anyway.

use std::collections::BTreeSet;

use parking_lot::Mutex;
use russh_sftp::protocol::FileType;
use sha2::{Digest as _, Sha256};
use shoal_core::ports::inside::home::{Digest, FileState};
use shoal_core::session::path::SessionPath;

use crate::sftp::{Entry, Open, Sftp, SftpError, Stamp};

/// The file in the home that is the session's although it begins with a dot.
const GITIGNORE: &str = ".gitignore";

/// Why a path does not lead to a file.
#[derive(Debug)]
pub(super) enum PathError {
    /// It does not exist.
    Missing(String),
    /// It is of another kind, or a parent is not a directory.
    InTheWay(String),
    /// A request failed.
    Sftp(String, SftpError),
}

/// Whether a path is the account's own.
pub(super) fn is_account_s(path: &SessionPath) -> bool {
    path.as_str().starts_with('.') && path.as_str() != GITIGNORE
}

/// The digest of contents.
pub(super) fn digest_of(contents: &[u8]) -> Digest {
    Digest(Sha256::digest(contents).into())
}

/// The state of a file with these contents.
pub(super) fn state_of(contents: &[u8], stamp: &Stamp) -> FileState {
    FileState {
        digest: digest_of(contents),
        size: contents.len() as u64,
        executable: stamp.is_executable(),
    }
}

/// Walks paths.
pub(super) struct Walk<'a> {
    pub(super) sftp: &'a Sftp,
    root: &'a str,
    /// Directories that were seen.
    seen: Mutex<BTreeSet<String>>,
}

impl<'a> Walk<'a> {
    pub(super) fn new(sftp: &'a Sftp, root: &'a str) -> Self {
        Self {
            sftp,
            root,
            seen: Mutex::default(),
        }
    }

    /// The path on the machine.
    pub(super) fn absolute(&self, path: &str) -> String {
        match path {
            "" => self.root.to_owned(),
            path => format!("{}/{path}", self.root),
        }
    }

    pub(super) fn failed(path: &SessionPath, error: SftpError) -> PathError {
        match error {
            SftpError::Missing => PathError::Missing(path.to_string()),
            error => PathError::Sftp(path.to_string(), error),
        }
    }

    /// Whether all directories above a path are there.
    ///
    /// # Errors
    /// When one is missing, or something else is in its place.
    pub(super) async fn parents(&self, path: &SessionPath, make: bool) -> Result<(), PathError> {
        if is_account_s(path) {
            let why = "what begins with a dot in the home directory is the account's own";
            return Err(PathError::InTheWay(format!("{path}: {why}")));
        }
        let parents: Vec<SessionPath> = path.parents().collect();
        for parent in parents.iter().rev() {
            if self.seen.lock().contains(parent.as_str()) {
                continue;
            }
            let at = self.absolute(parent.as_str());
            let mut found = self.sftp.look(&at).await;
            if make && matches!(found, Err(SftpError::Missing)) {
                // Another change may make it at the same time.
                let made = self.sftp.make_directory(&at).await;
                found = self.sftp.look(&at).await;
                if let (Err(SftpError::Missing), Err(error)) = (&found, made) {
                    return Err(PathError::Sftp(parent.to_string(), error));
                }
            }
            let entry = found.map_err(|error| Self::failed(parent, error))?;
            if entry.kind != FileType::Dir {
                let what = entry.described();
                return Err(PathError::InTheWay(format!("{parent} is {what}")));
            }
            self.seen.lock().insert(parent.as_str().to_owned());
        }
        Ok(())
    }

    /// Directories may be others now.
    pub(super) fn forget(&self) {
        self.seen.lock().clear();
    }

    /// The entry at a path.
    ///
    /// # Errors
    /// When it does not exist, or a parent is not a directory.
    pub(super) async fn look(&self, path: &SessionPath) -> Result<Entry, PathError> {
        self.parents(path, false).await?;
        let found = self.sftp.look(&self.absolute(path.as_str())).await;
        found.map_err(|error| Self::failed(path, error))
    }

    /// Opens a regular file.
    ///
    /// # Errors
    /// When it does not exist, or is of another kind.
    pub(super) async fn open_to_read(
        &self,
        path: &SessionPath,
    ) -> Result<(Open, Entry), PathError> {
        let seen = self.look(path).await?;
        if seen.kind != FileType::File {
            let what = seen.described();
            return Err(PathError::InTheWay(format!("{path} is {what}")));
        }
        let at = self.absolute(path.as_str());
        let file = self.sftp.open_to_read(&at).await;
        let file = file.map_err(|error| Self::failed(path, error))?;
        let entry = self.sftp.look_at(&file).await;
        let entry = entry.map_err(|error| Self::failed(path, error))?;
        if entry.kind != FileType::File {
            let _ = self.sftp.close(file).await;
            return Err(PathError::InTheWay(format!("{path} is no regular file")));
        }
        Ok((file, entry))
    }

    /// The contents of a file; none when it changes meanwhile.
    ///
    /// # Errors
    /// When it does not exist, is of another kind, or has more than `most` bytes.
    pub(super) async fn contents(
        &self,
        path: &SessionPath,
        most: u64,
    ) -> Result<Option<(Vec<u8>, Stamp)>, PathError> {
        let (file, entry) = self.open_to_read(path).await?;
        let read = self.read_whole(&file, &entry, most).await;
        // It is closed in any case with its session.
        let _ = self.sftp.close(file).await;
        let too_large = || PathError::InTheWay(format!("{path} has more than {most} bytes"));
        let contents = read.map_err(|error| Self::failed(path, error))?;
        match contents {
            Read::Whole(contents) => Ok(Some((contents, entry.stamp))),
            Read::Changing => Ok(None),
            Read::TooLarge => Err(too_large()),
        }
    }

    async fn read_whole(&self, file: &Open, entry: &Entry, most: u64) -> Result<Read, SftpError> {
        let size = entry.stamp.size;
        if size > most {
            return Ok(Read::TooLarge);
        }
        let mut contents = Vec::new();
        while (contents.len() as u64) < size {
            match self.sftp.read(file, contents.len() as u64).await? {
                Some(piece) => contents.extend(piece),
                None => break,
            }
        }
        let after = self.sftp.look_at(file).await?;
        let same = after == *entry && contents.len() as u64 == size;
        Ok(if same {
            Read::Whole(contents)
        } else {
            Read::Changing
        })
    }
}

/// A file that was read.
enum Read {
    Whole(Vec<u8>),
    Changing,
    TooLarge,
}
