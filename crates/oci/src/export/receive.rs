//! Imports an export, member by member, in the expected order.

use std::fs::{self, DirBuilder, File};
use std::io::{self, Read, Seek, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use rustix::fs::{Mode, OFlags, openat};
use shoal_core::detail::HostDetail;
use shoal_core::driver::{DriverError, ExportKey};
use shoal_images::beneath::Tree;
use shoal_images::unpack::{Dialect, Kind, Limits, Member, Members, Meter, UnpackError, Unpacker};
use shoal_node::saved::{MemoryFile, Proof, SavedManifest};

use super::seal::{Digesting, SEAL_BYTES, Seal};
use super::{ENVD, EXPORT, FILES, FORMAT, Head, MANIFEST, MEMORY, Stop, VERSION};

/// The longest description or manifest.
const TEXT_MAX: u64 = 4 << 20;
/// The largest daemon.
const ENVD_MAX: u64 = 256 << 20;
/// How much of the memory is copied at a time; a run of zeros of this length becomes a hole.
const CHUNK: usize = 64 * 1024;
const HOLE: i64 = 64 * 1024;

/// The conditions of an import.
pub(crate) struct Terms<'a> {
    /// The key of the seal.
    pub(crate) key: &'a ExportKey,
    /// Whether another key is accepted.
    pub(crate) trust: bool,
    pub(crate) limits: Limits,
    /// Whether this machine can run the snapshot of a manifest, and the number of users in its
    /// sandbox.
    pub(crate) accept: &'a dyn Fn(&SavedManifest) -> Result<u32, DriverError>,
    /// Creates the directory of the files.
    pub(crate) make_files: &'a dyn Fn(&Path) -> io::Result<()>,
    pub(crate) stop: &'a Stop,
}

/// The result of an import.
#[derive(Debug)]
pub(crate) struct Received {
    /// The manifest, with the sizes counted during the import.
    pub(crate) manifest: SavedManifest,
    pub(crate) note: String,
}

/// Imports the export in `source`, which has `length` bytes, into the empty `directory`. Its
/// contents must not be used unless this succeeds.
///
/// # Errors
/// When the seal is not as required, or the export is damaged, hostile, or larger than allowed.
pub(crate) fn receive<R: Read>(
    source: R,
    length: u64,
    directory: &Path,
    terms: &Terms<'_>,
) -> Result<Received, DriverError> {
    let archive = length
        .checked_sub(SEAL_BYTES as u64)
        .ok_or_else(|| unusable("it is no export of a snapshot"))?;
    let source = Digesting::new(source.take(archive), terms.stop.clone());
    let mut receiver = Receiver {
        members: Members::new(source, &terms.limits),
        tree: Tree::open(directory).map_err(io_failed("open the place of the snapshot"))?,
        directory,
        terms,
    };
    let received = receiver.all()?;
    let ours = received.0 == terms.key.id();
    let (digest, source) = receiver.members.drain().map_err(of_unpack)?.finish();
    let mut seal = [0; SEAL_BYTES];
    let read = source.into_inner().read_exact(&mut seal);
    let seal = read.ok().and_then(|()| Seal::parse(&seal));
    let seal = seal.filter(|seal| seal.is_of(&digest));
    let seal = seal.ok_or_else(|| unusable("it is damaged: its content is not what was sealed"))?;
    // An archive that names this installation's key must be sealed with it, trusted or not.
    if ours && !seal.is_by(terms.key) {
        return Err(unusable(
            "it was changed after it had been exported: its seal is wrong",
        ));
    }
    Ok(received.1)
}

struct Receiver<'a, R> {
    members: Members<'a, Digesting<R>>,
    tree: Tree,
    directory: &'a Path,
    terms: &'a Terms<'a>,
}

