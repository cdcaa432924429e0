//! Changes from outside.
//!
//! A file is written in place, in the order that `session_files::interrupted` describes, so that it stays the same file for
//! those who watch it.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures_util::{StreamExt, stream};
use parking_lot::Mutex;
use russh_sftp::protocol::FileType;
use shoal_core::ports::inside::InsideError;
use shoal_core::ports::inside::home::{Applied, FileState, Found, HomeChange, HomeFile};
use shoal_core::ports::sessions::files::FILE_MAX;
use shoal_core::session::path::SessionPath;

use super::walk::{PathError, Walk, digest_of, is_account_s, state_of};
use super::{Inner, PARALLEL};
use crate::sftp::{Entry, Open, SftpError, Stamp};

/// How often a change begins again when its file changes at the same time.
const ATTEMPTS: usize = 3;

/// Modes of new files, before the umask.
const PLAIN: u32 = 0o666;
const EXECUTABLE: u32 = 0o777;

/// Rights to execute, and those to read, from which they follow.
const EXECUTE: u32 = 0o111;
const READ: u32 = 0o444;

/// The outcome of an attempt.
enum Attempt {
    Done(Option<(Stamp, FileState)>),
    Differs(Option<FileState>),
    Again,
}

/// A path that is being changed.
struct Applying<'a> {
    home: &'a Inner,
    path: &'a SessionPath,
}

impl Drop for Applying<'_> {
    fn drop(&mut self) {
        self.home.table.lock().ends(self.path);
    }
}

/// Directories from which files were removed.
type Emptied = Mutex<BTreeSet<SessionPath>>;

impl Inner {
    /// Makes changes.
    ///
    /// # Errors
    /// When the machine does not answer.
    pub(super) async fn apply(
        self: &Arc<Self>,
        changes: Vec<HomeChange>,
    ) -> Result<Vec<Applied>, InsideError> {
        let (main, root) = self.main().await?;
        let walk = Walk::new(&main.sftp, &root);
        let emptied = Emptied::default();
        let mut outcomes = Vec::new();
        // Each file is changed once, and nothing is written before everything is removed that was removed before.
        for same in changes.chunk_by(|one, other| one.file.is_some() == other.file.is_some()) {
            let same = same.iter().cloned();
            let made = same.map(|change| self.make(&walk, change, &emptied));
            let made: Vec<_> = stream::iter(made).buffered(PARALLEL).collect().await;
            for made in made {
                outcomes.push(made?);
            }
            walk.forget();
        }
        prune(&walk, &emptied, None).await;
        Ok(outcomes)
    }

    async fn make(
        &self,
        walk: &Walk<'_>,
        change: HomeChange,
        emptied: &Emptied,
    ) -> Result<Applied, InsideError> {
        let path = &change.path;
        self.table.lock().begins(path);
        let _applying = Applying { home: self, path };
        for _ in 0..ATTEMPTS {
            match attempt(walk, &change, emptied).await {
                Ok(Attempt::Again) => {}
                Ok(Attempt::Done(made)) => {
                    self.table.lock().written(path, made);
                    return Ok(Applied::Done);
                }
                Ok(Attempt::Differs(found)) => return Ok(Applied::Differs(found)),
                Err(PathError::Sftp(_, SftpError::Lost)) => return Err(self.link.lost().into()),
                Err(error) => return Ok(Applied::Failed(self.failed(&error).to_string())),
            }
        }
        Ok(Applied::Failed(format!("{path} changes all the time")))
    }

