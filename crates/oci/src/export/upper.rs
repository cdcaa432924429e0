//! Archives the writable layer of a sandbox.
//!
//! It is the upper directory of an overlay that is no longer written. The sandbox chose every name
//! in it, so links are not followed, and files that might block are not opened.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

use rustix::fs::{
    FileType, OFlags, SeekFrom, Stat, fgetxattr, flistxattr, fstat, openat, readlinkat, seek,
};
use rustix::io::Errno;
use shoal_images::beneath::{Tree, TreePath, child, look, names};
use shoal_images::unpack::{Mark, OPAQUE, Segment, is_exported};
use tar::EntryType;

use super::{Archive, Entry, FILES};

/// The largest attribute list or attribute that the kernel returns.
const XATTR_MAX: usize = 64 * 1024;
/// The maximum number of segments in a sparse file; the rest is one segment.
const SEGMENTS_MAX: usize = 1 << 15;
/// Attributes with which overlayfs refers to content elsewhere.
const ELSEWHERE: [&str; 3] = [
    "trusted.overlay.redirect",
    "trusted.overlay.metacopy",
    "trusted.overlay.whiteout",
];

/// Archives the directory `upper` and its contents below `files`.
///
/// # Errors
/// When it cannot be read, the archive cannot be written, or it has contents that no export
/// supports.
pub(crate) fn write_upper<W: Write>(archive: &mut Archive<W>, upper: &Path) -> io::Result<()> {
    let tree = Tree::open(upper)?;
    let mut walk = Walk {
        archive,
        links: HashMap::new(),
    };
    walk.directory(tree.root(), &TreePath::root())
}

struct Walk<'a, W: Write> {
    archive: &'a mut Archive<W>,
    /// The first names of files that have several, by device and inode.
    links: HashMap<(u64, u64), Vec<u8>>,
}

impl<W: Write> Walk<'_, W> {
    fn directory(&mut self, directory: BorrowedFd<'_>, path: &TreePath) -> io::Result<()> {
        let mut entry = entry_of(path, &fstat(directory)?, EntryType::Directory);
        (entry.xattrs, entry.mark) = attributes(directory, path)?;
        self.archive.member(&entry, io::empty())?;
        for name in names(directory)? {
            let path = path.join(&name);
            // An archived path must be valid for an import.
            TreePath::parse(path.as_bytes()).map_err(|why| refused(&path, &why.to_string()))?;
            self.one(directory, &name, &path)?;
        }
        Ok(())
    }

    fn one(&mut self, parent: BorrowedFd<'_>, name: &[u8], path: &TreePath) -> io::Result<()> {
        let stat = look(parent, name)?.ok_or(Errno::NOENT)?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => {
                let directory = child(parent, name)?;
                self.directory(directory.as_fd(), path)
            }
            FileType::RegularFile => self.file(parent, name, path, &stat),
            FileType::Symlink => {
                if self.linked(path, &stat)? {
                    return Ok(());
                }
                let mut entry = entry_of(path, &stat, EntryType::Symlink);
                entry.link = readlinkat(parent, name, Vec::new())?.into_bytes();
                self.archive.member(&entry, io::empty())
            }
            FileType::Fifo => {
                let entry = entry_of(path, &stat, EntryType::Fifo);
                self.archive.member(&entry, io::empty())
            }
            FileType::CharacterDevice if stat.st_rdev == 0 => {
                let mut entry = entry_of(path, &stat, EntryType::Regular);
                entry.mark = Some(Mark::Whiteout);
                self.archive.member(&entry, io::empty())
            }
            // A socket belongs to a process, which creates it again when it binds.
            FileType::Socket => Ok(()),
            _ => Err(refused(path, "it is a device")),
        }
    }

    fn file(
        &mut self,
        parent: BorrowedFd<'_>,
        name: &[u8],
        path: &TreePath,
        stat: &Stat,
    ) -> io::Result<()> {
        if self.linked(path, stat)? {
            return Ok(());
        }
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = File::from(openat(parent, name, flags, rustix::fs::Mode::empty())?);
        let stat = fstat(&file)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(refused(path, "it is no longer a file"));
        }
        let mut entry = entry_of(path, &stat, EntryType::Regular);
        entry.size = u64::try_from(stat.st_size).unwrap_or(0);
        (entry.xattrs, entry.mark) = attributes(file.as_fd(), path)?;
        let segments = segments(&file, entry.size)?;
        let holds_all = segments.iter().map(|part| part.length).sum::<u64>() == entry.size;
        entry.segments = (!holds_all).then(|| segments.clone());
        self.archive.member(&entry, Parts::new(file, segments))
    }

    /// Archives a hard link to a file that is already in the archive; false if it is not.
    fn linked(&mut self, path: &TreePath, stat: &Stat) -> io::Result<bool> {
        if stat.st_nlink < 2 {
            return Ok(false);
        }
        let inode = (stat.st_dev, stat.st_ino);
        let Some(first) = self.links.get(&inode) else {
            self.links.insert(inode, in_files(path));
            return Ok(false);
        };
        let mut entry = entry_of(path, stat, EntryType::Link);
        entry.link.clone_from(first);
        self.archive.member(&entry, io::empty())?;
        Ok(true)
    }
}

