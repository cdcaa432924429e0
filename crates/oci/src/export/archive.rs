//! Writes the members of an export.

use std::io::{self, BufWriter, Read, Write};

use shoal_core::driver::ExportKey;
use shoal_images::unpack::{BLOCK, MARK, Mark, Segment};
use tar::{EntryType, Header};

use super::Stop;
use super::seal::{Digesting, Seal};

/// How much is written at a time.
const BUFFER: usize = 1 << 20;
/// The bytes of a header's name field.
const NAME_FIELD: usize = 100;
/// The largest numbers in seven and in eleven octal digits.
const OWNER_MAX: u32 = 0o7_777_777;
const SIZE_MAX: u64 = 0o77_777_777_777;
/// The longest extended header that an import accepts.
const EXTENDED_MAX: usize = 1 << 20;

/// A member to be written.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) path: Vec<u8>,
    pub(crate) link: Vec<u8>,
    pub(crate) kind: EntryType,
    pub(crate) mode: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    /// Seconds and nanoseconds since 1970.
    pub(crate) changed: (i64, u32),
    /// How long the file is.
    pub(crate) size: u64,
    /// The segments with data, if the file has holes.
    pub(crate) segments: Option<Vec<Segment>>,
    pub(crate) xattrs: Vec<(Vec<u8>, Vec<u8>)>,
    pub(crate) mark: Option<Mark>,
}

impl Entry {
    /// A regular file of root.
    pub(crate) fn file(path: &str, size: u64) -> Self {
        Self {
            path: path.into(),
            link: Vec::new(),
            kind: EntryType::Regular,
            mode: 0o600,
            uid: 0,
            gid: 0,
            changed: (0, 0),
            size,
            segments: None,
            xattrs: Vec::new(),
            mark: None,
        }
    }
}

/// An archive under construction, with the digest for its seal.
pub(crate) struct Archive<W: Write> {
    out: BufWriter<Digesting<W>>,
}

impl<W: Write> Archive<W> {
    pub(crate) fn new(out: W, stop: Stop) -> Self {
        Self {
            out: BufWriter::with_capacity(BUFFER, Digesting::new(out, stop)),
        }
    }

    /// Writes a short member from memory.
    pub(crate) fn small(&mut self, path: &str, data: &[u8]) -> io::Result<()> {
        self.member(&Entry::file(path, data.len() as u64), data)
    }

    /// Writes a member. A file's data, without its holes, is read from `data`.
    pub(crate) fn member(&mut self, entry: &Entry, mut data: impl Read) -> io::Result<()> {
        let map = entry.segments.as_deref().map(map_of);
        let stored = match (&map, &entry.segments) {
            (Some(map), Some(segments)) => {
                map.len() as u64 + segments.iter().map(|part| part.length).sum::<u64>()
            }
            _ => entry.size,
        };
        let records = records(entry, stored)?;
        if !records.is_empty() {
            if records.len() > EXTENDED_MAX {
                let path = entry.path.escape_ascii();
                return Err(io::Error::other(format!(
                    "/{path} has more extended attributes than an export can hold"
                )));
            }
            let mut header = header(&Entry::file("pax", 0), records.len() as u64);
            header.set_entry_type(EntryType::XHeader);
            self.block(header)?;
            self.out.write_all(&records)?;
            self.fill_block(records.len() as u64)?;
        }
        self.block(header(entry, stored))?;
        let map = map.unwrap_or_default();
        self.out.write_all(&map)?;
        let left = stored - map.len() as u64;
        let copied = io::copy(&mut (&mut data).take(left), &mut self.out)?;
        if copied < left {
            return Err(io::Error::other("a file is shorter than it was"));
        }
        self.fill_block(stored)
    }

    /// Finishes the archive and appends its seal.
    pub(crate) fn finish(mut self, key: &ExportKey) -> io::Result<W> {
        // Two empty blocks mark the end.
        io::copy(&mut io::repeat(0).take(2 * BLOCK), &mut self.out)?;
        let sealed = self
            .out
            .into_inner()
            .map_err(io::IntoInnerError::into_error)?;
        let (digest, mut out) = sealed.finish();
        out.write_all(&Seal::new(&digest, key).to_bytes())?;
        Ok(out)
    }

