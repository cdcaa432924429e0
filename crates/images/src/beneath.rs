//! A file tree that no path can leave.
//!
//! The author of an image chooses its names. Every name is parsed into a [`TreePath`], which cannot
//! contain `..`. The kernel resolves it below a descriptor of the tree's root (`openat2` with
//! `RESOLVE_BENEATH`, and without magic links). A link in the tree therefore cannot lead out of it,
//! even if this program has a bug.

use std::ffi::OsStr;
use std::fmt;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Gid, Mode, OFlags, ResolveFlags, Stat, Timespec, Timestamps, Uid,
    fchmod, fchown, fstat, futimens, mkdirat, open, openat, openat2, statat, unlinkat,
};
use rustix::io::Errno;

/// The longest file name on Linux.
const NAME_MAX: usize = 255;

/// The longest path of a Linux system call, without its terminating zero.
const PATH_MAX: usize = 4095;

/// How deeply directories may be nested. Real images need about sixty levels (packages of
/// packages). Removing a tree takes a descriptor per level, of which a process has 1024.
const DEPTH_MAX: usize = 256;

/// No component may be a symbolic link, a link of `/proc`, or on another file system.
const STRICT: ResolveFlags = ResolveFlags::BENEATH
    .union(ResolveFlags::NO_MAGICLINKS)
    .union(ResolveFlags::NO_SYMLINKS)
    .union(ResolveFlags::NO_XDEV);

/// Links are followed if they stay in the tree, like `/bin` to `usr/bin`.
const WITHIN: ResolveFlags = ResolveFlags::BENEATH
    .union(ResolveFlags::NO_MAGICLINKS)
    .union(ResolveFlags::NO_XDEV);

const DIRECTORY: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

/// A path in a tree: names only, relative to the tree's root.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TreePath(Vec<u8>);

/// Why a text is not a path in a tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadPath {
    /// It contains `..`.
    #[error("it leads upwards")]
    Upwards,
    /// It, or one of its names, is longer than Linux allows.
    #[error("it is too long")]
    TooLong,
    /// It has more names than are allowed.
    #[error("it is too deep")]
    TooDeep,
    /// It contains a zero byte.
    #[error("it has a zero byte")]
    ZeroByte,
}

impl TreePath {
    /// The root of the tree.
    pub fn root() -> Self {
        Self(Vec::new())
    }

    /// Parses a path. A leading slash stands for the root of the tree; empty names and `.` are
    /// skipped.
    pub fn parse(raw: &[u8]) -> Result<Self, BadPath> {
        let mut path = Self::root();
        let mut depth = 0;
        for name in raw.split(|b| *b == b'/') {
            match name {
                b"" | b"." => continue,
                b".." => return Err(BadPath::Upwards),
                name if name.contains(&0) => return Err(BadPath::ZeroByte),
                name if name.len() > NAME_MAX => return Err(BadPath::TooLong),
                name => path.push(name),
            }
            depth += 1;
            if depth > DEPTH_MAX {
                return Err(BadPath::TooDeep);
            }
        }
        if path.0.len() > PATH_MAX {
            return Err(BadPath::TooLong);
        }
        Ok(path)
    }

    /// The path of `name` in this directory.
    pub fn join(&self, name: &[u8]) -> Self {
        let mut path = self.clone();
        path.push(name);
        path
    }

    fn push(&mut self, name: &[u8]) {
        if !self.0.is_empty() {
            self.0.push(b'/');
        }
        self.0.extend_from_slice(name);
    }

    /// Its parent directory and its name there; `None` for the root.
    pub fn split(&self) -> Option<(Self, &[u8])> {
        if self.0.is_empty() {
            return None;
        }
        let at = self.0.iter().rposition(|b| *b == b'/');
        Some(match at {
            Some(at) => (Self(self.0[..at].to_vec()), &self.0[at + 1..]),
            None => (Self::root(), &self.0),
        })
    }

    /// Its names, outermost first.
    pub fn names(&self) -> impl Iterator<Item = &[u8]> {
        self.0.split(|b| *b == b'/').filter(|name| !name.is_empty())
    }

    /// The path as bytes, without a leading slash.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The path for an error message.
    pub(crate) fn to_path(&self) -> PathBuf {
        Path::new(OsStr::from_bytes(&self.0)).to_owned()
    }

    /// The path for the kernel: `.` for the root.
    fn lookup(&self) -> &[u8] {
        if self.0.is_empty() { b"." } else { &self.0 }
    }
}

impl fmt::Display for TreePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "/{}", self.0.escape_ascii())
    }
}

impl fmt::Debug for TreePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A tree, represented by a descriptor of its root.
#[derive(Debug)]
pub struct Tree {
    root: OwnedFd,
}

impl Tree {
    /// Opens the tree at `path`, which is our own path and not from an image.
    pub fn open(path: &Path) -> io::Result<Self> {
        Ok(Self {
            root: open(path, DIRECTORY, Mode::empty())?,
        })
    }

