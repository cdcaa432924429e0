//! Writing of uploaded files.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt, fchown};
use std::path::PathBuf;

use http::StatusCode;
use shoal_protocol::files::{FileKind, WrittenFile};

use super::RequestError;
use crate::filesystem::{FileError, directories, metadata};
use crate::path::base_name;
use crate::user::User;

/// Mode of new files before the umask (spec).
const FILE_MODE: u32 = 0o666;

/// Copy buffer size.
const COPY_BUFFER: usize = 256 << 10;

/// A file to write.
pub(super) struct Target<'a> {
    /// Path.
    pub(super) path: PathBuf,
    /// Owner.
    pub(super) user: &'a User,
    /// Metadata, which replaces the existing one.
    pub(super) metadata: &'a BTreeMap<String, String>,
    /// Announced length of the body.
    pub(super) announced: Option<u64>,
}

impl Target<'_> {
    /// Writes the file and creates its parents. An existing file is overwritten.
    ///
    /// # Errors
    /// 400 if the path is not a file, 507 if the disk is full.
    pub(super) fn write(&self, contents: &mut dyn Read) -> Result<WrittenFile, RequestError> {
        if let Some(parent) = self.path.parent() {
            directories::ensure(parent, self.user)?;
        }
        let mut file = self.open()?;
        self.set_owner(&file)?;
        self.copy(contents, &mut file)?;
        if let Err(error) = metadata::replace(&file, self.metadata) {
            // The response lists the metadata that is stored.
            if !metadata::is_unsupported(&error) {
                return Err(failed("not enough space for file metadata", &error));
            }
        }
        let attached = metadata::read(&self.path);
        Ok(WrittenFile {
            name: base_name(&self.path),
            path: self.path.to_string_lossy().into_owned(),
            kind: FileKind::File,
            metadata: (!attached.is_empty()).then_some(attached),
        })
    }

    fn open(&self) -> Result<File, RequestError> {
        let shown = self.path.display();
        if let Ok(meta) = std::fs::metadata(&self.path) {
            if meta.is_dir() {
                return Err(RequestError::bad_request(format!(
                    "path is a directory: {shown}"
                )));
            }
            if meta.file_type().is_fifo() || meta.file_type().is_socket() {
                return Err(RequestError::bad_request(format!(
                    "path is not a file: {shown}"
                )));
            }
        }
        // Does not block if the path has become a pipe.
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(FILE_MODE)
            .custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC | libc::O_NOCTTY)
            .open(&self.path);
        file.map_err(|error| match error.raw_os_error() {
            Some(libc::EISDIR | libc::ENXIO) => {
                RequestError::bad_request(format!("path is not a file: {shown}"))
            }
            _ => failed("not enough inodes available", &error),
        })
    }

    /// Changes the owner to the user, except for devices and kernel files.
    fn set_owner(&self, file: &File) -> Result<(), RequestError> {
        let meta = file.metadata().map_err(|error| failed("", &error))?;
        let (uid, gid) = (self.user.uid, self.user.gid);
        if !meta.is_file() || (meta.uid(), meta.gid()) == (uid, gid) {
            return Ok(());
        }
        match fchown(file, Some(uid), Some(gid)) {
            Err(error) if error.raw_os_error() != Some(libc::EPERM) => Err(failed("", &error)),
            _ => Ok(()),
        }
    }

    fn copy(&self, contents: &mut dyn Read, file: &mut File) -> Result<(), RequestError> {
        let mut piece = vec![0; COPY_BUFFER];
        loop {
            let count = match contents.read(&mut piece) {
                Ok(0) => return Ok(()),
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => {
                    return Err(RequestError::bad_request(format!(
                        "error reading body: {error}"
                    )));
                }
            };
            let written = file.write_all(piece.get(..count).unwrap_or_default());
            written.map_err(|error| {
                let attempted = self
                    .announced
                    .map(|count| format!("attempted to write {count} bytes: {DISK_FULL}"));
                failed(attempted.as_deref().unwrap_or(DISK_FULL), &error)
            })?;
        }
    }
}

/// Message for a full disk. The text is E2B's.
pub(super) const DISK_FULL: &str = "not enough disk space available";

/// Converts a system error: 507 with `when_full` if the disk or the user's quota is exhausted, else
/// 500.
pub(super) fn failed(when_full: &str, error: &io::Error) -> RequestError {
    match error.raw_os_error() {
        Some(libc::ENOSPC | libc::EDQUOT) => {
            let text = if when_full.is_empty() {
                DISK_FULL
            } else {
                when_full
            };
            RequestError::new(StatusCode::INSUFFICIENT_STORAGE, text)
        }
        _ => RequestError::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            format!("error writing file: {error}"),
        ),
    }
}

impl From<FileError> for RequestError {
    fn from(error: FileError) -> Self {
        let text = format!("error ensuring directories: {error}");
        match error {
            FileError::NotDirectory(_) | FileError::Cycle(_) => Self::bad_request(text),
            FileError::System { source, .. } => failed("", &source),
            _ => Self::new(StatusCode::INTERNAL_SERVER_ERROR, text),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn me() -> User {
        User {
            name: "me".into(),
            uid: rustix::process::getuid().as_raw(),
            gid: rustix::process::getgid().as_raw(),
            home: "/".into(),
        }
    }

    fn write(path: PathBuf, mut contents: &[u8]) -> Result<WrittenFile, RequestError> {
        let target = Target {
            path,
            user: &me(),
            metadata: &BTreeMap::new(),
            announced: Some(10),
        };
        target.write(&mut contents)
    }

    #[test]
    fn writing_a_file_creates_parents_and_overwrites() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a/b");
        assert_eq!(write(path.clone(), b"longer").unwrap().name, "b");
        write(path.clone(), b"short").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"short");
    }

    #[test]
    fn only_regular_files_are_written() {
        let dir = tempfile::tempdir().unwrap();
        let pipe = dir.path().join("pipe");
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, mode, 0).unwrap();
        std::fs::write(dir.path().join("file"), "").unwrap();
        for path in [pipe, dir.path().to_owned(), dir.path().join("file/below")] {
            let error = write(path.clone(), b"x").unwrap_err();
            assert_eq!(error.status, StatusCode::BAD_REQUEST, "{path:?}");
        }
    }

    #[test]
    fn a_full_disk_is_507() {
        for code in [libc::ENOSPC, libc::EDQUOT] {
            let error = failed("", &io::Error::from_raw_os_error(code));
            assert_eq!(error.status, StatusCode::INSUFFICIENT_STORAGE);
        }
        let error = write("/dev/full".into(), b"x").unwrap_err();
        assert_eq!(error.status, StatusCode::INSUFFICIENT_STORAGE);
        assert_eq!(
            error.message,
            "attempted to write 10 bytes: not enough disk space available"
        );
        let other = failed("", &io::Error::from_raw_os_error(libc::EIO));
        assert_eq!(other.status, StatusCode::INTERNAL_SERVER_ERROR);
    }
}
