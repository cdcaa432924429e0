//! A home directory that nothing leads out of.
//!
//! Paths are walked one name at a time from an open directory, and no link is followed (gVisor has no `openat2`). A
//! directory in which another file system is mounted is no part of the home.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;
use shoal_session_files::path::SessionPath;

/// Mode of new directories before the umask.
const DIRECTORY_MODE: u32 = 0o777;

/// To look for names in a directory, without the right to list it.
const WALK: OFlags = OFlags::PATH
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

/// To list a directory.
const LIST: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

/// For a regular file: whatever is in its place does not block and does not become a terminal.
const FILE: OFlags = OFlags::NOFOLLOW
    .union(OFlags::NONBLOCK)
    .union(OFlags::NOCTTY)
    .union(OFlags::CLOEXEC);

/// Why a path does not lead to the expected file.
#[derive(Debug, thiserror::Error)]
pub(super) enum PathError {
    /// It does not exist.
    #[error("nothing is at {0}")]
    Missing(String),
    /// Something is in the way, or at the end.
    #[error("{at} is {what}")]
    InTheWay {
        /// Where.
        at: String,
        /// Its kind.
        what: &'static str,
    },
    /// A system call failed.
    #[error("{at}: {source}")]
    System {
        /// Where.
        at: String,
        /// The cause.
        source: io::Error,
    },
}

impl PathError {
    pub(super) fn system(at: &str, source: impl Into<io::Error>) -> Self {
        let at = if at.is_empty() {
            "the home directory"
        } else {
            at
        };
        Self::System {
            at: at.to_owned(),
            source: source.into(),
        }
    }
}

/// An open home directory.
pub(super) struct Home {
    root: OwnedFd,
    /// Its device and inode.
    pub(super) id: (u64, u64),
}

impl Home {
    /// Opens the directory of a user.
    ///
    /// # Errors
    /// When it is no directory, or another user's.
    pub(super) fn open(path: &Path, uid: u32) -> Result<Self, PathError> {
        let shown = path.display().to_string();
        let root = rustix::fs::open(path, LIST, Mode::empty());
        let root = root.map_err(|errno| match errno {
            Errno::NOENT => PathError::Missing(shown.clone()),
            Errno::NOTDIR | Errno::LOOP => PathError::InTheWay {
                at: shown.clone(),
                what: "no directory",
            },
            errno => PathError::system(&shown, errno),
        })?;
        let stat = rustix::fs::fstat(&root).map_err(|errno| PathError::system(&shown, errno))?;
        if stat.st_uid != uid {
            return Err(PathError::InTheWay {
                at: shown,
                what: "the directory of another user",
            });
        }
        Ok(Self {
            id: (stat.st_dev, stat.st_ino),
            root,
        })
    }

    /// Whether it was removed.
    pub(super) fn is_gone(&self) -> bool {
        rustix::fs::fstat(&self.root).is_ok_and(|stat| stat.st_nlink == 0)
    }

    /// Removes a directory. Fails if something is in it.
    ///
    /// # Errors
    /// When it is not there, or not empty.
    pub(super) fn remove_directory(&self, path: &SessionPath) -> Result<(), PathError> {
        let up = self.parent(path)?;
        let removed = rustix::fs::unlinkat(up, path.name(), AtFlags::REMOVEDIR);
        removed.map_err(|errno| PathError::system(path.as_str(), errno))
    }

    /// Opens a directory to list it. The empty path is the home itself.
    ///
    /// # Errors
    /// When it is missing, or something else is in the way.
    pub(super) fn list(&self, path: &str) -> Result<OwnedFd, PathError> {
        self.descend(path, LIST)
    }

    /// Opens the directory that a path is in.
    ///
    /// # Errors
    /// When it is missing, or something else is in the way.
    pub(super) fn parent(&self, path: &SessionPath) -> Result<OwnedFd, PathError> {
        self.descend(parent(path), WALK)
    }

