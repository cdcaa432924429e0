//! Files of an external machine over SFTP.

use std::time::Duration;

use russh::client::Handle;
use russh_sftp::client::RawSftpSession;
use russh_sftp::client::error::Error;
use russh_sftp::client::rawsession::Limits;
use russh_sftp::protocol::{FileAttributes, FileType, OpenFlags, StatusCode};
use russh_sftp::{client, extensions};
use shoal_core::ports::inside::InsideError;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::dial::Checker;

/// How long one request may take.
const REQUEST: Duration = Duration::from_secs(30);

/// The most bytes of one read or write, which every server takes.
const PIECE: u32 = 32 << 10;

/// Where a server says that it takes more.
const PIECE_MAX: u64 = 128 << 10;

/// The right of the owner to execute a file.
const OWNER_EXECUTES: u32 = 0o100;

/// The bits of permissions.
const MODE: u32 = 0o7777;

/// A session of SFTP.
pub(crate) struct Sftp {
    raw: RawSftpSession,
    piece: u32,
    /// It does not answer any more.
    broken: AtomicBool,
}

/// Why an operation failed.
#[derive(Debug)]
pub(crate) enum SftpError {
    /// It does not exist.
    Missing,
    /// The machine refuses it, and says why.
    Refused(String),
    /// The account has no right to it.
    Denied,
    /// The connection has ended, or the machine does not answer.
    Lost,
}

impl SftpError {
    /// The error as users of a machine see it.
    pub(crate) fn at(&self, path: &str, lost: impl FnOnce() -> InsideError) -> InsideError {
        match self {
            Self::Missing => InsideError::NotFound(format!("nothing is at {path}")),
            Self::Refused(why) => InsideError::Invalid(format!("{path}: {why}")),
            Self::Denied => InsideError::Denied(format!("{path}: permission denied")),
            Self::Lost => lost(),
        }
    }
}

/// The attributes of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stamp {
    pub(crate) size: u64,
    /// Seconds since 1970.
    pub(crate) modified: u32,
    pub(crate) mode: u32,
    uid: Option<u32>,
}

impl Stamp {
    pub(crate) fn is_executable(&self) -> bool {
        self.mode & OWNER_EXECUTES != 0
    }
}

/// An entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) kind: FileType,
    pub(crate) stamp: Stamp,
}

impl From<&FileAttributes> for Entry {
    fn from(attributes: &FileAttributes) -> Self {
        Self {
            kind: attributes.file_type(),
            stamp: Stamp {
                size: attributes.size.unwrap_or_default(),
                modified: attributes.mtime.unwrap_or_default(),
                mode: attributes.permissions.unwrap_or_default() & MODE,
                uid: attributes.uid,
            },
        }
    }
}

impl Entry {
    /// Its kind, for people.
    pub(crate) fn described(&self) -> &'static str {
        match self.kind {
            FileType::Dir => "a directory",
            FileType::File => "a file",
            FileType::Symlink => "a link",
            FileType::Other => "no regular file",
        }
    }
}

/// An open file.
pub(crate) struct Open(String);

impl Sftp {
    /// Begins a session; none when the machine has no SFTP.
    pub(crate) async fn open(handle: &Handle<Checker>) -> Option<Self> {
        let channel = handle.channel_open_session().await.ok()?;
        let mut channel = channel;
        channel.request_subsystem(true, "sftp").await.ok()?;
        loop {
            match channel.wait().await? {
                russh::ChannelMsg::Success => break,
                russh::ChannelMsg::Failure | russh::ChannelMsg::Close => return None,
                _ => {}
            }
        }
        let config = client::Config {
            request_timeout_secs: REQUEST.as_secs(),
            ..client::Config::default()
        };
        let mut raw = RawSftpSession::new_with_config(channel.into_stream(), config);
        let version = raw.init().await.ok()?;
        let mut piece = PIECE;
        let limits = version.extensions.get(extensions::LIMITS);
        if limits.is_some_and(|version| version == "1") {
            let limits = Limits::from(raw.limits().await.ok()?);
            let told = [limits.read_len, limits.write_len].into_iter().flatten();
            let most = told.min().unwrap_or(u64::from(PIECE)).min(PIECE_MAX);
            piece = u32::try_from(most).unwrap_or(PIECE).max(1);
            raw.set_limits(limits);
        }
        Some(Self {
            raw,
            piece,
            broken: AtomicBool::new(false),
        })
    }

