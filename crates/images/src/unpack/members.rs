//! The members of a tar archive, one after the other.
//!
//! The `tar` crate parses the headers; the framing around them is our own. The crate reads extended
//! headers of any length into memory, cuts their values at a line feed (which a capability may
//! contain), and does not support PAX sparse files.

use std::borrow::Cow;
use std::io::{self, Read, Seek};

use tar::{EntryType, Header};

use super::member::{Kind, Member};
use super::pax::Records;
use super::sparse::{self, Segment};
use super::{Limits, Refusal, UnpackError};

/// The block size of a tar archive.
pub const BLOCK: u64 = 512;

/// The longest extended header or long name. Most file systems allow at most 64 KiB for all
/// extended attributes of a file, and a path is shorter.
const EXTENDED_MAX: u64 = 1 << 20;

/// Extended headers that describe the next member.
#[derive(Default)]
struct Preamble {
    pax: Option<Records>,
    long_path: Option<Vec<u8>>,
    long_link: Option<Vec<u8>>,
}

impl Preamble {
    fn is_empty(&self) -> bool {
        self.pax.is_none() && self.long_path.is_none() && self.long_link.is_none()
    }
}

/// Reads members.
pub struct Members<'a, R> {
    inner: R,
    limits: &'a Limits,
    /// Skips data that need not be read, if the source can seek.
    seek: Option<fn(&mut R, i64) -> io::Result<()>>,
    /// The position in the archive.
    position: u64,
    /// Bytes of the archive read so far.
    read: u64,
    /// Headers read so far.
    headers: u64,
    /// Unread bytes of the current member's data and its padding.
    remaining: u64,
    padding: u64,
}

impl<'a, R: Read> Members<'a, R> {
    /// Reads an uncompressed archive from `inner`.
    pub fn new(inner: R, limits: &'a Limits) -> Self {
        Self {
            inner,
            limits,
            seek: None,
            position: 0,
            read: 0,
            headers: 0,
            remaining: 0,
            padding: 0,
        }
    }

    /// Reads an archive in a file, skipping data that is not requested.
    pub(crate) fn seeking(inner: R, limits: &'a Limits) -> Self
    where
        R: Seek,
    {
        Self {
            seek: Some(R::seek_relative),
            ..Self::new(inner, limits)
        }
    }

    /// The position of the current member's data, or of its unread part.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// The next member; unread data of the previous one is skipped.
    pub fn next_member(&mut self) -> Result<Option<Member>, UnpackError> {
        let mut preamble = Preamble::default();
        loop {
            let Some(header) = self.header()? else {
                return if preamble.is_empty() {
                    Ok(None)
                } else {
                    Err(corrupt("it ends before a member that was announced"))
                };
            };
            let size = number(&header.as_old().size, header.entry_size())?;
            match header.entry_type() {
                EntryType::XGlobalHeader => self.begin_data(size)?,
                EntryType::XHeader => {
                    let records = Records::parse(self.extended(size)?)?;
                    announce(&mut preamble.pax, records)?;
                }
                EntryType::GNULongName => {
                    let text = until_zero(self.extended(size)?);
                    announce(&mut preamble.long_path, text)?;
                }
                EntryType::GNULongLink => {
                    let text = until_zero(self.extended(size)?);
                    announce(&mut preamble.long_link, text)?;
                }
                other => return self.member(&header, other, preamble).map(Some),
            }
        }
    }

    /// Reads data of the current member.
    pub fn read_data(&mut self, into: &mut [u8]) -> Result<usize, UnpackError> {
        let most = usize::try_from(self.remaining).map_or(into.len(), |n| n.min(into.len()));
        if most == 0 {
            return Ok(0);
        }
        let n = self.pull(&mut into[..most])?;
        if n == 0 {
            return Err(corrupt("it ends within a file"));
        }
        self.remaining -= n as u64;
        Ok(n)
    }

    /// Reads to the end of the source after the archive, and returns the source.
    pub fn drain(mut self) -> Result<R, UnpackError> {
        let mut buffer = [0; 32 * 1024];
        while self.pull(&mut buffer)? > 0 {}
        Ok(self.inner)
    }

    fn pull(&mut self, into: &mut [u8]) -> Result<usize, UnpackError> {
        let n = loop {
            match self.inner.read(into) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => (),
                other => break other.map_err(|e| corrupt(e.to_string()))?,
            }
        };
        self.position = self.position.saturating_add(n as u64);
        self.read = self.read.saturating_add(n as u64);
        if self.read > self.limits.bytes {
            return Err(Refusal::TooManyBytes(self.limits.bytes).into());
        }
        Ok(n)
    }

