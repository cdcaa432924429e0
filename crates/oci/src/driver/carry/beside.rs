//! Names that are nobody else's yet.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// Distinguishes what one program makes at once.
static NEXT: AtomicU64 = AtomicU64::new(0);

/// A new file beside another, into whose place it comes when it is whole. Gone when dropped before.
#[derive(Debug)]
pub(super) struct Beside {
    path: PathBuf,
    pub(super) file: File,
    kept: bool,
}

impl Beside {
    /// Makes one; whatever lies beside `target` stays as it is.
    ///
    /// # Errors
    /// When no file can be made there.
    pub(super) fn new(target: &Path) -> io::Result<Self> {
        let name = target.file_name().ok_or(io::ErrorKind::InvalidInput)?;
        let make = |path: &Path| OpenOptions::new().write(true).create_new(true).open(path);
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

    /// Gives it its name. Returns its bytes.
    ///
    /// # Errors
    /// When it is not on the disk, or cannot be given the name.
    pub(super) fn keep(mut self, target: &Path) -> io::Result<u64> {
        self.file.sync_all()?;
        let bytes = self.file.metadata()?.len();
        fs::rename(&self.path, target)?;
        self.kept = true;
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

/// A new directory for what is being put together, gone when dropped.
#[derive(Debug)]
pub(super) struct Stage(pub(super) PathBuf);

impl Stage {
    /// Makes one in `directory`, for `purpose`. Its name says to the next start that it is in the way.
    ///
    /// # Errors
    /// When no directory can be made there.
    pub(super) fn new(directory: &Path, purpose: &str) -> io::Result<Self> {
        let named = |unique: &str| directory.join(format!("{purpose}-{unique}.new"));
        let (path, ()) = unique(named, |path| fs::create_dir(path))?;
        Ok(Self(path))
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        // What stays is cleared by the next start.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Makes what is not there yet, under the first name that is free.
fn unique<T>(
    named: impl Fn(&str) -> PathBuf,
    make: impl Fn(&Path) -> io::Result<T>,
) -> io::Result<(PathBuf, T)> {
    loop {
        let next = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = named(&format!("{}-{next}", std::process::id()));
        match make(&path) {
            // Of a program that had our number and was killed.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            made => return Ok((path, made?)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

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
        assert_eq!(first.keep(&target).unwrap(), 5);
        assert_eq!(names(directory.path()), ["foo.part", "foo.snap"]);
        assert_eq!(fs::read(&neighbour).unwrap(), b"mine");
        assert_eq!(fs::read(&target).unwrap(), b"whole");
    }

    #[test]
    fn two_stages_for_the_same_are_two() {
        let directory = tempfile::tempdir().unwrap();
        let first = Stage::new(directory.path(), "one").unwrap();
        let second = Stage::new(directory.path(), "one").unwrap();
        fs::write(first.0.join("file"), "first").unwrap();
        drop(second);
        assert_eq!(fs::read(first.0.join("file")).unwrap(), b"first");
        drop(first);
        assert_eq!(names(directory.path()), [""; 0]);
    }
}
