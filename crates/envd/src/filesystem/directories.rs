//! Creation of directories for a user.

use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use super::FileError;
use crate::user::User;

/// Mode of new directories (spec).
const DIRECTORY_MODE: u32 = 0o755;

/// Creates a directory and its missing parents, owned by the user.
///
/// # Errors
/// [`FileError::NotDirectory`] if another file is in the way.
pub(crate) fn ensure(path: &Path, user: &User) -> Result<(), FileError> {
    // Searches upwards for the first existing ancestor: usually the path itself exists.
    let mut missing = Vec::new();
    for ancestor in path.ancestors() {
        match std::fs::metadata(ancestor) {
            Ok(meta) if meta.is_dir() => break,
            Ok(_) => return Err(FileError::NotDirectory(ancestor.to_owned())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => missing.push(ancestor),
            Err(error) if error.kind() == io::ErrorKind::NotADirectory => {}
            Err(error) => return Err(FileError::new("stat", ancestor, error)),
        }
    }
    for directory in missing.into_iter().rev() {
        match std::fs::DirBuilder::new()
            .mode(DIRECTORY_MODE)
            .create(directory)
        {
            Ok(()) => {}
            // Created concurrently by another process, which then determines its owner.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                let meta = std::fs::metadata(directory);
                if !meta.is_ok_and(|meta| meta.is_dir()) {
                    return Err(FileError::NotDirectory(directory.to_owned()));
                }
                continue;
            }
            Err(error) => return Err(FileError::new("create directory", directory, error)),
        }
        std::os::unix::fs::lchown(directory, Some(user.uid), Some(user.gid))
            .map_err(|error| FileError::new("change the owner of", directory, error))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt, symlink};

    use super::*;

    fn user() -> User {
        User {
            name: "me".into(),
            uid: rustix::process::getuid().as_raw(),
            gid: rustix::process::getgid().as_raw(),
            home: "/".into(),
        }
    }

    #[test]
    fn missing_parents_are_created_and_existing_ones_kept() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a/b/c");
        ensure(&path, &user()).unwrap();
        ensure(&path, &user()).unwrap();
        assert_eq!(
            std::fs::metadata(&path).unwrap().mode() & 0o777,
            DIRECTORY_MODE
        );
    }

    #[test]
    fn the_error_names_the_file_that_blocks_a_directory() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        std::fs::write(&file, "").unwrap();
        let error = ensure(&file.join("a/b"), &user()).unwrap_err();
        assert!(matches!(error, FileError::NotDirectory(path) if path == file));
    }

    #[test]
    fn a_dangling_symlink_is_not_a_directory() {
        let dir = tempfile::tempdir().unwrap();
        symlink("nowhere", dir.path().join("link")).unwrap();
        let error = ensure(&dir.path().join("link"), &user()).unwrap_err();
        assert!(matches!(error, FileError::NotDirectory(_)));
    }
}
