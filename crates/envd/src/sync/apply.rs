//! Applies changes from the server to a home directory.
//!
//! A file is written in place, in the order that `session_files::interrupted` describes. The bytes beyond the old end come
//! first: a full disk is detected while the old contents are complete. The other bytes follow, and the truncation is last.

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use parking_lot::Mutex;
use rustix::fs::{AtFlags, Mode, OFlags, Stat};
use shoal_protocol::sync::frame::Change;
use shoal_protocol::sync::{AppliedLine, FoundLine};
use shoal_session_files::path::SessionPath;
use shoal_session_files::returning;
use shoal_session_files::state::FileState;

use super::contents::{self, Known, Stamp, digest_of};
use super::home::{self, Home, PathError};
use super::table::{Counter, Table};

/// How many times a change is retried when the file changes concurrently.
const ATTEMPTS: usize = 3;

/// The maximum length of an error message, in characters.
const MESSAGE_MAX: usize = 256;

/// The execute bits of a mode, and the read bits that they are derived from.
const EXECUTE: u32 = 0o111;
const READ: u32 = 0o444;

/// Applies changes to one home directory.
pub(super) struct Applier {
    home: Home,
    /// The table that the watch shares, if a watch runs.
    table: Option<Arc<Mutex<Table>>>,
    counter: Counter,
    /// Directories that lost files, and may be empty.
    emptied: BTreeSet<SessionPath>,
}

/// The outcome of one attempt.
enum Attempt {
    /// The path has the requested contents.
    Done(Option<Known>),
    /// The path has other contents than the change expects.
    Differs(Option<FileState>),
    /// The file changed during the attempt.
    Again,
}

impl Applier {
    pub(super) fn new(home: Home, table: Option<Arc<Mutex<Table>>>, counter: Counter) -> Self {
        Self {
            home,
            table,
            counter,
            emptied: BTreeSet::new(),
        }
    }

    /// Applies a change. Blocking.
    pub(super) fn apply(&mut self, change: &Change) -> AppliedLine {
        let table = self.table.clone();
        let mut table = table.as_deref().map(Mutex::lock);
        for _ in 0..ATTEMPTS {
            match self.attempt(change, table.as_deref()) {
                Ok(Attempt::Again) => {}
                Ok(Attempt::Done(known)) => {
                    let at = match &mut table {
                        Some(table) => table.written(&change.head.path, known),
                        None => self.counter.next(),
                    };
                    return AppliedLine::Done { at };
                }
                Ok(Attempt::Differs(state)) => return AppliedLine::Differs { state },
                Err(error) => return failed(&error.to_string()),
            }
        }
        failed(&format!("{} changes all the time", change.head.path))
    }

    /// Removes the directories that removals emptied. Blocking.
    pub(super) fn finish(mut self) {
        self.prune(None);
    }

    fn attempt(&mut self, change: &Change, table: Option<&Table>) -> Result<Attempt, PathError> {
        let (head, contents) = (&change.head, change.contents.as_slice());
        let path = &head.path;
        let up = match (self.home.parent(path), head.write, head.expected) {
            (Err(PathError::Missing(_)), None, _) => return Ok(Attempt::Done(None)),
            (Err(PathError::Missing(_)), _, Some(_)) => return Ok(Attempt::Differs(None)),
            (Err(PathError::Missing(_)), Some(_), None) => self.home.make_parent(path)?,
            (up, ..) => up?,
        };
        let current = match self.current(&up, path, head.write.is_some(), table)? {
            Current::Nothing => None,
            Current::File(known) => Some(known),
            Current::Changing => return Ok(Attempt::Again),
        };
        let wanted = head.write.map(|write| FileState {
            digest: digest_of(contents),
            size: contents.len() as u64,
            executable: write.executable,
        });
        let digest = current.map(|known| known.state.digest);
        if wanted.map(|wanted| wanted.digest) != digest && digest != head.expected {
            return Ok(Attempt::Differs(current.map(|known| known.state)));
        }
        match (current, wanted) {
            (None, None) => Ok(Attempt::Done(None)),
            (Some(known), Some(wanted)) if known.state == wanted => Ok(Attempt::Done(Some(known))),
            (Some(known), Some(wanted)) => overwrite(&up, path, &known, wanted, contents),
            (None, Some(wanted)) => create(&up, path, wanted, contents),
            (Some(known), None) => self.remove(&up, path, &known),
        }
    }

