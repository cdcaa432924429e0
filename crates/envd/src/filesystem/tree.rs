//! Creating, listing, moving and removing entries.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use shoal_protocol::filesystem::EntryInfo;

use super::{FileError, directories, entry};
use crate::user::{Directory, User};

/// Limit of entries in one response: some tens of MiB on the wire.
pub(super) const MAX_ENTRIES: usize = 200_000;

/// Creates a directory and its parents.
pub(super) fn make(path: &Path, user: &User, users: &Directory) -> Result<EntryInfo, FileError> {
    match std::fs::metadata(path) {
        Ok(meta) if meta.is_dir() => return Err(FileError::Exists(path.to_owned())),
        Ok(_) => return Err(FileError::NotDirectory(path.to_owned())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => {}
        Err(error) => return Err(FileError::new("stat", path, error)),
    }
    directories::ensure(path, user)?;
    entry::describe(path, users)
}

/// Renames an entry after creating the parents of the new name.
pub(super) fn rename(
    from: &Path,
    to: &Path,
    user: &User,
    users: &Directory,
) -> Result<EntryInfo, FileError> {
    if let Some(parent) = to.parent() {
        directories::ensure(parent, user)?;
    }
    std::fs::rename(from, to).map_err(|error| FileError::new("rename", from, error))?;
    entry::describe(to, users)
}

/// Removes an entry recursively, without following symlinks. A missing path is not an error.
pub(super) fn remove(path: &Path) -> Result<(), FileError> {
    if path.canonicalize().is_ok_and(|path| path == Path::new("/")) && !path.is_symlink() {
        return Err(FileError::Protected(path.to_owned()));
    }
    let result = match std::fs::symlink_metadata(path) {
        Ok(meta) if meta.is_dir() => std::fs::remove_dir_all(path),
        Ok(_) => std::fs::remove_file(path),
        Err(error) => Err(error),
    };
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result.map_err(|error| FileError::new("remove", path, error)),
    }
}

/// Lists a directory down to `depth` levels in pre-order, sorted by name. Follows a symlink at the
/// root only.
pub(super) fn list(
    path: &Path,
    depth: u32,
    users: &Directory,
) -> Result<Vec<EntryInfo>, FileError> {
    let root = path
        .canonicalize()
        .map_err(|error| FileError::new("stat", path, error))?;
    if !root.is_dir() {
        return Err(FileError::NotDirectory(path.to_owned()));
    }
    let mut entries = Vec::new();
    // Stack of entries to visit, with their level.
    let mut rest: Vec<(PathBuf, u32)> = Vec::new();
    push_sorted(&root, 1, &mut rest)?;
    while let Some((real, level)) = rest.pop() {
        let meta = match std::fs::symlink_metadata(&real) {
            Ok(meta) => meta,
            // Removed during the listing.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(FileError::new("stat", real, error)),
        };
        if entries.len() >= MAX_ENTRIES {
            return Err(FileError::TooMany {
                what: "entries",
                limit: MAX_ENTRIES,
                path: path.to_owned(),
            });
        }
        let mut info = entry::with_metadata(&real, &meta, users);
        if let Ok(below) = real.strip_prefix(&root) {
            info.path = path.join(below).to_string_lossy().into_owned();
        }
        entries.push(info);
        if meta.is_dir() && level < depth {
            match push_sorted(&real, level + 1, &mut rest) {
                Ok(()) | Err(FileError::NotFound(_)) => {}
                Err(error) => return Err(error),
            }
        }
    }
    Ok(entries)
}

fn push_sorted(
    directory: &Path,
    level: u32,
    rest: &mut Vec<(PathBuf, u32)>,
) -> Result<(), FileError> {
    let failed = |error| FileError::new("read directory", directory, error);
    let names = std::fs::read_dir(directory).map_err(failed)?;
    let names: io::Result<Vec<OsString>> = names.map(|entry| Ok(entry?.file_name())).collect();
    let mut names = names.map_err(failed)?;
    names.sort_unstable_by(|one, other| other.cmp(one));
    rest.extend(names.into_iter().map(|name| (directory.join(name), level)));
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn me() -> User {
        User {
            name: "me".into(),
            uid: rustix::process::getuid().as_raw(),
            gid: rustix::process::getgid().as_raw(),
            home: "/".into(),
        }
    }

    fn names(root: &Path, depth: u32) -> Vec<String> {
        let entries = list(root, depth, &Directory::default()).unwrap();
        let below = |entry: EntryInfo| {
            let path = Path::new(&entry.path).strip_prefix(root).unwrap();
            path.to_str().unwrap().to_owned()
        };
        entries.into_iter().map(below).collect()
    }

    fn sample() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for path in ["b/x/deep", "a", "b.txt/y"] {
            let path = dir.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "").unwrap();
        }
        symlink("b", dir.path().join("link")).unwrap();
        dir
    }

    #[test]
    fn a_list_respects_its_depth_and_does_not_follow_symlinks() {
        let dir = sample();
        assert_eq!(names(dir.path(), 1), ["a", "b", "b.txt", "link"]);
        assert_eq!(
            names(dir.path(), 3),
            ["a", "b", "b/x", "b/x/deep", "b.txt", "b.txt/y", "link"]
        );
    }

    #[test]
    fn a_link_at_the_root_is_followed_and_keeps_its_name() {
        let dir = sample();
        assert_eq!(names(&dir.path().join("link"), 2), ["x", "x/deep"]);
    }

    #[test]
    fn only_directories_can_be_listed() {
        let dir = sample();
        symlink("loop", dir.path().join("loop")).unwrap();
        let list = |name| list(&dir.path().join(name), 1, &Directory::default());
        assert!(matches!(list("a"), Err(FileError::NotDirectory(_))));
        assert!(matches!(list("none"), Err(FileError::NotFound(_))));
        assert!(matches!(list("loop"), Err(FileError::Cycle(_))));
    }

    #[test]
    fn removing_takes_everything_but_not_through_links() {
        let dir = sample();
        remove(&dir.path().join("link")).unwrap();
        assert!(dir.path().join("b/x/deep").exists());
        remove(&dir.path().join("b")).unwrap();
        assert!(!dir.path().join("b").exists());
        remove(&dir.path().join("b")).unwrap();
    }

    #[test]
    fn the_root_is_not_removed_by_any_name() {
        for path in ["/", "//", "/tmp/..", "/."] {
            let error = remove(Path::new(path));
            assert!(matches!(error, Err(FileError::Protected(_))), "{path}");
        }
    }

    #[test]
    fn creating_an_existing_directory_fails() {
        let dir = sample();
        let path = dir.path().join("new/one");
        let users = Directory::default();
        assert_eq!(make(&path, &me(), &users).unwrap().name, "one");
        assert!(matches!(
            make(&path, &me(), &users),
            Err(FileError::Exists(_))
        ));
        let file = dir.path().join("a");
        assert!(matches!(
            make(&file, &me(), &users),
            Err(FileError::NotDirectory(_))
        ));
        let below = dir.path().join("a/b");
        assert!(matches!(
            make(&below, &me(), &users),
            Err(FileError::NotDirectory(_))
        ));
    }

    #[test]
    fn a_move_makes_the_parents_of_the_new_name() {
        let dir = sample();
        let to = dir.path().join("p/q/r");
        let users = Directory::default();
        let entry = rename(&dir.path().join("a"), &to, &me(), &users).unwrap();
        assert_eq!(entry.path, to.to_str().unwrap());
        let again = rename(&dir.path().join("a"), &to, &me(), &users);
        assert!(matches!(again, Err(FileError::NotFound(_))));
    }
}
