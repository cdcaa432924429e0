//! An external machine as a session uses it.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt, stream};
use russh_sftp::protocol::FileType;
use shoal_core::BoxFuture;
use shoal_core::ports::external::ExternalClient;
use shoal_core::ports::inside::home::HomeFiles;
use shoal_core::ports::inside::{
    ByteStream, Code, CodeStream, DirEntry, FileContents, FileKind, InsideError, RunningCommand,
    SandboxClient, SandboxCommand,
};

use crate::command;
use crate::home::Home;
use crate::link::{Link, Main};
use crate::sftp::{Entry, Open, SftpError};

/// The most entries of a list.
const ENTRIES_MAX: usize = 10_000;

/// A client of an external machine. Paths of files begin at the home directory of the account.
pub(crate) struct SshClient {
    link: Arc<Link>,
}

impl SshClient {
    pub(crate) fn new(link: Arc<Link>) -> Self {
        Self { link }
    }

    pub(crate) fn link(&self) -> &Arc<Link> {
        &self.link
    }

    fn failed(&self, path: &str, error: &SftpError) -> InsideError {
        error.at(path, || self.link.lost().into())
    }

    async fn write(&self, path: &str, mut contents: ByteStream) -> Result<(), InsideError> {
        let main = self.link.main().await?;
        let failed = |error: SftpError| self.failed(path, &error);
        for (at, _) in path.match_indices('/').filter(|(at, _)| *at > 0) {
            // It may be there.
            let _ = main.sftp.make_directory(&path[..at]).await;
        }
        let file = main.sftp.replace(path).await.map_err(failed)?;
        let mut offset = 0;
        while let Some(piece) = contents.try_next().await.map_err(unread)? {
            main.sftp
                .write(&file, offset, &piece)
                .await
                .map_err(failed)?;
            offset += piece.len() as u64;
        }
        main.sftp.close(file).await.map_err(failed)
    }

    async fn remove_all(&self, path: String) -> Result<(), InsideError> {
        let main = self.link.main().await?;
        let failed = |error: SftpError| self.failed(&path, &error);
        // Directories after their contents.
        let mut left = VecDeque::from([(path.clone(), false)]);
        while let Some((at, is_empty)) = left.pop_back() {
            let gone = match main.sftp.look(&at).await {
                Ok(entry) if entry.kind == FileType::Dir && is_empty => {
                    main.sftp.remove_directory(&at).await
                }
                Ok(entry) if entry.kind == FileType::Dir => {
                    left.push_back((at.clone(), true));
                    let each = |name: String, _: Entry| {
                        left.push_back((format!("{at}/{name}"), false));
                        Ok(())
                    };
                    main.sftp.list(&at, each).await
                }
                Ok(_) => main.sftp.remove(&at).await,
                Err(error) => Err(error),
            };
            match gone {
                Ok(()) | Err(SftpError::Missing) => {}
                Err(error) => return Err(failed(error)),
            }
        }
        Ok(())
    }
}

fn unread(error: std::io::Error) -> InsideError {
    InsideError::Invalid(format!("the contents cannot be read: {error}"))
}

fn dir_entry(name: String, path: String, entry: &Entry, target: Option<Entry>) -> DirEntry {
    let kind = match target.unwrap_or(*entry).kind {
        FileType::File => FileKind::File,
        FileType::Dir => FileKind::Directory,
        FileType::Symlink | FileType::Other => FileKind::Other,
    };
    DirEntry {
        name,
        path,
        kind,
        link: entry.kind == FileType::Symlink,
        size: entry.stamp.size,
        mode: entry.stamp.mode,
    }
}

/// An open file that is sent piece by piece.
pub(crate) fn pieces(main: Arc<Main>, file: Open) -> ByteStream {
    let begin = Some((main, file, 0_u64));
    let next = async |state: Option<(Arc<Main>, Open, u64)>| {
        let (main, file, offset) = state?;
        match main.sftp.read(&file, offset).await {
            Ok(Some(bytes)) => {
                let offset = offset + bytes.len() as u64;
                Some((Ok(Bytes::from(bytes)), Some((main, file, offset))))
            }
            Ok(None) => {
                // It is closed in any case with its session.
                let _ = main.sftp.close(file).await;
                None
            }
            Err(error) => Some((Err(std::io::Error::other(format!("{error:?}"))), None)),
        }
    };
    stream::unfold(begin, next).boxed()
}

impl SandboxClient for SshClient {
    fn run(&self, command: SandboxCommand) -> BoxFuture<'_, Result<RunningCommand, InsideError>> {
        Box::pin(command::run(&self.link, command))
    }

    fn write_file(
        &self,
        path: String,
        contents: ByteStream,
    ) -> BoxFuture<'_, Result<(), InsideError>> {
        Box::pin(async move { self.write(&path, contents).await })
    }

    fn read_file(&self, path: String) -> BoxFuture<'_, Result<FileContents, InsideError>> {
        Box::pin(async move {
            let main = self.link.main().await?;
            let failed = |error: SftpError| self.failed(&path, &error);
            let file = main.sftp.open_to_read(&path).await.map_err(failed)?;
            let size = main.sftp.look_at(&file).await.map_err(failed)?.stamp.size;
            Ok(FileContents {
                size: Some(size),
                contents: pieces(main, file),
            })
        })
    }

    fn list_dir(&self, path: String) -> BoxFuture<'_, Result<Vec<DirEntry>, InsideError>> {
        Box::pin(async move {
            let main = self.link.main().await?;
            let mut found = Vec::new();
            let each = |name: String, entry: Entry| {
                if found.len() >= ENTRIES_MAX {
                    return Err(SftpError::Refused(format!(
                        "more than {ENTRIES_MAX} entries"
                    )));
                }
                found.push((name, entry));
                Ok(())
            };
            let listed = main.sftp.list(&path, each).await;
            listed.map_err(|error| self.failed(&path, &error))?;
            let mut entries = Vec::new();
            for (name, entry) in found {
                let at = format!("{}/{name}", path.trim_end_matches('/'));
                let target = match entry.kind {
                    FileType::Symlink => main.sftp.follow(&at).await.ok(),
                    _ => None,
                };
                entries.push(dir_entry(name, at, &entry, target));
            }
            Ok(entries)
        })
    }

    fn stat(&self, path: String) -> BoxFuture<'_, Result<DirEntry, InsideError>> {
        Box::pin(async move {
            let main = self.link.main().await?;
            let entry = main.sftp.look(&path).await;
            let entry = entry.map_err(|error| self.failed(&path, &error))?;
            let target = main.sftp.follow(&path).await.ok();
            let name = path.rsplit('/').next().unwrap_or_default().to_owned();
            Ok(dir_entry(name, path, &entry, target))
        })
    }

    fn remove(&self, path: String) -> BoxFuture<'_, Result<(), InsideError>> {
        Box::pin(self.remove_all(path))
    }

    fn run_code(&self, _: Code) -> BoxFuture<'_, Result<CodeStream, InsideError>> {
        Box::pin(async {
            let message = "an external machine has no interpreter";
            Err(InsideError::Invalid(message.to_owned()))
        })
    }

    fn home(&self, directory: &str) -> Arc<dyn HomeFiles> {
        Arc::new(Home::new(self.link.clone(), directory))
    }
}

impl fmt::Debug for SshClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SshClient")
            .field(self.link.address())
            .finish()
    }
}

impl ExternalClient for SshClient {
    fn is_open(&self) -> bool {
        self.link.is_open()
    }

    fn close(&self) {
        self.link.close();
    }
}
