//! A digest of a tree's content.

use std::collections::HashSet;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::fs::{FileType, Mode, OFlags, Stat, fgetxattr, flistxattr, fstat, openat, readlinkat};
use rustix::io::Errno;

use crate::beneath::{Tree, TreePath, child, look, names};
use crate::digest::{Digest, Hashing};

/// Distinguishes this digest's format from others.
const FORMAT: &[u8] = b"shoal tree 1\n";

/// The longest list of attributes, and the longest attribute, that the kernel returns.
const XATTR_MAX: usize = 64 * 1024;

/// The digest and size of a tree.
pub(super) struct TreeDigest {
    /// Equal for equal names, kinds, modes, owners, attributes and contents. Times are excluded:
    /// they are those of the build.
    pub(super) digest: Digest,
    /// Bytes of files; hard links count once.
    pub(super) bytes: u64,
    /// The number of names.
    pub(super) entries: u64,
}

/// Reads the whole tree.
pub(super) fn digest_tree(tree: &Tree) -> io::Result<TreeDigest> {
    let mut reader = TreeReader {
        text: FORMAT.to_vec(),
        seen: HashSet::new(),
        bytes: 0,
        entries: 0,
    };
    let root = fstat(tree.root())?;
    reader.line(&TreePath::root(), &root, b"");
    reader.directory(tree.root(), &TreePath::root())?;
    Ok(TreeDigest {
        digest: Digest::of(&reader.text),
        bytes: reader.bytes,
        entries: reader.entries,
    })
}

struct TreeReader {
    /// One line per name, about a hundred bytes each.
    text: Vec<u8>,
    /// Files with several names that have been counted.
    seen: HashSet<u64>,
    bytes: u64,
    entries: u64,
}

impl TreeReader {
    fn directory(&mut self, directory: BorrowedFd<'_>, path: &TreePath) -> io::Result<()> {
        for name in names(directory)? {
            let Some(stat) = look(directory, &name)? else {
                continue;
            };
            let path = path.join(&name);
            self.entries += 1;
            match FileType::from_raw_mode(stat.st_mode) {
                FileType::Directory => {
                    let inner = child(directory, &name)?;
                    self.line(&path, &stat, &attributes(inner.as_fd())?);
                    self.directory(inner.as_fd(), &path)?;
                }
                FileType::RegularFile => {
                    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                    let file = openat(directory, &*name, flags, Mode::empty())?;
                    let mut content = attributes(file.as_fd())?;
                    let mut reader = Hashing::new(File::from(file));
                    io::copy(&mut reader, &mut io::sink())?;
                    let (digest, length) = reader.finish();
                    content.extend_from_slice(digest.to_string().as_bytes());
                    self.line(&path, &stat, &content);
                    if stat.st_nlink < 2 || self.seen.insert(stat.st_ino) {
                        self.bytes += length;
                    }
                }
                FileType::Symlink => {
                    let target = readlinkat(directory, &*name, Vec::new())?;
                    self.line(&path, &stat, target.as_bytes());
                }
                _ => self.line(&path, &stat, stat.st_rdev.to_string().as_bytes()),
            }
        }
        Ok(())
    }

    /// Adds the line of one name. Neither names nor contents contain a zero byte.
    fn line(&mut self, path: &TreePath, stat: &Stat, content: &[u8]) {
        let Stat {
            st_mode,
            st_uid,
            st_gid,
            ..
        } = stat;
        self.text.extend_from_slice(path.as_bytes());
        self.text
            .extend_from_slice(format!("\0{st_mode:o} {st_uid} {st_gid}\0").as_bytes());
        self.text
            .extend_from_slice(Digest::of(content).hex().as_bytes());
        self.text.push(b'\n');
    }
}

/// The extended attributes of a file, sorted.
fn attributes(file: BorrowedFd<'_>) -> Result<Vec<u8>, Errno> {
    let mut list = vec![0; XATTR_MAX];
    let length = match flistxattr(file, &mut list[..]) {
        Ok(0) | Err(Errno::NOTSUP) => return Ok(Vec::new()),
        Ok(length) => length,
        Err(error) => return Err(error),
    };
    let mut names: Vec<&[u8]> = list[..length].split(|b| *b == 0).collect();
    names.sort_unstable();
    let mut text = Vec::new();
    for name in names.into_iter().filter(|name| !name.is_empty()) {
        let mut value = vec![0; XATTR_MAX];
        let length = fgetxattr(file, name, &mut value[..])?;
        text.extend_from_slice(format!("{} {length} ", name.escape_ascii()).as_bytes());
        text.extend_from_slice(&value[..length]);
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::path::Path;

    fn of(path: &Path) -> TreeDigest {
        digest_tree(&Tree::open(path).unwrap()).unwrap()
    }

    fn grown() -> tempfile::TempDir {
        let home = tempfile::tempdir().unwrap();
        fs::create_dir(home.path().join("d")).unwrap();
        fs::write(home.path().join("d/f"), "content").unwrap();
        fs::hard_link(home.path().join("d/f"), home.path().join("g")).unwrap();
        symlink("d/f", home.path().join("l")).unwrap();
        home
    }

    #[test]
    fn equal_content_has_the_same_digest_whenever_it_was_created() {
        let (one, two) = (grown(), grown());
        let file = File::open(two.path().join("d/f")).unwrap();
        file.set_modified(std::time::UNIX_EPOCH).unwrap();
        let found = of(one.path());
        assert_eq!(found.digest, of(two.path()).digest);
        assert_eq!((found.bytes, found.entries), (7, 4));
    }

    #[test]
    fn every_difference_shows() {
        let base = of(grown().path()).digest;
        let changes: [&dyn Fn(&Path); 5] = [
            &|home| fs::write(home.join("d/f"), "Content").unwrap(),
            &|home| fs::rename(home.join("g"), home.join("h")).unwrap(),
            &|home| fs::create_dir(home.join("e")).unwrap(),
            &|home| {
                fs::remove_file(home.join("l")).unwrap();
                symlink("g", home.join("l")).unwrap();
            },
            &|home| fs::set_permissions(home.join("d"), fs::Permissions::from_mode(0o700)).unwrap(),
        ];
        for change in changes {
            let home = grown();
            change(home.path());
            assert_ne!(of(home.path()).digest, base);
        }
    }
}