    /// The tree's own directory.
    pub fn root(&self) -> BorrowedFd<'_> {
        self.root.as_fd()
    }

    /// Opens a directory without following links.
    pub fn directory(&self, path: &TreePath) -> Result<OwnedFd, Errno> {
        openat2(&self.root, path.lookup(), DIRECTORY, Mode::empty(), STRICT)
    }

    /// Opens a file, following links that stay in the tree.
    pub(crate) fn open_within(&self, path: &TreePath, flags: OFlags) -> Result<OwnedFd, Errno> {
        openat2(
            &self.root,
            path.lookup(),
            flags | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY,
            Mode::empty(),
            WITHIN,
        )
    }

    /// Opens a directory, following links that stay in the tree. Missing directories are created,
    /// owned by root and readable by all.
    pub(crate) fn make_directories(&self, path: &TreePath) -> Result<OwnedFd, Errno> {
        let mut at = TreePath::root();
        for name in path.names() {
            let here = self.open_within(&at, OFlags::RDONLY | OFlags::DIRECTORY)?;
            at = at.join(name);
            match mkdirat(&here, name, Mode::from_raw_mode(0o755)) {
                // The umask must not affect an image's contents.
                Ok(()) => {
                    rustix::fs::chmodat(&here, name, Mode::from_raw_mode(0o755), AtFlags::empty())?
                }
                Err(Errno::EXIST) => (),
                Err(error) => return Err(error),
            }
        }
        self.open_within(&at, OFlags::RDONLY | OFlags::DIRECTORY)
    }

    /// Reads a regular file, following links that stay in the tree.
    pub fn read(&self, path: &TreePath, most: u64) -> Result<Vec<u8>, Errno> {
        let file = self.open_within(path, OFlags::RDONLY)?;
        let stat = fstat(&file)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(Errno::INVAL);
        }
        if u64::try_from(stat.st_size).is_ok_and(|size| size > most) {
            return Err(Errno::FBIG);
        }
        let mut content = Vec::new();
        let read = File::from(file).take(most).read_to_end(&mut content);
        read.map_err(|e| Errno::from_io_error(&e).unwrap_or(Errno::IO))?;
        Ok(content)
    }

    /// Writes a file, replacing anything except a directory. Missing parent directories are
    /// created.
    pub(crate) fn write(
        &self,
        path: &TreePath,
        content: &[u8],
        mode: u32,
        owner: FileOwner,
    ) -> Result<(), Errno> {
        let (above, name) = path.split().ok_or(Errno::ISDIR)?;
        let parent = self.make_directories(&above)?;
        match unlinkat(&parent, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => (),
            Err(error) => return Err(error),
        }
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let file = File::from(openat(&parent, name, flags, Mode::RUSR | Mode::WUSR)?);
        (&file)
            .write_all(content)
            .map_err(|e| Errno::from_io_error(&e).unwrap_or(Errno::IO))?;
        owner.take(file.as_fd())?;
        fchmod(&file, Mode::from_raw_mode(mode))
    }

    /// Rewrites a file and keeps its owner; a new file belongs to root.
    pub fn replace(&self, path: &TreePath, content: &[u8], mode: u32) -> Result<(), Errno> {
        let owner = match self.open_within(path, OFlags::RDONLY) {
            Ok(file) => {
                let stat = fstat(&file)?;
                FileOwner {
                    uid: stat.st_uid,
                    gid: stat.st_gid,
                }
            }
            Err(Errno::NOENT) => FileOwner::ROOT,
            Err(error) => return Err(error),
        };
        self.write(path, content, mode, owner)
    }
}

/// The owner of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FileOwner {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
}

impl FileOwner {
    pub(crate) const ROOT: Self = Self { uid: 0, gid: 0 };

    /// Sets a file's owner.
    pub(crate) fn take(self, file: BorrowedFd<'_>) -> Result<(), Errno> {
        fchown(
            file,
            Some(Uid::from_raw(self.uid)),
            Some(Gid::from_raw(self.gid)),
        )
    }
}

/// Opens the directory `name` of `parent`; never a link, never another file system.
pub fn child(parent: BorrowedFd<'_>, name: &[u8]) -> Result<OwnedFd, Errno> {
    openat2(parent, name, DIRECTORY, Mode::empty(), STRICT)
}

/// The metadata of `name` in `parent` itself; `None` if it does not exist.
pub fn look(parent: BorrowedFd<'_>, name: &[u8]) -> Result<Option<Stat>, Errno> {
    match statat(parent, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Ok(Some(stat)),
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(error),
    }
}

/// When this directory's contents last changed.
pub(crate) fn changed_at(directory: BorrowedFd<'_>) -> Result<Timespec, Errno> {
    let stat = fstat(directory)?;
    Ok(Timespec {
        tv_sec: stat.st_mtime,
        tv_nsec: stat.st_mtime_nsec.try_into().unwrap_or(0),
    })
}

/// Sets this file's modification and access times.
pub(crate) fn set_changed_at(file: BorrowedFd<'_>, moment: Timespec) -> Result<(), Errno> {
    futimens(
        file,
        &Timestamps {
            last_access: moment,
            last_modification: moment,
        },
    )
}

/// The names in a directory, sorted.
pub fn names(directory: BorrowedFd<'_>) -> Result<Vec<Vec<u8>>, Errno> {
    let mut names = Vec::new();
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name != b"." && name != b".." {
            names.push(name.to_vec());
        }
    }
    names.sort_unstable();
    Ok(names)
}

/// Removes `name` from `parent` with everything below it. Links are removed, not followed. A
/// mounted file system below is an error, so its files are safe.
pub fn remove(parent: BorrowedFd<'_>, name: &[u8]) -> Result<(), Errno> {
    let Some(stat) = look(parent, name)? else {
        return Ok(());
    };
    if FileType::from_raw_mode(stat.st_mode) != FileType::Directory {
        return unlinkat(parent, name, AtFlags::empty());
    }
    let directory = child(parent, name)?;
    for inner in names(directory.as_fd())? {
        remove(directory.as_fd(), &inner)?;
    }
    unlinkat(parent, name, AtFlags::REMOVEDIR)
}

/// Removes the tree at `path`, our own path. Idempotent.
pub(crate) fn remove_tree(path: &Path) -> io::Result<()> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    match openat(CWD, parent, DIRECTORY, Mode::empty()) {
        Ok(parent) => Ok(remove(parent.as_fd(), name.as_bytes())?),
        Err(Errno::NOENT) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests;
