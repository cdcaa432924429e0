//! Creates the members of an archive in a directory.

mod parents;

use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, BorrowedFd};

use rustix::fs::{
    AtFlags, FileType, Gid, Mode, OFlags, Stat, Timespec, Timestamps, Uid, chmodat, chownat,
    fchmod, fchown, linkat, mkdirat, mknodat, openat, symlinkat, unlinkat, utimensat,
};
use rustix::io::Errno;

use self::parents::Parents;
use super::member::{Kind, Member};
use super::members::Members;
use super::meter::Meter;
use super::pax::Mark;
use super::{Dialect, Limits, Refusal, UnpackError, Unpacked, attributes};
use crate::beneath::{Tree, TreePath, child, look, set_changed_at};

/// How much is copied at a time; a run of zeros of this length becomes a hole.
const CHUNK: usize = 64 * 1024;
const HOLE: i64 = 64 * 1024;

/// The name prefix of whiteouts.
const WHITEOUT: &[u8] = b".wh.";

/// Hides the contents of lower layers in its directory.
const OPAQUE_WHITEOUT: &[u8] = b".wh..wh..opq";

/// Other names with this prefix are internal records of aufs.
const AUFS: &[u8] = b".wh..wh.";

/// The device number of a whiteout, by which overlayfs recognises it.
const NO_DEVICE: u64 = 0;

/// Creates members in a tree.
pub struct Unpacker<'a> {
    tree: &'a Tree,
    dialect: Dialect,
    meter: Meter<'a>,
    parents: Parents<'a>,
    chunk: Vec<u8>,
}

impl<'a> Unpacker<'a> {
    /// Unpacks into the empty directory `tree`.
    ///
    /// # Errors
    /// When the free space cannot be determined, or is too small.
    pub fn new(tree: &'a Tree, limits: &'a Limits, dialect: Dialect) -> Result<Self, UnpackError> {
        Ok(Self {
            tree,
            dialect,
            meter: Meter::new(tree.root(), limits)?,
            parents: Parents::new(tree),
            chunk: vec![0; CHUNK],
        })
    }

    /// Creates one member; a file's data is read from `members`.
    pub fn take<R: Read>(
        &mut self,
        member: &Member,
        members: &mut Members<'_, R>,
    ) -> Result<(), UnpackError> {
        self.meter.entry()?;
        let path = TreePath::parse(&member.path).map_err(|why| Refusal::Name {
            name: shown(&member.path),
            why,
        })?;
        if let Dialect::Upper { users } = self.dialect
            && let Some(owner) = [member.uid, member.gid].into_iter().find(|id| *id >= users)
        {
            return Err(Refusal::Owner(path.to_string(), owner).into());
        }
        let Some((above, name)) = path.split() else {
            return self.root(member);
        };
        match (self.dialect, member.mark) {
            (Dialect::Layer, _) if name == OPAQUE_WHITEOUT => return self.hide_below(&above),
            (Dialect::Layer, _) if name.starts_with(AUFS) => return Ok(()),
            (Dialect::Layer, _) => {
                if let Some(hidden) = name.strip_prefix(WHITEOUT) {
                    return self.hide(&above, hidden);
                }
            }
            (Dialect::Upper { .. }, Some(Mark::Whiteout)) => return self.hide(&above, name),
            (Dialect::Upper { .. }, Some(Mark::Opaque)) => {
                if member.kind != Kind::Directory {
                    return Err(Refusal::NotBelowDirectory(path.to_string()).into());
                }
                self.directory(&path, member)?;
                return self.hide_below(&path);
            }
            (Dialect::Upper { .. }, None) => (),
        }
        match member.kind {
            Kind::Directory => self.directory(&path, member),
            Kind::File => self.file(&path, member, members),
            Kind::Symlink => self.symlink(&path, member),
            Kind::HardLink => self.hard_link(&path, member),
            Kind::Fifo => self.fifo(&path, member),
            Kind::Device
                if self.dialect == Dialect::Layer && path.names().next() == Some(b"dev") =>
            {
                Ok(())
            }
            Kind::Device => Err(Refusal::Device(path.to_string()).into()),
        }
    }

    /// Finishes: the last directory gets its time back.
    pub fn finish(mut self) -> Result<Unpacked, UnpackError> {
        self.parents.let_go()?;
        Ok(self.meter.used())
    }

    /// Sets the attributes of the tree's own root, which already exists.
    fn root(&mut self, member: &Member) -> Result<(), UnpackError> {
        if member.kind != Kind::Directory {
            return Err(Refusal::ReplacesDirectory("/".to_owned()).into());
        }
        self.parents.let_go()?;
        finish_opened(self.tree.root(), &TreePath::root(), member, self.dialect)?;
        if self.dialect != Dialect::Layer && member.mark == Some(Mark::Opaque) {
            return self.hide_below(&TreePath::root());
        }
        Ok(())
    }