    /// Whether it does not answer any more.
    pub(crate) fn is_broken(&self) -> bool {
        self.broken.load(Ordering::Acquire)
    }

    fn failed(&self, error: Error) -> SftpError {
        match error {
            Error::Status(status) => match status.status_code {
                StatusCode::NoSuchFile => SftpError::Missing,
                StatusCode::PermissionDenied => SftpError::Denied,
                StatusCode::NoConnection | StatusCode::ConnectionLost => {
                    self.broken.store(true, Ordering::Release);
                    SftpError::Lost
                }
                _ => SftpError::Refused(status.error_message.chars().take(200).collect()),
            },
            Error::Limited(why) => SftpError::Refused(why),
            Error::IO(_)
            | Error::Timeout
            | Error::UnexpectedPacket
            | Error::UnexpectedBehavior(_) => {
                self.broken.store(true, Ordering::Release);
                SftpError::Lost
            }
        }
    }

    /// The directory in which the account begins.
    pub(crate) async fn home(&self) -> Result<String, SftpError> {
        let found = self.raw.realpath(".").await;
        let found = found.map_err(|error| self.failed(error))?;
        let first = found.files.into_iter().next().ok_or(SftpError::Missing)?;
        Ok(first.filename.trim_end_matches('/').to_owned())
    }

    /// The attributes at a path. Links are not followed.
    pub(crate) async fn look(&self, path: &str) -> Result<Entry, SftpError> {
        let found = self.raw.lstat(path).await;
        let found = found.map_err(|error| self.failed(error))?;
        Ok(Entry::from(&found.attrs))
    }

    /// The same, with links followed.
    pub(crate) async fn follow(&self, path: &str) -> Result<Entry, SftpError> {
        let found = self.raw.stat(path).await;
        let found = found.map_err(|error| self.failed(error))?;
        Ok(Entry::from(&found.attrs))
    }

    /// The entries of a directory, without itself and its parent, piece by piece.
    pub(crate) async fn list(
        &self,
        path: &str,
        mut each: impl FnMut(String, Entry) -> Result<(), SftpError>,
    ) -> Result<(), SftpError> {
        let handle = self.raw.opendir(path).await;
        let handle = handle.map_err(|error| self.failed(error))?.handle;
        let listed = loop {
            match self.raw.readdir(handle.as_str()).await {
                Ok(names) => {
                    let mut entries = names.files.into_iter();
                    let told = entries.try_for_each(|file| match file.filename.as_str() {
                        "." | ".." => Ok(()),
                        _ => each(file.filename, Entry::from(&file.attrs)),
                    });
                    if let Err(error) = told {
                        break Err(error);
                    }
                }
                Err(Error::Status(status)) if status.status_code == StatusCode::Eof => {
                    break Ok(());
                }
                Err(error) => break Err(self.failed(error)),
            }
        };
        // It is closed in any case with its session.
        let _ = self.raw.close(handle).await;
        listed
    }

    /// Opens a file to read.
    pub(crate) async fn open_to_read(&self, path: &str) -> Result<Open, SftpError> {
        self.open_file(path, OpenFlags::READ, None).await
    }

    /// Opens an existing file for writing, without changing it.
    pub(crate) async fn open_to_write(&self, path: &str) -> Result<Open, SftpError> {
        self.open_file(path, OpenFlags::WRITE, None).await
    }

    /// Creates a file. Fails if the path exists, even as a link.
    pub(crate) async fn create(&self, path: &str, mode: u32) -> Result<Open, SftpError> {
        let flags = OpenFlags::WRITE | OpenFlags::CREATE | OpenFlags::EXCLUDE;
        self.open_file(path, flags, Some(mode)).await
    }