    /// The same, and makes it if it is missing.
    ///
    /// # Errors
    /// When something else is in the way, or it cannot be made.
    pub(super) fn make_parent(&self, path: &SessionPath) -> Result<OwnedFd, PathError> {
        match self.parent(path) {
            Err(PathError::Missing(_)) => {}
            other => return other,
        }
        let mut at = self.start(WALK)?;
        for (name, so_far) in steps(parent(path)) {
            let made = rustix::fs::mkdirat(&at, name, Mode::from_raw_mode(DIRECTORY_MODE));
            if let Err(errno) = made
                && errno != Errno::EXIST
            {
                return Err(PathError::system(so_far, errno));
            }
            at = self.step(&at, name, so_far, WALK)?;
        }
        Ok(at)
    }

    fn start(&self, flags: OFlags) -> Result<OwnedFd, PathError> {
        let root = rustix::fs::openat(&self.root, ".", flags, Mode::empty());
        root.map_err(|errno| PathError::system("", errno))
    }

    fn descend(&self, path: &str, last: OFlags) -> Result<OwnedFd, PathError> {
        if path.is_empty() {
            return self.start(last);
        }
        let mut at = None;
        for (name, so_far) in steps(path) {
            let flags = if so_far.len() == path.len() {
                last
            } else {
                WALK
            };
            let from = at.as_ref().unwrap_or(&self.root);
            at = Some(self.step(from, name, so_far, flags)?);
        }
        at.ok_or_else(|| PathError::Missing(path.to_owned()))
    }

    fn step(
        &self,
        from: &OwnedFd,
        name: &str,
        so_far: &str,
        flags: OFlags,
    ) -> Result<OwnedFd, PathError> {
        let next = rustix::fs::openat(from, name, flags, Mode::empty());
        let next = next.map_err(|errno| match errno {
            Errno::NOENT => PathError::Missing(so_far.to_owned()),
            Errno::NOTDIR | Errno::LOOP => in_the_way(from, name, so_far),
            errno => PathError::system(so_far, errno),
        })?;
        let stat = rustix::fs::fstat(&next).map_err(|errno| PathError::system(so_far, errno))?;
        if stat.st_dev != self.id.0 {
            return Err(PathError::InTheWay {
                at: so_far.to_owned(),
                what: "on another file system",
            });
        }
        Ok(next)
    }
}

fn in_the_way(from: &OwnedFd, name: &str, at: &str) -> PathError {
    let what = look(from, name).map(|stat| describe(&stat));
    PathError::InTheWay {
        at: at.to_owned(),
        what: what.unwrap_or("no directory"),
    }
}

/// The directory of a path, as text; empty for the home.
pub(super) fn parent(path: &SessionPath) -> &str {
    path.as_str().rsplit_once('/').map_or("", |(up, _)| up)
}

/// Each name of a path, and the path up to it.
fn steps(path: &str) -> impl Iterator<Item = (&str, &str)> {
    let ends = path.match_indices('/').map(|(at, _)| at);
    let mut from = 0;
    ends.chain([path.len()]).filter_map(move |end| {
        let step = (path.get(from..end)?, path.get(..end)?);
        from = end + 1;
        (!step.0.is_empty()).then_some(step)
    })
}

/// Describes an entry without following a link.
///
/// # Errors
/// When it is missing.
pub(super) fn look(directory: impl AsFd, name: &str) -> Result<Stat, Errno> {
    rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)
}

/// The kind of an entry, in words.
pub(super) fn describe(stat: &Stat) -> &'static str {
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => "a file",
        FileType::Directory => "a directory",
        FileType::Symlink => "a link",
        FileType::Fifo => "a pipe",
        FileType::Socket => "a socket",
        _ => "a device",
    }
}

/// Whether it is a regular file.
pub(super) fn is_regular(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
}

/// Opens a regular file, for reading or writing.
///
/// # Errors
/// When it is missing or something else. Nothing else is opened unless it takes the place of a file at this very moment.
pub(super) fn open(
    directory: impl AsFd,
    path: &SessionPath,
    access: OFlags,
) -> Result<(File, Stat), PathError> {
    let at = path.as_str();
    // Opening a pipe would wake a process that waits at its other end.
    let seen = look(&directory, path.name()).map_err(|errno| failed(errno, at))?;
    regular(seen, at)?;
    open_seen(directory, path, access)
}