    /// The current file at the path.
    fn current(
        &mut self,
        up: &OwnedFd,
        path: &SessionPath,
        writes: bool,
        table: Option<&Table>,
    ) -> Result<Current, PathError> {
        let is_directory = |stat: Stat| home::describe(&stat) == "a directory";
        if writes && home::look(up, path.name()).is_ok_and(is_directory) {
            // The path may be a directory whose last file was just removed.
            self.prune(Some(path));
        }
        let (file, stat) = match home::open(up, path, OFlags::RDONLY) {
            Ok(opened) => opened,
            Err(PathError::Missing(_)) => return Ok(Current::Nothing),
            Err(error) => return Err(error),
        };
        let stamp = Stamp::of(&stat);
        if let Some(known) = table.and_then(|table| table.known(path, &stamp)) {
            return Ok(Current::File(known));
        }
        let read = contents::read(&file, path);
        let read = read.map_err(|error| PathError::system(path.as_str(), error))?;
        Ok(read.map_or(Current::Changing, Current::File))
    }

    fn remove(
        &mut self,
        up: &OwnedFd,
        path: &SessionPath,
        known: &Known,
    ) -> Result<Attempt, PathError> {
        let failed = |errno| PathError::system(path.as_str(), errno);
        let stat = home::look(up, path.name());
        if !stat.is_ok_and(|stat| Stamp::of(&stat) == known.stamp) {
            return Ok(Attempt::Again);
        }
        rustix::fs::unlinkat(up, path.name(), AtFlags::empty()).map_err(failed)?;
        self.emptied.extend(path.parents().next());
        Ok(Attempt::Done(None))
    }

    /// Removes directories that removals emptied: those at or below a path, or all.
    fn prune(&mut self, within: Option<&SessionPath>) {
        let mut left = BTreeSet::new();
        // A child sorts after its directory.
        while let Some(directory) = self.emptied.pop_last() {
            if within.is_some_and(|within| !directory.is_within(within)) {
                left.insert(directory);
            } else if self.home.remove_directory(&directory).is_ok() {
                self.emptied.extend(directory.parents().next());
            }
        }
        self.emptied = left;
    }
}

/// The state of a path before a change.
enum Current {
    Nothing,
    File(Known),
    Changing,
}

fn failed(message: &str) -> AppliedLine {
    let message = message.chars().take(MESSAGE_MAX).collect();
    AppliedLine::Failed { message }
}

/// Overwrites a file in place: it keeps its inode.
fn overwrite(
    up: &OwnedFd,
    path: &SessionPath,
    known: &Known,
    wanted: FileState,
    contents: &[u8],
) -> Result<Attempt, PathError> {
    let system = |error: io::Error| PathError::system(path.as_str(), error);
    let same = known.state.digest == wanted.digest;
    // A change of the mode alone does not change the contents.
    let access = if same { OFlags::RDONLY } else { OFlags::WRONLY };
    let (file, stat) = home::open(up, path, access)?;
    if Stamp::of(&stat) != known.stamp {
        return Ok(Attempt::Again);
    }
    if known.state.executable != wanted.executable {
        let mode = mode(stat.st_mode, wanted.executable);
        rustix::fs::fchmod(&file, mode).map_err(|errno| system(errno.into()))?;
    }
    if !same {
        write(&file, known.state.size, contents).map_err(system)?;
    }
    Ok(Attempt::Done(Some(
        finished(&file, path, wanted, contents).map_err(system)?,
    )))
}