    fn directory(&mut self, path: &TreePath, member: &Member) -> Result<(), UnpackError> {
        // Its time is set below, and must not be restored later.
        self.parents.let_go()?;
        let (parent, name) = self.parents.of(path)?;
        let mut hides = false;
        match look(parent, name).map_err(failed("look at", path))? {
            Some(stat) if is(&stat, FileType::Directory) => (),
            there => {
                if let Some(stat) = there {
                    hides = is_whiteout(&stat);
                    unlinkat(parent, name, AtFlags::empty()).map_err(failed("replace", path))?;
                }
                mkdirat(parent, name, Mode::RWXU).map_err(failed("make", path))?;
            }
        }
        let directory = child(parent, name).map_err(failed("open", path))?;
        if hides {
            attributes::make_opaque(directory.as_fd()).map_err(failed("hide below", path))?;
        }
        finish_opened(directory.as_fd(), path, member, self.dialect)
    }

    fn file<R: Read>(
        &mut self,
        path: &TreePath,
        member: &Member,
        members: &mut Members<'_, R>,
    ) -> Result<(), UnpackError> {
        let dialect = self.dialect;
        let (parent, name) = self.parents.of(path)?;
        make_room(parent, name, path)?;
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file =
            openat(parent, name, flags, Mode::RUSR | Mode::WUSR).map_err(failed("make", path))?;
        let mut file = File::from(file);
        fill(
            &mut file,
            path,
            member,
            members,
            &mut self.meter,
            &mut self.chunk,
        )?;
        finish_opened(file.as_fd(), path, member, dialect)
    }

    fn symlink(&mut self, path: &TreePath, member: &Member) -> Result<(), UnpackError> {
        // Any target is allowed: the sandbox resolves it, and this code never follows it.
        let target = &member.link[..];
        if target.is_empty() || target.len() > 4095 || target.contains(&0) {
            return Err(Refusal::Symlink(path.to_string()).into());
        }
        let dialect = self.dialect;
        let (parent, name) = self.parents.of(path)?;
        make_room(parent, name, path)?;
        symlinkat(target, parent, name).map_err(failed("make", path))?;
        finish_entry(parent, name, path, member, dialect)
    }

    fn hard_link(&mut self, path: &TreePath, member: &Member) -> Result<(), UnpackError> {
        let refused = || Refusal::HardLink(path.to_string(), shown(&member.link));
        let target = TreePath::parse(&member.link)
            .ok()
            .filter(|_| !member.link.starts_with(b"/"))
            .ok_or_else(refused)?;
        if target == *path {
            return Err(refused().into());
        }
        let (above, old) = target.split().ok_or_else(refused)?;
        let above = self.tree.directory(&above).map_err(|_| refused())?;
        let stat = look(above.as_fd(), old)
            .map_err(failed("look at", &target))?
            .ok_or_else(refused)?;
        // Not to a whiteout either: a second name for it would be hidden too.
        if !is(&stat, FileType::RegularFile) && !is(&stat, FileType::Symlink) {
            return Err(refused().into());
        }
        let (parent, name) = self.parents.of(path)?;
        make_room(parent, name, path)?;
        linkat(above, old, parent, name, AtFlags::empty()).map_err(failed("link", path))
    }

    fn fifo(&mut self, path: &TreePath, member: &Member) -> Result<(), UnpackError> {
        let dialect = self.dialect;
        let (parent, name) = self.parents.of(path)?;
        make_room(parent, name, path)?;
        mknodat(parent, name, FileType::Fifo, Mode::RUSR, NO_DEVICE)
            .map_err(failed("make", path))?;
        finish_entry(parent, name, path, member, dialect)?;
        chmodat(
            parent,
            name,
            Mode::from_raw_mode(member.mode),
            AtFlags::empty(),
        )
        .map_err(failed("set the mode of", path))
    }

    /// Hides `name` of the lower layers.
    fn hide(&mut self, above: &TreePath, name: &[u8]) -> Result<(), UnpackError> {
        let path = above.join(name);
        // The part after the prefix may not be a valid name.
        let good = TreePath::parse(name).is_ok_and(|parsed| parsed.as_bytes() == name);
        if !good || name.is_empty() {
            let name = shown(path.as_bytes());
            let why = super::BadPath::Upwards;
            return Err(Refusal::Name { name, why }.into());
        }
        self.parents.let_go()?;
        let (parent, name) = self.parents.of(&path)?;
        match look(parent, name).map_err(failed("look at", &path))? {
            // This layer hides the old entry and adds a new one: a file hides the old one by
            // itself.
            Some(stat) if is(&stat, FileType::Directory) => {
                let directory = child(parent, name).map_err(failed("open", &path))?;
                attributes::make_opaque(directory.as_fd()).map_err(failed("hide below", &path))
            }
            Some(_) => Ok(()),
            None => mknodat(
                parent,
                name,
                FileType::CharacterDevice,
                Mode::empty(),
                NO_DEVICE,
            )
            .map_err(failed("hide", &path)),
        }
    }

