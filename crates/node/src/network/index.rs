//! The network slots in use on this machine, across all installations.
//!
//! A slot's index is a file in a directory of the machine, created exclusively. Its content names
//! the installation. It is a hard link to a complete file, so a killed server never leaves an index
//! without an owner. The directory is on a file system that a reboot clears, as it clears the
//! slots.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::modes;

/// Allocates and frees indices.
#[derive(Debug)]
pub(super) struct Indices {
    directory: PathBuf,
    instance: String,
    count: u32,
}

impl Indices {
    /// Allocates indices below `count` in `directory` for `instance`.
    ///
    /// # Errors
    /// When the directory cannot be created.
    pub(super) fn open(directory: PathBuf, instance: String, count: u32) -> io::Result<Self> {
        modes::make(&directory)?;
        let indices = Self {
            directory,
            instance,
            count,
        };
        modes::create_file(&indices.card())?.write_all(indices.instance.as_bytes())?;
        Ok(indices)
    }

    /// The indices of `instance`, for listing and freeing.
    pub(super) fn of(machine: &Path, instance: &str) -> Self {
        Self {
            directory: machine.join("slots"),
            instance: instance.to_owned(),
            count: 0,
        }
    }

    /// The file to which the indices of this installation are hard links.
    fn card(&self) -> PathBuf {
        self.directory.join(format!("of-{}", self.instance))
    }

    fn path(&self, index: u32) -> PathBuf {
        self.directory.join(index.to_string())
    }

    /// Allocates the lowest free index; `None` when all are in use.
    ///
    /// # Errors
    /// When the directory cannot be used.
    pub(super) fn take(&self) -> io::Result<Option<u32>> {
        for index in 0..self.count {
            match fs::hard_link(self.card(), self.path(index)) {
                Ok(()) => return Ok(Some(index)),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }

    /// Frees an index. Idempotent.
    ///
    /// # Errors
    /// When the file cannot be removed.
    pub(super) fn give_back(&self, index: u32) -> io::Result<()> {
        match fs::remove_file(self.path(index)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// The indices of this installation.
    ///
    /// # Errors
    /// When the directory cannot be read.
    pub(super) fn own(&self) -> io::Result<Vec<u32>> {
        let mut own = Vec::new();
        let entries = match fs::read_dir(&self.directory) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(own),
            entries => entries?,
        };
        for entry in entries {
            let path = entry?.path();
            if let Some(index) = index_of(&path)
                && fs::read_to_string(&path).is_ok_and(|owner| owner == self.instance)
            {
                own.push(index);
            }
        }
        Ok(own)
    }

    /// Removes the remaining file of an installation without indices.
    ///
    /// # Errors
    /// When the file cannot be removed.
    pub(super) fn close(&self) -> io::Result<()> {
        match fs::remove_file(self.card()) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }
}

fn index_of(path: &Path) -> Option<u32> {
    path.file_name()?.to_str()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_index_is_allocated_once_across_all_installations_until_it_is_freed() {
        let directory = tempfile::tempdir().unwrap();
        let open =
            |name: &str| Indices::open(directory.path().to_owned(), name.to_owned(), 3).unwrap();
        let (a, b) = (open("a"), open("b"));
        assert_eq!(a.take().unwrap(), Some(0));
        assert_eq!(b.take().unwrap(), Some(1));
        assert_eq!(a.take().unwrap(), Some(2));
        assert_eq!(b.take().unwrap(), None);
        let mut own = a.own().unwrap();
        own.sort_unstable();
        assert_eq!(own, [0, 2]);
        a.give_back(0).unwrap();
        a.give_back(0).unwrap();
        assert_eq!(b.take().unwrap(), Some(0));
        for index in a.own().unwrap().into_iter().chain(b.own().unwrap()) {
            a.give_back(index).unwrap();
        }
        for indices in [a, b] {
            indices.close().unwrap();
        }
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
    }
}
