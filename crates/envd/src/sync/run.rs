//! A directory that stays open from one path to the next.
//!
//! Opening a directory name by name costs more than writing a small file into it. While it is open, a program may move it
//! elsewhere. So after changes it is opened once more: if another directory is at its path by then, the changes were not
//! made where they should have been.

use std::os::fd::OwnedFd;

use rustix::fs::fstat;
use shoal_session_files::path::SessionPath;

use super::home::{self, Home, PathError};

/// An open directory, and the changes that were made in it.
pub(super) struct Run {
    directory: String,
    up: OwnedFd,
    /// The changed paths, each with the number of its change.
    changed: Vec<(usize, SessionPath)>,
}

impl Run {
    /// Opens the directory of a path, or makes it.
    ///
    /// # Errors
    /// When something is in the way, or the directory is missing and not to be made.
    pub(super) fn open(home: &Home, path: &SessionPath, makes: bool) -> Result<Self, PathError> {
        let up = if makes {
            home.make_parent(path)
        } else {
            home.parent(path)
        };
        Ok(Self {
            directory: home::parent(path).to_owned(),
            up: up?,
            changed: Vec::new(),
        })
    }

    /// Whether a path is in the directory.
    pub(super) fn has(&self, path: &SessionPath) -> bool {
        self.directory == home::parent(path)
    }

    /// The directory.
    pub(super) fn directory(&self) -> &OwnedFd {
        &self.up
    }

    /// Whether no change was made in it yet: it was just opened.
    pub(super) fn is_new(&self) -> bool {
        self.changed.is_empty()
    }

    /// A change was made.
    pub(super) fn changed(&mut self, number: usize, path: SessionPath) {
        self.changed.push((number, path));
    }

    /// The changes that were made elsewhere, because the directory is not at its path any more.
    pub(super) fn end(self, home: &Home) -> Vec<(usize, SessionPath)> {
        let Some((_, path)) = self.changed.first() else {
            return Vec::new();
        };
        let same = home.parent(path).is_ok_and(|now| is_same(&now, &self.up));
        if same { Vec::new() } else { self.changed }
    }
}

fn is_same(one: &OwnedFd, other: &OwnedFd) -> bool {
    let id = |directory| fstat(directory).map(|stat| (stat.st_dev, stat.st_ino));
    matches!((id(one), id(other)), (Ok(one), Ok(other)) if one == other)
}
