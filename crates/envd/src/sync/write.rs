//! Writes one file in place.
//!
//! The order of the writes is that of `session_files::interrupted`. The bytes beyond the old end come first: a full disk is
//! detected while the old contents are complete. The other bytes follow, and the truncation is last.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;

use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;
use shoal_session_files::path::SessionPath;
use shoal_session_files::returning;
use shoal_session_files::state::FileState;

use super::apply::Attempt;
use super::contents::{Known, Stamp};
use super::home::{self, PathError};

/// The execute bits of a mode, and the read bits that they are derived from.
const EXECUTE: u32 = 0o111;
const READ: u32 = 0o444;

/// Overwrites a file in place: it keeps its inode.
///
/// # Errors
/// When it cannot be written.
pub(super) fn overwrite(
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
    Ok(Attempt::Done(Some(written(path, wanted, contents))))
}

/// Writes a new file. None if the path exists.
///
/// # Errors
/// When it cannot be written.
pub(super) fn create(
    up: &OwnedFd,
    path: &SessionPath,
    wanted: FileState,
    contents: &[u8],
) -> Result<Option<Known>, PathError> {
    let system = |error: io::Error| PathError::system(path.as_str(), error);
    let mode = if wanted.executable { 0o777 } else { 0o666 };
    let file = match home::create(up, path, mode) {
        Ok(file) => file,
        Err(Errno::EXIST) => return Ok(None),
        Err(errno) => return Err(system(errno.into())),
    };
    if let Err(error) = file.write_all_at(contents, 0) {
        // The file did not exist before.
        let _ = rustix::fs::unlinkat(up, path.name(), AtFlags::empty());
        return Err(system(error));
    }
    Ok(Some(written(path, wanted, contents)))
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

/// The table's entry of a file that was just written. Its attributes may already be those of a later change.
fn written(path: &SessionPath, state: FileState, contents: &[u8]) -> Known {
    Known {
        state,
        returns: returning::returns(path, contents),
        stamp: Stamp::default(),
        settled: false,
    }
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