    /// Fills `into`; false if the source ends before its first byte.
    fn fill(&mut self, into: &mut [u8]) -> Result<bool, UnpackError> {
        let mut filled = 0;
        while filled < into.len() {
            match self.pull(&mut into[filled..])? {
                0 if filled == 0 => return Ok(false),
                0 => return Err(corrupt("it ends within a block")),
                n => filled += n,
            }
        }
        Ok(true)
    }

    /// The next header; `None` at the end of the archive.
    fn header(&mut self) -> Result<Option<Header>, UnpackError> {
        self.skip_data()?;
        let mut header = Header::new_old();
        if !self.fill(header.as_mut_bytes())? || header.as_bytes().iter().all(|b| *b == 0) {
            return Ok(None);
        }
        let bytes = header.as_bytes();
        let sum = |from: &[u8]| from.iter().map(|b| u32::from(*b)).sum::<u32>();
        // The checksum counts its own eight bytes as spaces.
        let expected = sum(&bytes[..148]) + sum(&bytes[156..]) + 8 * u32::from(b' ');
        if header.cksum().map_err(bad_header)? != expected {
            return Err(corrupt("a header's checksum does not match"));
        }
        self.headers += 1;
        if self.headers > self.limits.entries {
            return Err(Refusal::TooManyEntries(self.limits.entries).into());
        }
        Ok(Some(header))
    }

    fn begin_data(&mut self, size: u64) -> Result<(), UnpackError> {
        if size > self.limits.bytes {
            return Err(Refusal::TooManyBytes(self.limits.bytes).into());
        }
        self.remaining = size;
        self.padding = size.next_multiple_of(BLOCK) - size;
        Ok(())
    }

    fn skip_data(&mut self) -> Result<(), UnpackError> {
        if let Some(seek) = self.seek {
            let length = std::mem::take(&mut self.remaining) + std::mem::take(&mut self.padding);
            let offset = i64::try_from(length).map_err(|_| corrupt("it is too long"))?;
            // Seeking past the end succeeds; incomplete data shows when it is read.
            seek(&mut self.inner, offset).map_err(|e| corrupt(e.to_string()))?;
            self.position = self.position.saturating_add(length);
            return Ok(());
        }
        let mut buffer = [0; 32 * 1024];
        while self.read_data(&mut buffer)? > 0 {}
        let padding = usize::try_from(std::mem::take(&mut self.padding)).unwrap_or(0);
        // A truncated archive may lack the last member's padding; the next read then finds its end.
        if padding > 0 {
            self.fill(&mut buffer[..padding])?;
        }
        Ok(())
    }

    /// Reads the data of an extended header.
    fn extended(&mut self, size: u64) -> Result<Vec<u8>, UnpackError> {
        if size > EXTENDED_MAX {
            return Err(Refusal::LongHeader(size).into());
        }
        self.begin_data(size)?;
        let mut data = vec![0; usize::try_from(size).unwrap_or(0)];
        let mut filled = 0;
        while filled < data.len() {
            filled += self.read_data(&mut data[filled..])?;
        }
        Ok(data)
    }