    /// The entry at a path.
    ///
    /// # Errors
    /// When the machine does not answer.
    pub(super) async fn find(
        &self,
        walk: &Walk<'_>,
        path: SessionPath,
    ) -> Result<Found, InsideError> {
        for _ in 0..ATTEMPTS {
            match walk.contents(&path, FILE_MAX).await {
                Ok(Some((contents, stamp))) => {
                    return Ok(Found::File(state_of(&contents, &stamp)));
                }
                Ok(None) => {}
                Err(PathError::Missing(_)) => return Ok(Found::Nothing),
                Err(PathError::Sftp(_, SftpError::Lost)) => return Err(self.link.lost().into()),
                // Nothing exists below a file or a link.
                Err(PathError::InTheWay(_)) if below_something(walk, &path).await => {
                    return Ok(Found::Nothing);
                }
                Err(error) => return Ok(Found::Other(self.failed(&error).to_string())),
            }
        }
        Ok(Found::Other(format!("{path} changes all the time")))
    }
}

/// Whether a file or a link is in the place of a directory above a path.
async fn below_something(walk: &Walk<'_>, path: &SessionPath) -> bool {
    !is_account_s(path) && matches!(walk.parents(path, false).await, Err(PathError::InTheWay(_)))
}

async fn attempt(
    walk: &Walk<'_>,
    change: &HomeChange,
    emptied: &Emptied,
) -> Result<Attempt, PathError> {
    let path = &change.path;
    match (
        walk.parents(path, false).await,
        &change.file,
        change.expected,
    ) {
        (Err(PathError::Missing(_)), None, _) => return Ok(Attempt::Done(None)),
        (Err(PathError::Missing(_)), _, Some(_)) => return Ok(Attempt::Differs(None)),
        (Err(PathError::Missing(_)), Some(_), None) => walk.parents(path, true).await?,
        (parents, ..) => parents?,
    }
    let mut entry = match walk.look(path).await {
        Ok(entry) => Some(entry),
        Err(PathError::Missing(_)) => None,
        Err(error) => return Err(error),
    };
    if change.file.is_some() && entry.is_some_and(|entry| entry.kind == FileType::Dir) {
        // A file may take the place of a directory whose last file has just been removed.
        prune(walk, emptied, Some(path)).await;
        entry = walk.look(path).await.ok();
    }
    let current = match entry {
        None => None,
        Some(_) => match walk.contents(path, FILE_MAX).await {
            Ok(Some((contents, stamp))) => Some((stamp, state_of(&contents, &stamp))),
            Ok(None) | Err(PathError::Missing(_)) => return Ok(Attempt::Again),
            Err(error) => return Err(error),
        },
    };
    let wanted = change.file.as_ref().map(wanted);
    let digest = current.map(|(_, state)| state.digest);
    if wanted.map(|wanted| wanted.digest) != digest && digest != change.expected {
        return Ok(Attempt::Differs(current.map(|(_, state)| state)));
    }
    match (current, &change.file) {
        (None, None) => Ok(Attempt::Done(None)),
        (Some((stamp, state)), Some(file)) if state == self::wanted(file) => {
            Ok(Attempt::Done(Some((stamp, state))))
        }
        (Some((stamp, state)), Some(file)) => overwrite(walk, path, stamp, state, file).await,
        (None, Some(file)) => create(walk, path, file).await,
        (Some((stamp, _)), None) => {
            if walk.look(path).await?.stamp != stamp {
                return Ok(Attempt::Again);
            }
            let removed = walk.sftp.remove(&walk.absolute(path.as_str())).await;
            removed.map_err(|error| Walk::failed(path, error))?;
            emptied.lock().extend(path.parents().next());
            Ok(Attempt::Done(None))
        }
    }
}

fn wanted(file: &HomeFile) -> FileState {
    FileState {
        digest: digest_of(&file.contents),
        size: file.contents.len() as u64,
        executable: file.executable,
    }
}

