//! The files that a runtime writes, and how they are recognized.

use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags, fstat, open, openat2};
use serde::{Deserialize, Serialize};

use super::{FileName, Unreadable};

/// Bytes read at a time for a digest: enough to occupy all processors.
const PIECE: u64 = 4 << 20;

/// One file that the runtime wrote.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryFile {
    /// Its name in the directory.
    pub name: FileName,
    /// Its length.
    pub bytes: u64,
    /// What shows that it is still the file that was saved.
    #[serde(flatten)]
    pub proof: Proof,
}

/// What shows that a file is still the one that was saved.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Proof {
    /// The BLAKE3 digest of its content, in hexadecimal digits.
    Digest(String),
    /// Its inode after its last write. The digest is not computed yet.
    Inode(Inode),
}

/// What the file system records of a file that nobody has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Inode {
    number: u64,
    /// The time of the last change, in seconds and nanoseconds since 1970.
    changed: (i64, i64),
}

impl Inode {
    pub(super) fn of(metadata: &Metadata) -> Self {
        Self {
            number: metadata.ino(),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }
}

impl MemoryFile {
    /// Describes a file by its digest, which it computes on all processors.
    ///
    /// # Errors
    /// When it cannot be read to its end.
    pub(super) fn with_digest(directory: &Path, name: FileName) -> io::Result<Self> {
        let mut hasher = blake3::Hasher::new();
        read(directory, &name, |piece| {
            hasher.update_rayon(piece);
            Ok(())
        })?;
        Ok(Self::digested(name, &hasher))
    }

    /// Describes a file by its inode, after its last write.
    ///
    /// # Errors
    /// When it is missing, or not a regular file.
    pub(super) fn with_inode(directory: &Path, name: FileName) -> io::Result<Self> {
        let metadata = open_plain(directory, &name)?.metadata()?;
        Ok(Self {
            name,
            bytes: metadata.len(),
            proof: Proof::Inode(Inode::of(&metadata)),
        })
    }

    /// The same file with its digest, computed on one processor. `going_on` fails when the work is cancelled. The digest is
    /// of no use if the file was changed before or meanwhile: verify it afterwards.
    ///
    /// # Errors
    /// When the file cannot be read, and when the work is cancelled.
    pub(super) fn add_digest(
        &self,
        directory: &Path,
        going_on: impl Fn() -> io::Result<()>,
    ) -> io::Result<Self> {
        if matches!(self.proof, Proof::Digest(_)) {
            return Ok(self.clone());
        }
        let mut hasher = blake3::Hasher::new();
        read(directory, &self.name, |piece| {
            hasher.update(piece);
            going_on()
        })?;
        Ok(Self::digested(self.name.clone(), &hasher))
    }

    /// Checks that this is the file that was saved.
    ///
    /// # Errors
    /// When it differs, or cannot be read.
    pub(super) fn verify(&self, directory: &Path) -> Result<(), Unreadable> {
        let name = self.name.clone();
        let (found, difference) = match self.proof {
            Proof::Digest(_) => (Self::with_digest(directory, name)?, "its content"),
            Proof::Inode(_) => (
                Self::with_inode(directory, name)?,
                "it was changed after it was saved",
            ),
        };
        if found == *self {
            return Ok(());
        }
        Err(Unreadable::Damaged(self.name.to_string(), difference))
    }

    fn digested(name: FileName, hasher: &blake3::Hasher) -> Self {
        Self {
            name,
            bytes: hasher.count(),
            proof: Proof::Digest(hasher.finalize().to_hex().to_string()),
        }
    }
}

/// Reads a file in pieces.
fn read(
    directory: &Path,
    name: &FileName,
    mut each: impl FnMut(&[u8]) -> io::Result<()>,
) -> io::Result<()> {
    let mut file = open_plain(directory, name)?;
    let mut piece = Vec::new();
    // Not memory-mapped: an unreadable page would kill the whole server, not only this call.
    while file.by_ref().take(PIECE).read_to_end(&mut piece)? > 0 {
        each(&piece)?;
        piece.clear();
    }
    Ok(())
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
