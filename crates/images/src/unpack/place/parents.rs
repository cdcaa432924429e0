//! The parent directories of members.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, Mode, Timespec, mkdirat, unlinkat};
use rustix::io::Errno;

use super::{failed, is_whiteout};
use crate::beneath::{Tree, TreePath, changed_at, child, look, set_changed_at};
use crate::unpack::{Refusal, UnpackError, attributes};

/// The time of a directory without a member of its own: constant, so that layers are reproducible.
const UNKNOWN: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 0,
};

/// Opens the directories of members, and caches the last one, because the next member usually is in
/// the same directory.
///
/// Creating an entry changes the directory's time, which is restored when the directory is
/// released. Remembering the times of all directories until the end would let an archive exhaust
/// the memory.
pub(super) struct Parents<'a> {
    tree: &'a Tree,
    held: Option<OpenDirectory>,
}

struct OpenDirectory {
    path: TreePath,
    directory: OwnedFd,
    changed: Timespec,
}

impl<'a> Parents<'a> {
    pub(super) fn new(tree: &'a Tree) -> Self {
        Self { tree, held: None }
    }

    /// The directory of `path`, and the name of `path` in it. Missing directories are created;
    /// links are not followed.
    pub(super) fn of<'p>(
        &mut self,
        path: &'p TreePath,
    ) -> Result<(BorrowedFd<'_>, &'p [u8]), UnpackError> {
        let Some((above, name)) = path.split() else {
            return Err(Refusal::ReplacesDirectory(path.to_string()).into());
        };
        if self.held.as_ref().is_none_or(|held| held.path != above) {
            self.let_go()?;
            let directory = match self.tree.directory(&above) {
                Ok(directory) => directory,
                Err(Errno::NOENT | Errno::NOTDIR) => self.make(&above)?,
                Err(Errno::LOOP) => return Err(misplaced(path)),
                Err(error) => return Err(failed("open", &above)(error)),
            };
            let changed = changed_at(directory.as_fd()).map_err(failed("look at", &above))?;
            self.held = Some(OpenDirectory {
                path: above,
                directory,
                changed,
            });
        }
        match &self.held {
            Some(held) => Ok((held.directory.as_fd(), name)),
            None => Err(misplaced(path)),
        }
    }

    /// Releases the cached directory.
    pub(super) fn let_go(&mut self) -> Result<(), UnpackError> {
        match self.held.take() {
            Some(held) => set_changed_at(held.directory.as_fd(), held.changed)
                .map_err(failed("set the time of", &held.path)),
            None => Ok(()),
        }
    }

    /// Creates the directory `path` and its parents, as far as they are missing.
    fn make(&self, path: &TreePath) -> Result<OwnedFd, UnpackError> {
        let mut at = TreePath::root();
        let mut here = self.tree.directory(&at).map_err(failed("open", &at))?;
        for name in path.names() {
            at = at.join(name);
            here = match child(here.as_fd(), name) {
                Ok(directory) => directory,
                Err(Errno::NOENT) => make_one(here.as_fd(), name, &at, false)?,
                // A hidden name that now has entries below it: a new directory.
                Err(Errno::NOTDIR) if hidden(here.as_fd(), name) => {
                    make_one(here.as_fd(), name, &at, true)?
                }
                Err(Errno::NOTDIR | Errno::LOOP) => return Err(misplaced(path)),
                Err(error) => return Err(failed("open", &at)(error)),
            };
        }
        Ok(here)
    }
}

fn hidden(parent: BorrowedFd<'_>, name: &[u8]) -> bool {
    matches!(look(parent, name), Ok(Some(stat)) if is_whiteout(&stat))
}

/// Creates one directory, owned by root and readable by all. Replaces a whiteout.
fn make_one(
    parent: BorrowedFd<'_>,
    name: &[u8],
    path: &TreePath,
    hides: bool,
) -> Result<OwnedFd, UnpackError> {
    let made = || -> Result<OwnedFd, Errno> {
        let changed = changed_at(parent)?;
        if hides {
            unlinkat(parent, name, AtFlags::empty())?;
        }
        mkdirat(parent, name, Mode::RWXU)?;
        let directory = child(parent, name)?;
        if hides {
            attributes::make_opaque(directory.as_fd())?;
        }
        // Set the mode separately, so that the umask has no effect.
        rustix::fs::fchmod(&directory, Mode::from_raw_mode(0o755))?;
        set_changed_at(directory.as_fd(), UNKNOWN)?;
        set_changed_at(parent, changed)?;
        Ok(directory)
    };
    made().map_err(failed("make", path))
}

fn misplaced(path: &TreePath) -> UnpackError {
    Refusal::NotBelowDirectory(path.to_string()).into()
}