fn create(
    up: &OwnedFd,
    path: &SessionPath,
    wanted: FileState,
    contents: &[u8],
) -> Result<Attempt, PathError> {
    let system = |error: io::Error| PathError::system(path.as_str(), error);
    let mode = if wanted.executable { 0o777 } else { 0o666 };
    let file = match home::create(up, path, mode) {
        Ok(file) => file,
        Err(rustix::io::Errno::EXIST) => return Ok(Attempt::Again),
        Err(errno) => return Err(system(errno.into())),
    };
    if let Err(error) = file.write_all_at(contents, 0) {
        // The file did not exist before.
        let _ = rustix::fs::unlinkat(up, path.name(), AtFlags::empty());
        return Err(system(error));
    }
    Ok(Attempt::Done(Some(
        finished(&file, path, wanted, contents).map_err(system)?,
    )))
}

fn write(file: &File, old: u64, contents: &[u8]) -> io::Result<()> {
    let new = contents.len() as u64;
    let common = usize::try_from(old.min(new)).unwrap_or(contents.len());
    let (begin, end) = contents.split_at_checked(common).unwrap_or((contents, &[]));
    if let Err(error) = file.write_all_at(end, old) {
        // If this fails too, the file stays longer than before.
        let _ = file.set_len(old);
        return Err(error);
    }
    file.write_all_at(begin, 0)?;
    if new < old {
        file.set_len(new)?;
    }
    Ok(())
}

/// The table's entry of a file that was just written.
fn finished(
    file: &File,
    path: &SessionPath,
    state: FileState,
    contents: &[u8],
) -> io::Result<Known> {
    Ok(Known {
        state,
        returns: returning::returns(path, contents),
        stamp: Stamp::of(&rustix::fs::fstat(file)?),
        settled: false,
    })
}

/// A mode in which everyone who may read the file may execute it, or no one may.
fn mode(old: u32, executable: bool) -> Mode {
    let old = old & 0o7777;
    Mode::from_raw_mode(if executable {
        old | ((old & READ) >> 2)
    } else {
        old & !EXECUTE
    })
}

/// The state of a path. Blocking.
pub(super) fn look(home: &Home, path: &SessionPath) -> FoundLine {
    let other = |message: &str| FoundLine::Other {
        message: message.chars().take(MESSAGE_MAX).collect(),
    };
    for _ in 0..ATTEMPTS {
        let opened = home
            .parent(path)
            .and_then(|up| home::open(&up, path, OFlags::RDONLY));
        let file = match opened {
            Ok((file, _)) => file,
            Err(PathError::Missing(_)) => return FoundLine::Nothing,
            // A path below a file or a link does not exist.
            Err(PathError::InTheWay { at, .. }) if at != path.as_str() => {
                return FoundLine::Nothing;
            }
            Err(error) => return other(&error.to_string()),
        };
        match contents::read(&file, path) {
            Ok(Some(known)) => return FoundLine::File { state: known.state },
            Ok(None) => {}
            Err(error) => return other(&error.to_string()),
        }
    }
    other("it changes all the time")
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Seek as _};

    use super::*;

    #[test]
    fn a_file_is_written_whole_whatever_its_old_length() {
        for (old, new) in [
            ("", "new"),
            ("older", "new"),
            ("old", "newer"),
            ("old", ""),
            ("a", "b"),
        ] {
            let mut file = tempfile::tempfile().unwrap();
            file.write_all_at(old.as_bytes(), 0).unwrap();
            write(&file, old.len() as u64, new.as_bytes()).unwrap();
            let mut found = String::new();
            file.rewind().unwrap();
            file.read_to_string(&mut found).unwrap();
            assert_eq!(found, new, "over {old}");
        }
    }

    #[test]
    fn a_full_disk_is_found_while_the_old_contents_are_whole() {
        // Each write to this device fails. The first one is that beyond the old end.
        let full = File::options()
            .read(true)
            .write(true)
            .open("/dev/full")
            .unwrap();
        let error = write(&full, 2, b"abcd").unwrap_err();
        assert!(matches!(
            error.raw_os_error(),
            Some(libc::EINVAL | libc::ENOSPC)
        ));
    }

    #[test]
    fn who_may_read_may_execute() {
        assert_eq!(mode(0o100_644, true).as_raw_mode(), 0o755);
        assert_eq!(mode(0o100_640, true).as_raw_mode(), 0o750);
        assert_eq!(mode(0o100_755, false).as_raw_mode(), 0o644);
    }
}
