//! Description of a file-system entry.

use std::fs::Metadata;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use buffa_types::google::protobuf::Timestamp;
use shoal_protocol::filesystem::{EntryInfo, FileType};

use super::{FileError, metadata};
use crate::path::base_name;
use crate::user::Directory;

/// File-type bits of a mode.
const TYPE_MASK: u32 = libc::S_IFMT;

/// Minimal directory size in bytes on ext4, the file system of E2B's sandboxes.
const MIN_DIRECTORY_SIZE: i64 = 4096;

/// Describes an entry. For a symlink, type and mode are those of the target; all else is the link's
/// own.
///
/// # Errors
/// [`FileError::NotFound`] if the path does not exist.
pub(crate) fn describe(path: &Path, users: &Directory) -> Result<EntryInfo, FileError> {
    let own = std::fs::symlink_metadata(path);
    let own = own.map_err(|error| FileError::new("stat", path, error))?;
    Ok(with_metadata(path, &own, users))
}

/// Describes an entry whose metadata is known.
pub(crate) fn with_metadata(path: &Path, own: &Metadata, users: &Directory) -> EntryInfo {
    let (kind, mode, target) = if own.is_symlink() {
        let target = std::fs::canonicalize(path);
        let meta = target
            .as_ref()
            .map_err(clone_kind)
            .and_then(std::fs::metadata);
        let target = target.as_deref().unwrap_or(path);
        let (kind, mode) = meta.as_ref().map(kind_and_mode).unwrap_or_default();
        (kind, mode, Some(target.to_string_lossy().into_owned()))
    } else {
        let (kind, mode) = kind_and_mode(own);
        (kind, mode, None)
    };
    EntryInfo {
        name: base_name(path),
        r#type: kind.into(),
        path: path.to_string_lossy().into_owned(),
        size: size(own),
        mode,
        permissions: permissions(own.mode()),
        owner: users.user_name(own.uid()),
        group: users.group_name(own.gid()),
        modified_time: Some(timestamp(own)).into(),
        symlink_target: target,
        metadata: metadata::read(path).into_iter().collect(),
    }
}

fn clone_kind(error: &io::Error) -> io::Error {
    error.kind().into()
}

fn kind_and_mode(meta: &Metadata) -> (FileType, u32) {
    let kind = if meta.is_file() {
        FileType::FILE_TYPE_FILE
    } else if meta.is_dir() {
        FileType::FILE_TYPE_DIRECTORY
    } else {
        FileType::FILE_TYPE_UNSPECIFIED
    };
    (kind, meta.mode() & 0o777)
}

/// Size of an entry. Directory sizes differ between file systems and may be 0. Clients of E2B
/// expect at least a block, so this is the minimum reported.
fn size(meta: &Metadata) -> i64 {
    let least = if meta.is_dir() { MIN_DIRECTORY_SIZE } else { 0 };
    i64::try_from(meta.size()).unwrap_or(i64::MAX).max(least)
}

fn timestamp(meta: &Metadata) -> Timestamp {
    Timestamp {
        seconds: meta.mtime(),
        nanos: i32::try_from(meta.mtime_nsec()).unwrap_or(0),
        ..Timestamp::default()
    }
}

/// Permissions in Go's format, as in E2B: letters for the type, or a dash, then nine permission
/// characters.
fn permissions(mode: u32) -> String {
    let mut text = String::new();
    text.push_str(match mode & TYPE_MASK {
        libc::S_IFDIR => "d",
        libc::S_IFLNK => "L",
        libc::S_IFBLK => "D",
        libc::S_IFCHR => "Dc",
        libc::S_IFIFO => "p",
        libc::S_IFSOCK => "S",
        _ => "",
    });
    for (bit, letter) in [(libc::S_ISUID, 'u'), (libc::S_ISGID, 'g')] {
        if mode & bit != 0 {
            text.push(letter);
        }
    }
    // Go puts the `c` of a character device after `u` and `g`.
    if text.starts_with("Dc") && text.len() > 2 {
        text.remove(1);
        text.push('c');
    }
    if mode & libc::S_ISVTX != 0 {
        text.push('t');
    }
    if text.is_empty() {
        text.push('-');
    }
    for (position, letter) in "rwxrwxrwx".chars().enumerate() {
        let set = mode & (0o400 >> position) != 0;
        text.push(if set { letter } else { '-' });
    }
    text
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn describe(path: &Path) -> EntryInfo {
        super::describe(path, &Directory::default()).unwrap()
    }

    #[test]
    fn permissions_have_gos_format() {
        for (mode, text) in [
            (libc::S_IFREG | 0o644, "-rw-r--r--"),
            (libc::S_IFDIR | 0o755, "drwxr-xr-x"),
            (libc::S_IFLNK | 0o777, "Lrwxrwxrwx"),
            (libc::S_IFDIR | 0o1777, "dtrwxrwxrwx"),
            (libc::S_IFREG | 0o4755, "urwxr-xr-x"),
            (libc::S_IFREG | 0o6755, "ugrwxr-xr-x"),
            (libc::S_IFIFO | 0o600, "prw-------"),
            (libc::S_IFSOCK | 0o777, "Srwxrwxrwx"),
            (libc::S_IFBLK | 0o660, "Drw-rw----"),
            (libc::S_IFCHR | 0o666, "Dcrw-rw-rw-"),
        ] {
            assert_eq!(permissions(mode), text);
        }
    }

    #[test]
    fn a_directory_has_at_least_a_block() {
        let dir = tempfile::tempdir().unwrap();
        assert!(describe(dir.path()).size >= MIN_DIRECTORY_SIZE);
    }

    #[test]
    fn a_file_is_described() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.txt");
        std::fs::write(&path, "hello").unwrap();
        let entry = describe(&path);
        assert_eq!(entry.name, "a.txt");
        assert_eq!(entry.path, path.to_str().unwrap());
        assert_eq!(entry.r#type.as_known(), Some(FileType::FILE_TYPE_FILE));
        assert_eq!(entry.size, 5);
        assert_eq!(entry.mode & 0o600, 0o600);
        assert!(entry.modified_time.seconds > 0);
        assert_eq!(entry.symlink_target, None);
    }

    #[test]
    fn a_symlink_shows_the_type_and_path_of_its_final_target() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().canonicalize().unwrap();
        std::fs::create_dir(dir.join("target")).unwrap();
        symlink("target", dir.join("first")).unwrap();
        symlink("first", dir.join("second")).unwrap();
        let entry = describe(&dir.join("second"));
        assert_eq!(entry.r#type.as_known(), Some(FileType::FILE_TYPE_DIRECTORY));
        assert_eq!(entry.permissions, "Lrwxrwxrwx");
        assert_eq!(entry.size, 5);
        assert_eq!(entry.symlink_target.as_deref(), dir.join("target").to_str());
    }

    #[test]
    fn a_dangling_symlink_has_no_type_and_itself_as_target() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("link");
        symlink("nowhere", &path).unwrap();
        let entry = describe(&path);
        assert_eq!(
            entry.r#type.as_known(),
            Some(FileType::FILE_TYPE_UNSPECIFIED)
        );
        assert_eq!(entry.mode, 0);
        assert_eq!(entry.symlink_target.as_deref(), path.to_str());
    }
}
