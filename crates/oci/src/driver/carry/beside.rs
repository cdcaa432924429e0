//! Writes a file next to its target, and renames it when it is complete.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;

/// Distinguishes the files of concurrent writers of this process.
static NEXT: AtomicU64 = AtomicU64::new(0);

/// A new file next to its target. It takes the name of the target when it is complete, and is removed
/// if it is dropped before.
#[derive(Debug)]
pub(super) struct Beside {
    path: PathBuf,
    pub(super) file: File,
    kept: bool,
}

impl Beside {
    /// Creates one. Other files next to `target` stay as they are.
    ///
    /// # Errors
    /// When no file can be made there.
    pub(super) fn new(target: &Path) -> io::Result<Self> {
        let name = target.file_name().ok_or(io::ErrorKind::InvalidInput)?;
        let make = |path: &Path| {
            // It holds memory and files of a sandbox.
            let mut options = OpenOptions::new();
            options.write(true).create_new(true).mode(0o600).open(path)
        };
        let named = |unique: &str| {
            let ends = format!(".{unique}.part");
            let parts = [OsStr::new("."), name, OsStr::new(&ends)];
            target.with_file_name(parts.into_iter().collect::<OsString>())
        };
        let (path, file) = unique(named, make)?;
        Ok(Self {
            path,
            file,
            kept: false,
        })
    }

    /// Gives it its name, which is no other file's. Returns its bytes.
    ///
    /// # Errors
    /// When it is not on the disk, or cannot be given the name.
    pub(super) fn keep(mut self, target: &Path) -> io::Result<u64> {
        self.file.sync_all()?;
        let bytes = self.file.metadata()?.len();
        match renameat_with(CWD, &self.path, CWD, target, RenameFlags::NOREPLACE) {
            // A file system without it has links: the other name goes when this is dropped.
            Err(Errno::INVAL | Errno::NOSYS) => fs::hard_link(&self.path, target)?,
            renamed => {
                renamed?;
                self.kept = true;
            }
        }
        Ok(bytes)
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        if !self.kept {
            // The first error is the one that counts.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Creates the missing entries, each under the first name that is free.
fn unique<T>(
    named: impl Fn(&str) -> PathBuf,
    make: impl Fn(&Path) -> io::Result<T>,
) -> io::Result<(PathBuf, T)> {
    loop {
        let next = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = named(&format!("{}-{next}", std::process::id()));
        match make(&path) {
            // A leftover of a killed program with our process id.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            made => return Ok((path, made?)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn names(directory: &Path) -> Vec<String> {
        let entries = fs::read_dir(directory).unwrap();
        let mut names: Vec<_> = entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn what_lies_beside_a_target_stays_and_what_is_not_kept_goes() {
        let directory = tempfile::tempdir().unwrap();
        let target = directory.path().join("foo.snap");
        let neighbour = directory.path().join("foo.part");
        fs::write(&neighbour, "mine").unwrap();
        let mut first = Beside::new(&target).unwrap();
        let second = Beside::new(&target).unwrap();
        first.file.write_all(b"whole").unwrap();
        drop(second);
        let mode = first.file.metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "it is for its owner alone");
        assert_eq!(first.keep(&target).unwrap(), 5);
        assert_eq!(names(directory.path()), ["foo.part", "foo.snap"]);
        assert_eq!(fs::read(&neighbour).unwrap(), b"mine");
        assert_eq!(fs::read(&target).unwrap(), b"whole");
        let late = Beside::new(&target).unwrap();
        let refused = late.keep(&target).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(names(directory.path()), ["foo.part", "foo.snap"]);
        assert_eq!(fs::read(&target).unwrap(), b"whole");
    }
}