impl<R: Read> Receiver<'_, R> {
    /// Imports all members. Returns the id of the key and the result.
    fn all(&mut self) -> Result<(String, Received), DriverError> {
        let head = self.head()?;
        let text = self.text(MANIFEST)?;
        let mut manifest = SavedManifest::parse(&text).map_err(|e| unusable(e.to_string()))?;
        let users = (self.terms.accept)(&manifest)?;
        self.daemon()?;
        self.memory(&manifest)?;
        let file_bytes = self.files(users)?;
        // Sizes that count against quotas are counted here.
        let saved = &mut manifest.saved;
        saved.memory_bytes = manifest.memory.iter().map(|file| file.bytes).sum();
        saved.file_bytes = file_bytes;
        "from an export".clone_into(&mut saved.copied);
        Ok((
            head.key,
            Received {
                manifest,
                note: head.note,
            },
        ))
    }

    fn head(&mut self) -> Result<Head, DriverError> {
        let text = match self.text(EXPORT) {
            Err(DriverError::Unusable(why)) => {
                return Err(unusable(format!("it is no export of a snapshot: {why}")));
            }
            text => text?,
        };
        let head: Head = serde_json::from_slice(&text)
            .map_err(|e| unusable(format!("its description cannot be read: {e}")))?;
        if head.format != FORMAT {
            return Err(unusable("it is no export of a snapshot"));
        }
        if head.version != VERSION {
            return Err(unusable(format!(
                "it is an export of version {}, and this program reads version {VERSION}: export \
                 the snapshot again",
                head.version
            )));
        }
        if head.key != self.terms.key.id() && !self.terms.trust {
            return Err(DriverError::Untrusted);
        }
        Ok(head)
    }

    /// The next member, which must be a regular file with this name.
    fn expect(&mut self, name: &str) -> Result<Member, DriverError> {
        let member = self.members.next_member().map_err(of_unpack)?;
        let member = member.ok_or_else(|| unusable(format!("it ends before {name}")))?;
        let is_plain = member.kind == Kind::File
            && member.mark.is_none()
            && matches!(&member.segments[..], [whole] if whole.length == member.size);
        if member.path != name.as_bytes() || !is_plain {
            let found = shown(&member.path);
            return Err(unusable(format!(
                "{found} is where the file {name} belongs"
            )));
        }
        Ok(member)
    }

    /// The content of a short member.
    fn text(&mut self, name: &str) -> Result<Vec<u8>, DriverError> {
        let member = self.expect(name)?;
        if member.size > TEXT_MAX {
            return Err(unusable(format!("{name} is too long")));
        }
        let mut text = Vec::new();
        self.copy(member.size, |bytes| {
            text.extend_from_slice(bytes);
            Ok(())
        })?;
        Ok(text)
    }

    fn daemon(&mut self) -> Result<(), DriverError> {
        let member = self.expect(ENVD)?;
        if member.size > ENVD_MAX {
            return Err(unusable(format!("{ENVD} is too long")));
        }
        let mut file = create(&self.tree, ENVD)?;
        self.copy(member.size, |bytes| file.write_all(bytes))
    }

    fn memory(&mut self, manifest: &SavedManifest) -> Result<(), DriverError> {
        if !manifest.saved.contents.has_memory() {
            return match manifest.memory.first() {
                None => Ok(()),
                Some(_) => Err(unusable("it has memory, and says that it has none")),
            };
        }
        let path = self.directory.join(MEMORY);
        let made = DirBuilder::new().mode(0o700).create(&path);
        made.map_err(io_failed("make the directory of the memory"))?;
        let into = Tree::open(&path).map_err(io_failed("open the directory of the memory"))?;
        for file in &manifest.memory {
            self.memory_file(&into, file)?;
        }
        Ok(())
    }

    fn memory_file(&mut self, into: &Tree, file: &MemoryFile) -> Result<(), DriverError> {
        let member = self.expect(&format!("{MEMORY}/{}", file.name))?;
        let damaged = |what| unusable(format!("{} is damaged: {what}", file.name));
        if member.size != file.bytes {
            return Err(damaged("its length"));
        }
        let limits = self.terms.limits;
        let mut meter = Meter::new(into.root(), &limits).map_err(of_unpack)?;
        let mut out = create(into, file.name.as_str())?;
        let mut hasher = blake3::Hasher::new();
        self.copy(member.size, |bytes| {
            hasher.update(bytes);
            if bytes.len() == CHUNK && bytes.iter().all(|byte| *byte == 0) {
                return out.seek_relative(HOLE);
            }
            let room = meter.write(bytes.len() as u64);
            room.map_err(|_| io::Error::from(io::ErrorKind::StorageFull))?;
            out.write_all(bytes)
        })?;
        out.set_len(member.size)
            .map_err(io_failed("write the memory"))?;
        match &file.proof {
            Proof::Digest(digest) if hasher.finalize().to_hex().as_str() == digest => Ok(()),
            Proof::Digest(_) => Err(damaged("its content")),
            Proof::Inode(_) => Err(damaged("it has no digest")),
        }
    }

    /// Reads the data of the current member in chunks of [`CHUNK`]; only the last may be shorter.
    fn copy(
        &mut self,
        size: u64,
        mut each: impl FnMut(&[u8]) -> io::Result<()>,
    ) -> Result<(), DriverError> {
        let mut chunk = vec![0; CHUNK];
        let mut left = size;
        while left > 0 {
            let most = usize::try_from(left).map_or(CHUNK, |left| left.min(CHUNK));
            let mut filled = 0;
            while filled < most {
                let into = &mut chunk[filled..most];
                filled += self.members.read_data(into).map_err(of_unpack)?;
            }
            each(&chunk[..most]).map_err(io_failed("write the snapshot"))?;
            left -= most as u64;
        }
        Ok(())
    }

    /// Unpacks the writable layer into a directory like that of a new sandbox. Returns its bytes.
    fn files(&mut self, users: u32) -> Result<u64, DriverError> {
        let failed = || io_failed("make the directory of the files");
        let own = self.directory.join(FILES);
        (self.terms.make_files)(&own).map_err(failed())?;
        for name in ["upper", "work"] {
            fs::create_dir(own.join(name)).map_err(failed())?;
        }
        let tree = Tree::open(&own.join("upper")).map_err(failed())?;
        let limits = self.terms.limits;
        let dialect = Dialect::Upper { users };
        let mut unpacker = Unpacker::new(&tree, &limits, dialect).map_err(of_unpack)?;
        let mut first = true;
        while let Some(mut member) = self.members.next_member().map_err(of_unpack)? {
            if first && (member.path != FILES.as_bytes() || member.kind != Kind::Directory) {
                let found = shown(&member.path);
                return Err(unusable(format!("{found} is where {FILES} belongs")));
            }
            first = false;
            let outside = |path: &[u8]| unusable(format!("{} is not in {FILES}", shown(path)));
            member.path = below_files(&member.path).ok_or_else(|| outside(&member.path))?;
            if member.kind == Kind::HardLink {
                member.link = below_files(&member.link).ok_or_else(|| outside(&member.link))?;
            }
            unpacker
                .take(&member, &mut self.members)
                .map_err(of_unpack)?;
        }
        if first {
            return Err(unusable(format!("it ends before {FILES}")));
        }
        unpacker.finish().map_err(of_unpack).map(|used| used.bytes)
    }
}