    /// Makes a file or empties it. Follows links.
    pub(crate) async fn replace(&self, path: &str) -> Result<Open, SftpError> {
        let flags = OpenFlags::WRITE | OpenFlags::CREATE | OpenFlags::TRUNCATE;
        self.open_file(path, flags, None).await
    }

    async fn open_file(
        &self,
        path: &str,
        flags: OpenFlags,
        mode: Option<u32>,
    ) -> Result<Open, SftpError> {
        let attributes = FileAttributes {
            permissions: mode,
            ..FileAttributes::empty()
        };
        let opened = self.raw.open(path, flags, attributes).await;
        let opened = opened.map_err(|error| self.failed(error))?;
        Ok(Open(opened.handle))
    }

    /// The attributes of an open file.
    pub(crate) async fn look_at(&self, file: &Open) -> Result<Entry, SftpError> {
        let found = self.raw.fstat(file.0.as_str()).await;
        let found = found.map_err(|error| self.failed(error))?;
        Ok(Entry::from(&found.attrs))
    }

    /// The next bytes from an offset on; none at the end.
    pub(crate) async fn read(
        &self,
        file: &Open,
        offset: u64,
    ) -> Result<Option<Vec<u8>>, SftpError> {
        match self.raw.read(file.0.as_str(), offset, self.piece).await {
            Ok(data) if data.data.is_empty() => Ok(None),
            Ok(data) => Ok(Some(data.data)),
            Err(Error::Status(status)) if status.status_code == StatusCode::Eof => Ok(None),
            Err(error) => Err(self.failed(error)),
        }
    }

    /// Writes bytes at an offset, in their order.
    pub(crate) async fn write(
        &self,
        file: &Open,
        mut offset: u64,
        bytes: &[u8],
    ) -> Result<(), SftpError> {
        for piece in bytes.chunks(self.piece as usize) {
            let written = self.raw.write(file.0.as_str(), offset, piece.to_vec());
            written.await.map_err(|error| self.failed(error))?;
            offset += piece.len() as u64;
        }
        Ok(())
    }

    /// Cuts a file, or fills it with zeros.
    pub(crate) async fn resize(&self, file: &Open, size: u64) -> Result<(), SftpError> {
        let attributes = FileAttributes {
            size: Some(size),
            ..FileAttributes::empty()
        };
        self.set(file, attributes).await
    }

    /// Changes the permissions of a file.
    pub(crate) async fn set_mode(&self, file: &Open, mode: u32) -> Result<(), SftpError> {
        let attributes = FileAttributes {
            permissions: Some(mode & MODE),
            ..FileAttributes::empty()
        };
        self.set(file, attributes).await
    }

    async fn set(&self, file: &Open, attributes: FileAttributes) -> Result<(), SftpError> {
        let set = self.raw.fsetstat(file.0.as_str(), attributes).await;
        set.map(drop).map_err(|error| self.failed(error))
    }

    /// Closes a file.
    pub(crate) async fn close(&self, file: Open) -> Result<(), SftpError> {
        let closed = self.raw.close(file.0).await;
        closed.map(drop).map_err(|error| self.failed(error))
    }

    /// Makes a directory.
    pub(crate) async fn make_directory(&self, path: &str) -> Result<(), SftpError> {
        let made = self.raw.mkdir(path, FileAttributes::empty()).await;
        made.map(drop).map_err(|error| self.failed(error))
    }

    /// Removes an empty directory.
    pub(crate) async fn remove_directory(&self, path: &str) -> Result<(), SftpError> {
        let removed = self.raw.rmdir(path).await;
        removed.map(drop).map_err(|error| self.failed(error))
    }

    /// Removes a file, or a link.
    pub(crate) async fn remove(&self, path: &str) -> Result<(), SftpError> {
        let removed = self.raw.remove(path).await;
        removed.map(drop).map_err(|error| self.failed(error))
    }
}
