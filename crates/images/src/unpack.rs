//! A layer's archive becomes a directory for overlayfs.
//!
//! The archive is taken for hostile: whoever may name an image chose every byte of it, and the
//! directory is written as root. So names are parsed before they are used, the kernel resolves
//! them beneath the directory without following any link, everything is counted against a limit,
//! and what has no place in an image is refused rather than repaired:
//!
//! * `..` in a name; a hard link to an absolute name, upwards, or to what this layer has not;
//! * a member below a link or a file; a member that replaces a directory;
//! * devices, except below `/dev`, where they are passed over because every OCI runtime mounts
//!   its own `/dev`;
//! * extended attributes `trusted.*` and `user.overlay.*`, with which a layer could tell overlayfs
//!   to look elsewhere. `security.capability` and other `user.*` are kept, the rest is dropped.
//!
//! The same code unpacks the files of an exported snapshot, which is no less hostile: see
//! [`Dialect::Upper`].
//!
//! A layer is unpacked alone, so that it can be shared whatever lies below it. What an archive
//! says of the layers below becomes what overlayfs understands: `.wh.name` a character device
//! 0/0, `.wh..wh..opq` the attribute `trusted.overlay.opaque`.

mod attributes;
mod decode;
mod members;
mod meter;
mod pax;
mod place;
mod sparse;

use std::io::{self, Read};
use std::path::{Path, PathBuf};

pub use self::attributes::{OPAQUE, is_exported};
pub(crate) use self::decode::{decoded, is_compressed};
pub use self::members::{BLOCK, Kind, Member, Members};
pub use self::meter::Meter;
pub use self::pax::{MARK, Mark};
pub use self::place::Unpacker;
pub use self::sparse::Segment;
pub use super::beneath::BadPath as InvalidPath;
use super::beneath::{BadPath, Tree};

/// What a layer may hold, and what the disk must keep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of a layer's archive without compression, and so of its files. No public image comes
    /// near 32 GiB, and a bomb stops there.
    pub bytes: u64,
    /// Bytes of one file, its holes included.
    pub file_bytes: u64,
    /// Members of a layer. The largest images have some hundred thousand files.
    pub entries: u64,
    /// Bytes that stay free on the disk, for the sandboxes that run.
    pub reserve_bytes: u64,
    /// Inodes that stay free on the disk, for the same reason.
    pub reserve_inodes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            bytes: 32 << 30,
            file_bytes: 32 << 30,
            entries: 2_000_000,
            reserve_bytes: 1 << 30,
            reserve_inodes: 10_000,
        }
    }
}

/// Whose archive it is, which decides what its members may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    /// A layer of an image.
    Layer,
    /// What a sandbox wrote, as the export of a snapshot archives it. Names that begin with `.wh.` are
    /// ordinary; whiteouts and opaque directories are members with a [`Mark`]. Devices and
    /// attributes that no export has are refused, as are owners from `users` on.
    Upper {
        /// The number of users that the sandbox has.
        users: u32,
    },
}

/// What was unpacked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Unpacked {
    /// Bytes of files.
    pub bytes: u64,
    /// Members taken in.
    pub entries: u64,
}

/// What a layer must not hold.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// A name that is not one.
    #[error("name {name:?}: {why}")]
    Name {
        /// The name, as far as it is shown.
        name: String,
        /// What is wrong with it.
        why: BadPath,
    },
    /// A hard link to an absolute name, upwards, or to no file of this layer.
    #[error("{0} is a hard link to {1:?}, which is no file of this layer")]
    HardLink(String, String),
    /// A symbolic link without a target, or with one that cannot be.
    #[error("{0} is a symbolic link to nothing that can be named")]
    Symlink(String),
    /// A member below a symbolic link or a file.
    #[error("{0} lies below what is no directory")]
    NotBelowDirectory(String),
    /// A member in the place of a directory.
    #[error("{0} takes the place of a directory")]
    ReplacesDirectory(String),
    /// A device outside `/dev`.
    #[error("{0} is a device")]
    Device(String),
    /// An attribute with which a layer could deceive overlayfs.
    #[error("{0} has the extended attribute {1}")]
    Attribute(String, String),
    /// An owner whom the sandbox does not have.
    #[error("{0} belongs to user or group {1}, whom the sandbox does not have")]
    Owner(String, u32),
    /// A kind of member that no image has.
    #[error("a member is of the unknown kind {0}")]
    UnknownKind(u8),
    /// An extended header that is too long.
    #[error("an extended header has {0} bytes")]
    LongHeader(u64),
    /// A sparse file of too many parts.
    #[error("a sparse file has too many parts")]
    TooSparse,
    /// More members than are allowed.
    #[error("it has more than {0} members")]
    TooManyEntries(u64),
    /// More bytes than are allowed.
    #[error("it has more than {0} bytes")]
    TooManyBytes(u64),
    /// A file that is longer than is allowed, holes included.
    #[error("a file has more than {0} bytes")]
    LongFile(u64),
}

/// Why a layer was not unpacked.
#[derive(Debug, thiserror::Error)]
pub enum UnpackError {
    /// It holds what it must not, or more than is allowed.
    #[error("refused: {0}")]
    Refused(#[from] Refusal),
    /// It is not an archive, or not all of one.
    #[error("corrupt: {0}")]
    Corrupt(String),
    /// Unpacking it would leave too little space on the disk.
    #[error("no space left")]
    NoSpace,
    /// The directory could not be written.
    #[error("cannot {action} {}", path.display())]
    Io {
        /// What was being done.
        action: &'static str,
        /// To what, in the layer.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
}

/// Unpacks an archive without compression into the directory `into`, which is empty and ours,
/// and reads `source` to its end.
///
/// # Errors
/// See [`UnpackError`]. The directory then holds a part of the layer.
pub fn unpack(source: impl Read, into: &Path, limits: &Limits) -> Result<Unpacked, UnpackError> {
    let tree = Tree::open(into).map_err(|source| UnpackError::Io {
        action: "open",
        path: into.to_owned(),
        source,
    })?;
    let mut members = Members::new(source, limits);
    let mut unpacker = Unpacker::new(&tree, limits, Dialect::Layer)?;
    while let Some(member) = members.next_member()? {
        unpacker.take(&member, &mut members)?;
    }
    members.drain()?;
    unpacker.finish()
}

/// Unpacks `bytes`, compressed or not, into the directory `into`: the door for fuzzing, behind
/// which lies everything that a layer from a registry passes through.
///
/// # Errors
/// See [`UnpackError`].
pub fn unpack_bytes(bytes: &[u8], into: &Path, limits: &Limits) -> Result<Unpacked, UnpackError> {
    let source = decoded(bytes).map_err(|e| UnpackError::Corrupt(e.to_string()))?;
    unpack(source, into, limits)
}

#[cfg(test)]
mod tests;