/// The same, at a path that [`look`] has just shown to have a regular file.
///
/// # Errors
/// When it is missing or something else.
pub(super) fn open_seen(
    directory: impl AsFd,
    path: &SessionPath,
    access: OFlags,
) -> Result<(File, Stat), PathError> {
    let at = path.as_str();
    let file = rustix::fs::openat(&directory, path.name(), FILE | access, Mode::empty());
    let file = file.map_err(|errno| failed(errno, at))?;
    let stat = rustix::fs::fstat(&file).map_err(|errno| failed(errno, at))?;
    Ok((file.into(), regular(stat, at)?))
}

/// The error of a file that cannot be opened.
fn failed(errno: Errno, at: &str) -> PathError {
    match errno {
        Errno::NOENT => PathError::Missing(at.to_owned()),
        Errno::LOOP => PathError::InTheWay {
            at: at.to_owned(),
            what: "a link",
        },
        errno => PathError::system(at, errno),
    }
}

/// Makes a regular file, for writing.
///
/// # Errors
/// When the path exists.
pub(super) fn create(directory: impl AsFd, path: &SessionPath, mode: u32) -> Result<File, Errno> {
    let flags = FILE | OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
    let mode = Mode::from_raw_mode(mode);
    Ok(rustix::fs::openat(directory, path.name(), flags, mode)?.into())
}

fn regular(stat: Stat, at: &str) -> Result<Stat, PathError> {
    if is_regular(&stat) {
        return Ok(stat);
    }
    Err(PathError::InTheWay {
        at: at.to_owned(),
        what: describe(&stat),
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn path(text: &str) -> SessionPath {
        text.parse().unwrap()
    }

    fn home() -> (tempfile::TempDir, Home) {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::open(dir.path(), rustix::process::geteuid().as_raw()).unwrap();
        (dir, home)
    }

    #[test]
    fn r2_056_no_link_is_followed() {
        let (dir, home) = home();
        let outside = tempfile::tempdir().unwrap();
        std::fs::write(outside.path().join("secret"), "x").unwrap();
        symlink(outside.path(), dir.path().join("out")).unwrap();
        symlink(outside.path().join("secret"), dir.path().join("file")).unwrap();
        for asked in ["out/secret", "out/new/deep"] {
            let error = home.make_parent(&path(asked)).unwrap_err();
            assert_eq!(error.to_string(), "out is a link", "{asked}");
        }
        let up = home.parent(&path("file")).unwrap();
        for access in [OFlags::RDONLY, OFlags::WRONLY] {
            let error = open(&up, &path("file"), access).unwrap_err();
            assert_eq!(error.to_string(), "file is a link");
        }
        assert_eq!(create(&up, &path("file"), 0o644).unwrap_err(), Errno::EXIST);
        assert!(home.list("out").is_err());
        assert!(Home::open(&dir.path().join("out"), 0).is_err());
        assert_eq!(std::fs::read_dir(outside.path()).unwrap().count(), 1);
    }

    #[test]
    fn directories_are_made_and_what_is_in_the_way_is_named() {
        let (dir, home) = home();
        home.make_parent(&path("a/b/c")).unwrap();
        assert!(dir.path().join("a/b").is_dir());
        std::fs::write(dir.path().join("f"), "").unwrap();
        let error = home.make_parent(&path("f/x/y")).unwrap_err();
        assert_eq!(error.to_string(), "f is a file");
        let error = home.parent(&path("none/x")).unwrap_err();
        assert!(matches!(error, PathError::Missing(at) if at == "none"));
        let up = home.parent(&path("a")).unwrap();
        let error = open(&up, &path("a"), OFlags::RDONLY).unwrap_err();
        assert_eq!(error.to_string(), "a is a directory");
    }

    #[test]
    fn a_home_is_its_user_s() {
        let dir = tempfile::tempdir().unwrap();
        let other = rustix::process::geteuid().as_raw() + 1;
        let error = Home::open(dir.path(), other).err().unwrap().to_string();
        assert!(error.ends_with("the directory of another user"), "{error}");
    }
}
