//! The files that a runtime writes, and their digests.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags, fstat, open, openat2};
use serde::{Deserialize, Serialize};

use super::FileName;

/// Bytes read at a time for a digest: enough to occupy all processors.
const PIECE: u64 = 4 << 20;

/// One file that the runtime wrote.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryFile {
    /// Its name in the directory.
    pub name: FileName,
    /// Its length.
    pub bytes: u64,
    /// BLAKE3, in hexadecimal digits.
    pub digest: String,
}

impl MemoryFile {
    /// Describes a file as it is now.
    ///
    /// # Errors
    /// When it cannot be read to its end.
    pub(super) fn of(directory: &Path, name: FileName) -> io::Result<Self> {
        let mut file = open_plain(directory, &name)?;
        let mut hasher = blake3::Hasher::new();
        let mut piece = Vec::new();
        // Not memory-mapped: an unreadable page would kill the whole server, not only this call.
        while file.by_ref().take(PIECE).read_to_end(&mut piece)? > 0 {
            hasher.update_rayon(&piece);
            piece.clear();
        }
        Ok(Self {
            name,
            bytes: hasher.count(),
            digest: hasher.finalize().to_hex().to_string(),
        })
    }
}

/// Opens a regular file of `directory` for reading. Links are not followed. Pipes and devices,
/// which might block forever, are refused without waiting.
///
/// # Errors
/// When it does not exist, or is not a regular file.
pub fn open_plain(directory: &Path, name: &FileName) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let directory = open(directory, flags, Mode::empty())?;
    let flags =
        OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
    let file = openat2(&directory, name.as_str(), flags, Mode::empty(), resolve)?;
    plain(File::from(file))
}

/// Opens a file that the operator named. Links are followed. Pipes and devices are refused without
/// waiting.
///
/// # Errors
/// When it does not exist, or is not a regular file.
pub fn open_named(path: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    plain(File::from(rustix::fs::openat(
        CWD,
        path,
        flags,
        Mode::empty(),
    )?))
}

fn plain(file: File) -> io::Result<File> {
    if FileType::from_raw_mode(fstat(&file)?.st_mode) == FileType::RegularFile {
        Ok(file)
    } else {
        Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "not a regular file",
        ))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use rustix::fs::mknodat;

    use super::*;

    #[test]
    fn only_a_regular_file_of_the_directory_is_opened_and_pipes_do_not_block() {
        let directory = tempfile::tempdir().unwrap();
        let at = directory.path();
        std::fs::write(at.join("plain"), "x").unwrap();
        symlink("plain", at.join("link")).unwrap();
        std::fs::create_dir(at.join("directory")).unwrap();
        mknodat(
            CWD,
            at.join("pipe"),
            FileType::Fifo,
            Mode::RUSR | Mode::WUSR,
            0,
        )
        .unwrap();
        open_plain(at, &"plain".parse().unwrap()).unwrap();
        for name in ["link", "directory", "pipe", "missing"] {
            assert!(open_plain(at, &name.parse().unwrap()).is_err(), "{name}");
        }
        open_named(&at.join("link")).unwrap();
        for path in [at.join("pipe"), at.join("directory"), "/dev/zero".into()] {
            assert!(open_named(&path).is_err(), "{}", path.display());
        }
    }
}