    fn block(&mut self, mut header: Header) -> io::Result<()> {
        header.set_cksum();
        self.out.write_all(header.as_bytes())
    }

    fn fill_block(&mut self, written: u64) -> io::Result<()> {
        let missing = written.next_multiple_of(BLOCK) - written;
        io::copy(&mut io::repeat(0).take(missing), &mut self.out).map(drop)
    }
}

/// The fields that fit into a header; the others are in [`records`].
fn header(entry: &Entry, stored: u64) -> Header {
    let mut header = Header::new_ustar();
    let old = header.as_old_mut();
    put(&mut old.name, &entry.path);
    put(&mut old.linkname, &entry.link);
    header.set_entry_type(entry.kind);
    header.set_mode(entry.mode);
    header.set_uid(entry.uid.min(OWNER_MAX).into());
    header.set_gid(entry.gid.min(OWNER_MAX).into());
    header.set_size(stored.min(SIZE_MAX));
    let seconds = u64::try_from(entry.changed.0).unwrap_or(0);
    header.set_mtime(seconds.min(SIZE_MAX));
    header
}

fn put(field: &mut [u8; NAME_FIELD], text: &[u8]) {
    let length = text.len().min(NAME_FIELD);
    field[..length].copy_from_slice(&text[..length]);
}

/// The extended header of a member; empty if it needs none.
fn records(entry: &Entry, stored: u64) -> io::Result<Vec<u8>> {
    let mut out = Vec::new();
    let mut say = |key: &[u8], value: &[u8]| record(&mut out, key, value);
    if entry.path.len() > NAME_FIELD {
        say(b"path", &entry.path);
    }
    if entry.link.len() > NAME_FIELD {
        say(b"linkpath", &entry.link);
    }
    for (key, owner) in [(b"uid", entry.uid), (b"gid", entry.gid)] {
        if owner > OWNER_MAX {
            say(key, owner.to_string().as_bytes());
        }
    }
    if stored > SIZE_MAX {
        say(b"size", stored.to_string().as_bytes());
    }
    let (seconds, nanos) = entry.changed;
    if nanos != 0 || seconds.unsigned_abs() > SIZE_MAX {
        say(b"mtime", format!("{seconds}.{nanos:09}").as_bytes());
    }
    for (name, value) in &entry.xattrs {
        if name.contains(&b'=') {
            let name = name.escape_ascii();
            return Err(io::Error::other(format!(
                "the extended attribute {name} has a name that an export cannot hold"
            )));
        }
        say(&[b"SCHILY.xattr.", &name[..]].concat(), value);
    }
    if let Some(mark) = entry.mark {
        say(MARK.as_bytes(), mark.as_str().as_bytes());
    }
    if entry.segments.is_some() {
        say(b"GNU.sparse.major", b"1");
        say(b"GNU.sparse.minor", b"0");
        say(b"GNU.sparse.name", &entry.path);
        say(b"GNU.sparse.realsize", entry.size.to_string().as_bytes());
    }
    Ok(out)
}

/// Appends a record `length key=value\n`; the length includes its own digits.
fn record(out: &mut Vec<u8>, key: &[u8], value: &[u8]) {
    let rest = key.len() + value.len() + 3;
    let mut length = rest + 1;
    while rest + length.to_string().len() > length {
        length += 1;
    }
    out.extend_from_slice(length.to_string().as_bytes());
    for part in [b" ", key, b"=", value, b"\n"] {
        out.extend_from_slice(part);
    }
}

/// The map of a sparse file, which precedes its data.
fn map_of(segments: &[Segment]) -> Vec<u8> {
    let mut text = format!("{}\n", segments.len());
    for part in segments {
        text.push_str(&format!("{}\n{}\n", part.offset, part.length));
    }
    let mut map = text.into_bytes();
    let filled = (map.len() as u64).next_multiple_of(BLOCK);
    map.resize(usize::try_from(filled).unwrap_or(map.len()), 0);
    map
}