    /// Hides the contents of lower layers in `directory`.
    fn hide_below(&mut self, directory: &TreePath) -> Result<(), UnpackError> {
        let (directory_fd, _) = self.parents.of(&directory.join(OPAQUE_WHITEOUT))?;
        attributes::make_opaque(directory_fd).map_err(failed("hide below", directory))
    }
}

/// Copies a member's data into its file and leaves holes in between.
fn fill<R: Read>(
    file: &mut File,
    path: &TreePath,
    member: &Member,
    members: &mut Members<'_, R>,
    meter: &mut Meter<'_>,
    chunk: &mut [u8],
) -> Result<(), UnpackError> {
    let written = |error: std::io::Error| UnpackError::Io {
        action: "write",
        path: path.to_path(),
        source: error,
    };
    for segment in &member.segments {
        file.seek(SeekFrom::Start(segment.offset))
            .map_err(written)?;
        let mut left = segment.length;
        while left > 0 {
            let most = usize::try_from(left).map_or(chunk.len(), |n| n.min(chunk.len()));
            let mut filled = 0;
            while filled < most {
                let n = members.read_data(&mut chunk[filled..most])?;
                if n == 0 {
                    return Err(super::members::corrupt("a file is shorter than declared"));
                }
                filled += n;
            }
            left -= most as u64;
            if most == CHUNK && chunk.iter().all(|b| *b == 0) {
                file.seek_relative(HOLE).map_err(written)?;
                continue;
            }
            meter.write(most as u64)?;
            file.write_all(&chunk[..most]).map_err(written)?;
        }
    }
    file.set_len(member.size).map_err(written)
}

/// Removes an entry of an earlier member; a directory stays.
fn make_room(parent: BorrowedFd<'_>, name: &[u8], path: &TreePath) -> Result<(), UnpackError> {
    match unlinkat(parent, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(Errno::ISDIR) => Err(Refusal::ReplacesDirectory(path.to_string()).into()),
        Err(error) => Err(failed("replace", path)(error)),
    }
}

/// Sets the owner, the mode, the attributes and the time of a file or a directory.
fn finish_opened(
    entry: BorrowedFd<'_>,
    path: &TreePath,
    member: &Member,
    dialect: Dialect,
) -> Result<(), UnpackError> {
    // Set the owner first: a change of owner clears the setuid bit and the capabilities.
    fchown(
        entry,
        Some(Uid::from_raw(member.uid)),
        Some(Gid::from_raw(member.gid)),
    )
    .map_err(failed("give away", path))?;
    fchmod(entry, Mode::from_raw_mode(member.mode)).map_err(failed("set the mode of", path))?;
    let kept = attributes::kept(dialect, &path.to_string(), &member.xattrs)?;
    attributes::set(entry, &kept).map_err(failed("set the attributes of", path))?;
    set_changed_at(entry, moment(member)).map_err(failed("set the time of", path))
}

/// Sets the owner and the time of an entry that cannot be opened.
fn finish_entry(
    parent: BorrowedFd<'_>,
    name: &[u8],
    path: &TreePath,
    member: &Member,
    dialect: Dialect,
) -> Result<(), UnpackError> {
    attributes::kept(dialect, &path.to_string(), &member.xattrs)?;
    chownat(
        parent,
        name,
        Some(Uid::from_raw(member.uid)),
        Some(Gid::from_raw(member.gid)),
        AtFlags::SYMLINK_NOFOLLOW,
    )
    .map_err(failed("give away", path))?;
    let moment = moment(member);
    let times = Timestamps {
        last_access: moment,
        last_modification: moment,
    };
    utimensat(parent, name, &times, AtFlags::SYMLINK_NOFOLLOW)
        .map_err(failed("set the time of", path))
}

fn moment(member: &Member) -> Timespec {
    Timespec {
        tv_sec: member.changed.0,
        tv_nsec: member.changed.1.into(),
    }
}

fn is(stat: &Stat, kind: FileType) -> bool {
    FileType::from_raw_mode(stat.st_mode) == kind
}

fn is_whiteout(stat: &Stat) -> bool {
    is(stat, FileType::CharacterDevice) && stat.st_rdev == NO_DEVICE
}

/// A name from an archive, for error messages.
fn shown(name: &[u8]) -> String {
    const SHOWN: usize = 200;
    name[..name.len().min(SHOWN)].escape_ascii().to_string()
}

/// The error of a failed `action` on `path`.
fn failed(action: &'static str, path: &TreePath) -> impl FnOnce(Errno) -> UnpackError {
    move |error| UnpackError::Io {
        action,
        path: path.to_path(),
        source: error.into(),
    }
}