/// A path in the archive.
fn in_files(path: &TreePath) -> Vec<u8> {
    if *path == TreePath::root() {
        return FILES.into();
    }
    [FILES.as_bytes(), b"/", path.as_bytes()].concat()
}

fn entry_of(path: &TreePath, stat: &Stat, kind: EntryType) -> Entry {
    Entry {
        path: in_files(path),
        kind,
        mode: stat.st_mode & 0o7777,
        uid: stat.st_uid,
        gid: stat.st_gid,
        changed: (stat.st_mtime, stat.st_mtime_nsec.try_into().unwrap_or(0)),
        ..Entry::file("", 0)
    }
}

type Attributes = (Vec<(Vec<u8>, Vec<u8>)>, Option<Mark>);

/// The attributes to archive, and those of overlayfs.
fn attributes(file: BorrowedFd<'_>, path: &TreePath) -> io::Result<Attributes> {
    let mut list = Vec::with_capacity(XATTR_MAX);
    match flistxattr(file, rustix::buffer::spare_capacity(&mut list)) {
        Err(Errno::OPNOTSUPP) => return Ok((Vec::new(), None)),
        listed => listed?,
    };
    let (mut kept, mut mark) = (Vec::new(), None);
    for name in list
        .split(|byte| *byte == 0)
        .filter(|name| !name.is_empty())
    {
        if ELSEWHERE.iter().any(|other| other.as_bytes() == name) {
            let name = name.escape_ascii();
            return Err(refused(path, &format!("its content is elsewhere ({name})")));
        }
        let is_opaque = name == OPAQUE.as_bytes();
        if !is_opaque && !is_exported(name) {
            continue;
        }
        let mut value = Vec::with_capacity(XATTR_MAX);
        fgetxattr(file, name, rustix::buffer::spare_capacity(&mut value))?;
        if !is_opaque {
            kept.push((name.to_vec(), value));
        } else if value == b"y" {
            mark = Some(Mark::Opaque);
        }
    }
    Ok((kept, mark))
}

/// The segments of a file that have data.
fn segments(file: &File, size: u64) -> io::Result<Vec<Segment>> {
    let mut segments = Vec::new();
    let mut at = 0;
    while at < size {
        let begin = match seek(file, SeekFrom::Data(at)) {
            Ok(begin) => begin,
            // The rest is a hole.
            Err(Errno::NXIO) => break,
            Err(error) => return Err(error.into()),
        };
        let end = if segments.len() + 1 == SEGMENTS_MAX {
            size
        } else {
            seek(file, SeekFrom::Hole(begin))?.min(size)
        };
        if end <= begin {
            break;
        }
        segments.push(Segment {
            offset: begin,
            length: end - begin,
        });
        at = end;
    }
    Ok(segments)
}

/// Reads the segments of a file, one after the other.
struct Parts {
    file: File,
    left: std::vec::IntoIter<Segment>,
    here: u64,
}

impl Parts {
    fn new(file: File, segments: Vec<Segment>) -> Self {
        Self {
            file,
            left: segments.into_iter(),
            here: 0,
        }
    }
}

impl Read for Parts {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        while self.here == 0 {
            let Some(next) = self.left.next() else {
                return Ok(0);
            };
            self.file.seek(io::SeekFrom::Start(next.offset))?;
            self.here = next.length;
        }
        let n = (&mut self.file).take(self.here).read(into)?;
        self.here -= n as u64;
        Ok(n)
    }
}

fn refused(path: &TreePath, why: &str) -> io::Error {
    io::Error::other(format!("{path} cannot be exported: {why}"))
}