/// The path of a member below `files`.
fn below_files(path: &[u8]) -> Option<Vec<u8>> {
    match path.strip_prefix(FILES.as_bytes())? {
        b"" => Some(Vec::new()),
        below => below.strip_prefix(b"/").map(<[u8]>::to_vec),
    }
}

/// Creates a file that must not exist yet.
fn create(into: &Tree, name: &str) -> Result<File, DriverError> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = openat(into.root().as_fd(), name, flags, Mode::RUSR | Mode::WUSR);
    file.map(File::from)
        .map_err(|error| io_failed("write the snapshot")(error.into()))
}

fn unusable(why: impl Into<String>) -> DriverError {
    DriverError::Unusable(why.into())
}

fn io_failed(step: &'static str) -> impl FnOnce(io::Error) -> DriverError {
    crate::driver::failed(step)
}

fn of_unpack(error: UnpackError) -> DriverError {
    match error {
        UnpackError::NoSpace => DriverError::NoSpace,
        UnpackError::Io {
            action,
            path,
            source,
        } => match io_failed("unpack the files")(source) {
            DriverError::Step { step, detail } => DriverError::Step {
                step,
                detail: HostDetail::new(format_args!("{action} {}: {detail}", path.display())),
            },
            other => other,
        },
        refused => DriverError::Unusable(refused.to_string()),
    }
}

/// A name from an archive, for error messages.
fn shown(name: &[u8]) -> String {
    const SHOWN: usize = 200;
    name[..name.len().min(SHOWN)].escape_ascii().to_string()
}
