//! A member of an archive.

use tar::EntryType;

use super::attributes::Attribute;
use super::pax::Mark;
use super::sparse::Segment;
use super::{Refusal, UnpackError};

/// The kind of a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A hard link to an earlier member.
    HardLink,
    /// A named pipe.
    Fifo,
    /// A block or character device.
    Device,
}

impl Kind {
    /// The kind of a member with this header.
    pub(super) fn of(entry_type: EntryType, path: &[u8]) -> Result<Self, UnpackError> {
        Ok(match entry_type {
            // Archives from before 1988 mark a directory only by a trailing slash.
            EntryType::Regular if path.ends_with(b"/") => Self::Directory,
            EntryType::Regular | EntryType::Continuous | EntryType::GNUSparse => Self::File,
            EntryType::Directory => Self::Directory,
            EntryType::Symlink => Self::Symlink,
            EntryType::Link => Self::HardLink,
            EntryType::Fifo => Self::Fifo,
            EntryType::Char | EntryType::Block => Self::Device,
            other => return Err(Refusal::UnknownKind(other.as_byte()).into()),
        })
    }
}

/// One member of an archive.
#[derive(Debug)]
pub struct Member {
    /// Its name as written in the archive.
    pub path: Vec<u8>,
    /// The target of a link.
    pub link: Vec<u8>,
    /// Its kind.
    pub kind: Kind,
    /// The permission bits.
    pub mode: u32,
    /// The user id of its owner.
    pub uid: u32,
    /// Its group id.
    pub gid: u32,
    /// The modification time: seconds and nanoseconds since 1970.
    pub changed: (i64, u32),
    /// The length of the file.
    pub size: u64,
    /// The parts of the file that have data: the whole file, unless it is sparse.
    pub segments: Vec<Segment>,
    /// The extended attributes.
    pub xattrs: Vec<Attribute>,
    /// Its meaning for overlayfs; only exports set it.
    pub mark: Option<Mark>,
}