    fn member(
        &mut self,
        header: &Header,
        entry_type: EntryType,
        preamble: Preamble,
    ) -> Result<Member, UnpackError> {
        let pax = preamble.pax.unwrap_or_default();
        let path = pax
            .path
            .or(preamble.long_path)
            .unwrap_or_else(|| header.path_bytes().into_owned());
        let link = pax.link.or(preamble.long_link).unwrap_or_else(|| {
            header
                .link_name_bytes()
                .map_or_else(Vec::new, Cow::into_owned)
        });
        let kind = Kind::of(entry_type, &path)?;
        let stored = match pax.size {
            Some(size) => size,
            None => number(&header.as_old().size, header.entry_size())?,
        };
        // Only files have data, whatever the header says: the tool that makes most images reads and
        // writes it that way.
        let stored = if kind == Kind::File { stored } else { 0 };
        let mut extra = Vec::new();
        if entry_type == EntryType::GNUSparse {
            extra = self.gnu_extensions(header)?;
        }
        self.begin_data(stored)?;
        let (size, segments) = match entry_type {
            EntryType::GNUSparse => sparse::of_gnu(header, &extra, stored)?,
            _ => match pax.sparse {
                Some(map) if kind == Kind::File => map.read(self, stored)?,
                _ => (stored, sparse::whole(stored)),
            },
        };
        if size > self.limits.file_bytes {
            return Err(Refusal::LongFile(self.limits.file_bytes).into());
        }
        let old = header.as_old();
        let changed = match pax.changed {
            Some(moment) => moment,
            None => {
                let seconds = number(&old.mtime, header.mtime())?;
                (i64::try_from(seconds).unwrap_or(0), 0)
            }
        };
        Ok(Member {
            path,
            link,
            kind,
            mode: number(&old.mode, header.mode())? & 0o7777,
            uid: owner(pax.uid, number(&old.uid, header.uid()))?,
            gid: owner(pax.gid, number(&old.gid, header.gid()))?,
            changed,
            size,
            segments,
            xattrs: pax.xattrs,
            mark: pax.mark,
        })
    }

    /// The further blocks of a sparse map after a GNU header.
    fn gnu_extensions(&mut self, header: &Header) -> Result<Vec<Segment>, UnpackError> {
        let mut segments = Vec::new();
        let mut more = header.as_gnu().is_some_and(tar::GnuHeader::is_extended);
        while more {
            let mut block = tar::GnuExtSparseHeader::new();
            if !self.fill(block.as_mut_bytes())? {
                return Err(corrupt("it ends within the map of a sparse file"));
            }
            sparse::add_gnu(&mut segments, block.sparse())?;
            more = block.is_extended();
        }
        Ok(segments)
    }

    /// The unread bytes of the current member's data.
    pub(super) fn remaining(&self) -> u64 {
        self.remaining
    }
}

fn announce<T>(place: &mut Option<T>, value: T) -> Result<(), UnpackError> {
    match place.replace(value) {
        None => Ok(()),
        Some(_) => Err(corrupt("two headers of one kind describe the same member")),
    }
}

/// An owner's id. To the kernel, the highest value means "unchanged".
fn owner(pax: Option<u64>, header: Result<u64, UnpackError>) -> Result<u32, UnpackError> {
    let number = match pax {
        Some(number) => number,
        None => header?,
    };
    match u32::try_from(number) {
        Ok(number) if number != u32::MAX => Ok(number),
        _ => Err(corrupt("an owner's number is too large")),
    }
}

/// A number in a header. Some writers leave the field empty for zero.
fn number<T: Default>(field: &[u8], read: io::Result<T>) -> Result<T, UnpackError> {
    if field.iter().all(|b| matches!(b, 0 | b' ')) {
        return Ok(T::default());
    }
    read.map_err(bad_header)
}

fn until_zero(mut text: Vec<u8>) -> Vec<u8> {
    if let Some(end) = text.iter().position(|b| *b == 0) {
        text.truncate(end);
    }
    text
}

fn bad_header(error: io::Error) -> UnpackError {
    corrupt(format!("a header cannot be read: {error}"))
}

pub(crate) fn corrupt(detail: impl Into<String>) -> UnpackError {
    UnpackError::Corrupt(detail.into())
}
