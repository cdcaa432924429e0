//! Digests of files, and how a file is known to be unchanged without reading it.

use std::fs::File;
use std::io::{self, Read};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::{RawMode, Stat};
use sha2::{Digest as _, Sha256};
use shoal_protocol::sync::CONTENTS_MAX;
use shoal_session_files::path::SessionPath;
use shoal_session_files::returning::Contents;
use shoal_session_files::state::{Digest, FileState};

/// Bytes read at once.
const PIECE: usize = 128 << 10;

/// How old the last change of a file must be when it is read, so that a later change gets another time: some ticks of
/// the slowest clock of a kernel.
const TICKS: Duration = Duration::from_millis(40);

/// The right of the owner to execute a file.
const OWNER_EXECUTES: RawMode = 0o100;

/// The attributes that change with a file.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stamp {
    device: u64,
    inode: u64,
    size: i64,
    modified: (i64, u64),
    changed: (i64, u64),
}

impl Stamp {
    /// The stamp of a file.
    pub(super) fn of(stat: &Stat) -> Self {
        Self {
            device: stat.st_dev,
            inode: stat.st_ino,
            size: stat.st_size,
            modified: (stat.st_mtime, nanoseconds(stat.st_mtime_nsec)),
            changed: (stat.st_ctime, nanoseconds(stat.st_ctime_nsec)),
        }
    }

    /// Whether a change after `now` is sure to change it: the last one is some ticks of the clock ago.
    pub(super) fn is_settled(&self, now: SystemTime) -> bool {
        let Ok(seconds) = u64::try_from(self.changed.0) else {
            return false;
        };
        let changed = UNIX_EPOCH + Duration::from_secs(seconds);
        let changed = changed + Duration::from_nanos(self.changed.1);
        now.duration_since(changed).is_ok_and(|age| age > TICKS)
    }
}

/// The type of the field depends on the architecture.
fn nanoseconds(count: impl TryInto<u64>) -> u64 {
    count.try_into().unwrap_or_default()
}

/// Whether its owner may execute a file.
pub(super) fn is_executable(stat: &Stat) -> bool {
    stat.st_mode & OWNER_EXECUTES != 0
}

/// The result of reading a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Known {
    /// Its contents.
    pub(super) state: FileState,
    /// Whether such contents return.
    pub(super) returns: bool,
    /// Its stamp, before and after it was read. The default if it was not read.
    pub(super) stamp: Stamp,
    /// Whether the stamp changes with the next change.
    pub(super) settled: bool,
}

/// Reads a file that was just opened with these attributes. None if it changes meanwhile.
///
/// # Errors
/// When it cannot be read, or is too large.
pub(super) fn read(file: &File, before: &Stat, path: &SessionPath) -> io::Result<Option<Known>> {
    let now = SystemTime::now();
    let expected = u64::try_from(before.st_size).unwrap_or_default();
    if expected > CONTENTS_MAX {
        return Err(too_large());
    }
    // Bytes beyond its size change the attributes, so they need no read of their own.
    let (digest, size, returns) = digest(file.take(expected), expected, path)?;
    let after = rustix::fs::fstat(file)?;
    let stamp = Stamp::of(before);
    if stamp != Stamp::of(&after) || size != expected {
        return Ok(None);
    }
    Ok(Some(Known {
        state: FileState {
            digest,
            size,
            executable: is_executable(&after),
        },
        returns,
        stamp,
        settled: stamp.is_settled(now),
    }))
}

/// The error of a file that is larger than any that is compared.
pub(super) fn too_large() -> io::Error {
    let text = format!("the file has more than {CONTENTS_MAX} bytes");
    io::Error::new(io::ErrorKind::FileTooLarge, text)
}

/// The digest of all bytes, their number, and whether they return. `expected` is their number, unless the file changes.
fn digest(
    mut source: impl Read,
    expected: u64,
    path: &SessionPath,
) -> io::Result<(Digest, u64, bool)> {
    let (mut hasher, mut check) = (Sha256::new(), Contents::of(path));
    // A large buffer is a mapping of its own, which costs more than reading a small file.
    let room = usize::try_from(expected).map_or(PIECE, |expected| expected.clamp(1, PIECE));
    let (mut piece, mut size) = (vec![0; room], 0);
    loop {
        let count = match source.read(&mut piece) {
            Ok(0) => break,
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        let bytes = piece.get(..count).unwrap_or_default();
        hasher.update(bytes);
        check.update(bytes);
        size += count as u64;
    }
    Ok((Digest(hasher.finalize().into()), size, check.returns()))
}

/// The digest of contents.
pub(super) fn digest_of(contents: &[u8]) -> Digest {
    Digest(Sha256::digest(contents).into())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt as _;

    use super::*;

    fn path(text: &str) -> SessionPath {
        text.parse().unwrap()
    }

    #[test]
    fn a_file_is_known_by_its_contents() {
        let dir = tempfile::tempdir().unwrap();
        let name = dir.path().join("a");
        std::fs::write(&name, "text").unwrap();
        let read = || {
            let file = File::open(&name).unwrap();
            let stat = rustix::fs::fstat(&file).unwrap();
            read(&file, &stat, &path("a"))
        };
        let known = read().unwrap().unwrap();
        assert_eq!(known.state.digest, digest_of(b"text"));
        assert_eq!((known.state.size, known.returns), (4, true));
        assert!(
            !known.settled,
            "the next change may come within the same tick"
        );
        std::fs::write(&name, "te\0t").unwrap();
        let binary = read().unwrap().unwrap();
        assert!(!binary.returns);
        std::fs::write(&name, "").unwrap();
        assert_eq!(read().unwrap().unwrap().state.digest, digest_of(b""));
    }

    #[test]
    fn a_file_that_grew_since_it_was_opened_is_not_known() {
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(b"text", 0).unwrap();
        let stat = rustix::fs::fstat(&file).unwrap();
        file.write_all_at(b"more", 4).unwrap();
        assert_eq!(read(&file, &stat, &path("a")).unwrap(), None);
    }

    #[test]
    fn a_stamp_is_settled_some_ticks_after_its_change() {
        let dir = tempfile::tempdir().unwrap();
        let file = tempfile::tempfile_in(&dir).unwrap();
        let stat = rustix::fs::fstat(&file).unwrap();
        let stamp = Stamp::of(&stat);
        let seconds = Duration::from_secs(u64::try_from(stat.st_ctime).unwrap());
        let nanos = Duration::from_nanos(stamp.changed.1);
        let changed = UNIX_EPOCH + seconds + nanos;
        assert!(!stamp.is_settled(changed) && !stamp.is_settled(changed + TICKS));
        assert!(!stamp.is_settled(changed - TICKS), "the clock was set back");
        assert!(stamp.is_settled(changed + TICKS * 2));
    }

    #[test]
    fn a_huge_file_is_not_read() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(1 << 40).unwrap();
        let stat = rustix::fs::fstat(&file).unwrap();
        let error = read(&file, &stat, &path("a")).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::FileTooLarge);
    }
}