/// Writes over a file. The file stays the same one.
async fn overwrite(
    walk: &Walk<'_>,
    path: &SessionPath,
    stamp: Stamp,
    state: FileState,
    file: &HomeFile,
) -> Result<Attempt, PathError> {
    let failed = |error: SftpError| Walk::failed(path, error);
    let wanted = wanted(file);
    let opened = walk.sftp.open_to_write(&walk.absolute(path.as_str())).await;
    let open = opened.map_err(failed)?;
    let written = async {
        let before = walk.sftp.look_at(&open).await?;
        if before.kind != FileType::File || before.stamp != stamp {
            return Ok(None);
        }
        if state.executable != wanted.executable {
            let mode = mode(stamp.mode, wanted.executable);
            walk.sftp.set_mode(&open, mode).await?;
        }
        if state.digest != wanted.digest {
            write(walk, &open, state.size, &file.contents).await?;
        }
        walk.sftp.look_at(&open).await.map(Some)
    };
    let written = written.await;
    close(walk, path, open, written, wanted).await
}

async fn create(
    walk: &Walk<'_>,
    path: &SessionPath,
    file: &HomeFile,
) -> Result<Attempt, PathError> {
    let at = walk.absolute(path.as_str());
    let mode = if file.executable { EXECUTABLE } else { PLAIN };
    let open = match walk.sftp.create(&at, mode).await {
        Ok(open) => open,
        // The protocol does not say whether the path exists.
        Err(SftpError::Refused(_)) if walk.look(path).await.is_ok() => return Ok(Attempt::Again),
        Err(error) => return Err(Walk::failed(path, error)),
    };
    let written = match walk.sftp.write(&open, 0, &file.contents).await {
        Ok(()) => walk.sftp.look_at(&open).await.map(Some),
        Err(error) => Err(error),
    };
    if written.is_err() {
        // Nothing was there, so nothing is lost.
        let _ = walk.sftp.remove(&at).await;
    }
    close(walk, path, open, written, wanted(file)).await
}

/// Closes a written file.
async fn close(
    walk: &Walk<'_>,
    path: &SessionPath,
    open: Open,
    written: Result<Option<Entry>, SftpError>,
    wanted: FileState,
) -> Result<Attempt, PathError> {
    let closed = walk.sftp.close(open).await;
    let written = written.map_err(|error| Walk::failed(path, error))?;
    closed.map_err(|error| Walk::failed(path, error))?;
    Ok(match written {
        Some(entry) => Attempt::Done(Some((entry.stamp, wanted))),
        None => Attempt::Again,
    })
}

/// Writes first what goes beyond the old end, where a full disk is found while the old contents are whole.
async fn write(walk: &Walk<'_>, open: &Open, old: u64, contents: &[u8]) -> Result<(), SftpError> {
    let new = contents.len() as u64;
    let common = usize::try_from(old.min(new)).unwrap_or(contents.len());
    let (begin, end) = contents.split_at_checked(common).unwrap_or((contents, &[]));
    if let Err(error) = walk.sftp.write(open, old, end).await {
        // Only if this fails, too, is more there than before.
        let _ = walk.sftp.resize(open, old).await;
        return Err(error);
    }
    walk.sftp.write(open, 0, begin).await?;
    if new < old {
        walk.sftp.resize(open, new).await?;
    }
    Ok(())
}

/// A mode in which everyone who may read the file may execute it, or no one may.
fn mode(old: u32, executable: bool) -> u32 {
    if executable {
        old | ((old & READ) >> 2)
    } else {
        old & !EXECUTE
    }
}

/// Removes directories that removals have emptied: those at or below a path, or all.
async fn prune(walk: &Walk<'_>, emptied: &Emptied, within: Option<&SessionPath>) {
    let mut left = BTreeSet::new();
    let mut all = std::mem::take(&mut *emptied.lock());
    // Entries below a directory come after it.
    while let Some(directory) = all.pop_last() {
        if within.is_some_and(|within| !directory.is_within(within)) {
            left.insert(directory);
            continue;
        }
        let at = walk.absolute(directory.as_str());
        // Fails if something is in it.
        if walk.sftp.remove_directory(&at).await.is_ok() {
            all.extend(directory.parents().next());
        }
    }
    walk.forget();
    emptied.lock().extend(left);
}
