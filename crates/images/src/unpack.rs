//! Unpacking a layer's archive into a directory for overlayfs.
//!
//! The archive is hostile input: a tenant who may name an image chooses every byte of it, and the
//! directory is written as root. Names are therefore parsed before use, the kernel resolves them
//! beneath the directory without following links, and everything is counted against a limit.
//! Anything that has no place in an image is refused instead of repaired:
//!
//! * `..` in a name; a hard link to an absolute name, upwards, or to a file that is not in this
//!   layer;
//! * a member below a link or a file; a member that replaces a directory;
//! * devices, except below `/dev`, where they are skipped because every OCI runtime mounts its own
//!   `/dev`;
//! * extended attributes `trusted.*` and `user.overlay.*`, with which a layer could redirect
//!   overlayfs. `security.capability` and other `user.*` are kept, the rest is dropped.
//!
//! The same code unpacks the files of an exported snapshot, which is just as hostile: see
//! [`Dialect::Upper`].
//!
//! A layer is unpacked independently of the layers below, so that images can share it. References
//! to lower layers are translated for overlayfs: `.wh.name` becomes a character device 0/0, and
//! `.wh..wh..opq` the attribute `trusted.overlay.opaque`.

mod attributes;
mod decode;
mod member;
mod members;
mod meter;
mod pax;
mod place;
mod sparse;

use std::io::{self, Read};
use std::path::{Path, PathBuf};

pub use self::attributes::{OPAQUE, is_exported};
pub(crate) use self::decode::{decoded, is_compressed};
pub use self::member::{Kind, Member};
pub use self::members::{BLOCK, Members};
pub use self::meter::Meter;
pub use self::pax::{MARK, Mark};
pub use self::place::Unpacker;
pub use self::sparse::Segment;
pub use super::beneath::BadPath as InvalidPath;
use super::beneath::{BadPath, Tree};

/// The limits of a layer, and the disk's reserve.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of a layer's uncompressed archive, and thus of its files. No public image comes near
    /// 32 GiB, and a decompression bomb stops there.
    pub bytes: u64,
    /// Bytes of one file, its holes included.
    pub file_bytes: u64,
    /// Members of a layer. The largest images have a few hundred thousand files.
    pub entries: u64,
    /// Bytes that stay free on the disk for running sandboxes.
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

/// The origin of an archive, which decides which members are allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    /// A layer of an image.
    Layer,
    /// The writable layer of a sandbox, as the export of a snapshot archives it. Names that start
    /// with `.wh.` are ordinary; whiteouts and opaque directories are members with a [`Mark`].
    /// Devices and attributes that no export has are refused, as are owners from `users` on.
    Upper {
        /// The number of users in the sandbox's user namespace.
        users: u32,
    },
}

/// The totals of an unpacked archive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Unpacked {
    /// Bytes of files.
    pub bytes: u64,
    /// Members unpacked.
    pub entries: u64,
}

/// Why an archive is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// An invalid name.
    #[error("name {name:?}: {why}")]
    Name {
        /// The name, truncated for display.
        name: String,
        /// The problem.
        why: BadPath,
    },
    /// A hard link to an absolute name, upwards, or to a file that is not in this layer.
    #[error("{0} is a hard link to {1:?}, which is not a file in this layer")]
    HardLink(String, String),
    /// A symbolic link without a target, or with an invalid one.
    #[error("{0} is a symbolic link to nothing that can be named")]
    Symlink(String),
    /// A member below a symbolic link or a file.
    #[error("{0} is below something that is not a directory")]
    NotBelowDirectory(String),
    /// A member that would replace a directory.
    #[error("{0} takes the place of a directory")]
    ReplacesDirectory(String),
    /// A device outside `/dev`.
    #[error("{0} is a device")]
    Device(String),
    /// An attribute with which a layer could redirect overlayfs.
    #[error("{0} has the extended attribute {1}")]
    Attribute(String, String),
    /// An owner that does not exist in the sandbox.
    #[error("{0} belongs to user or group {1}, whom the sandbox does not have")]
    Owner(String, u32),
    /// A kind of member that images do not have.
    #[error("a member is of the unknown kind {0}")]
    UnknownKind(u8),
    /// An extended header that is too long.
    #[error("an extended header has {0} bytes")]
    LongHeader(u64),
    /// A sparse file with too many parts.
    #[error("a sparse file has too many parts")]
    TooSparse,
    /// More members than are allowed.
    #[error("it has more than {0} members")]
    TooManyEntries(u64),
    /// More bytes than are allowed.
    #[error("it has more than {0} bytes")]
    TooManyBytes(u64),
    /// A file longer than allowed, including holes.
    #[error("a file has more than {0} bytes")]
    LongFile(u64),
}

/// Why a layer was not unpacked.
#[derive(Debug, thiserror::Error)]
pub enum UnpackError {
    /// It has forbidden contents, or more than allowed.
    #[error("refused: {0}")]
    Refused(#[from] Refusal),
    /// It is not an archive, or an incomplete one.
    #[error("corrupt: {0}")]
    Corrupt(String),
    /// Unpacking it would leave too little space on the disk.
    #[error("no space left")]
    NoSpace,
    /// The directory could not be written.
    #[error("cannot {action} {}", path.display())]
    Io {
        /// The operation.
        action: &'static str,
        /// The path in the layer.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: io::Error,
    },
}

/// Unpacks an uncompressed archive into the empty directory `into`, our own path. Reads `source` to
/// its end.
///
/// # Errors
/// See [`UnpackError`]. The directory then contains a part of the layer.
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

/// Unpacks `bytes`, compressed or not, into the directory `into`. This is the entry point for
/// fuzzing: it covers all code that a layer from a registry passes through.
///
/// # Errors
/// See [`UnpackError`].
pub fn unpack_bytes(bytes: &[u8], into: &Path, limits: &Limits) -> Result<Unpacked, UnpackError> {
    let source = decoded(bytes).map_err(|e| UnpackError::Corrupt(e.to_string()))?;
    unpack(source, into, limits)
}

#[cfg(test)]
mod tests;
