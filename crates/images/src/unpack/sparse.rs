//! The maps of sparse files: the old GNU format in the header, and the three PAX formats.

use std::io::Read;

use tar::{GnuSparseHeader, Header};

use super::members::{BLOCK, Members, corrupt};
use super::pax::number;
use super::{Refusal, UnpackError};

/// The maximum number of segments of a file: enough for a disk image, few enough for memory.
const SEGMENTS_MAX: usize = 1 << 16;

/// A run of data in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment {
    /// Its offset in the file.
    pub offset: u64,
    /// Its length.
    pub length: u64,
}

/// The map of a file without holes.
pub(super) fn whole(length: u64) -> Vec<Segment> {
    vec![Segment { offset: 0, length }]
}

/// The length and the map of a file in the old GNU format.
pub(super) fn of_gnu(
    header: &Header,
    extensions: &[Segment],
    stored: u64,
) -> Result<(u64, Vec<Segment>), UnpackError> {
    let gnu = header.as_gnu().ok_or_else(|| corrupt(BAD_MAP))?;
    let size = gnu.real_size().map_err(|_| corrupt(BAD_MAP))?;
    let mut segments = Vec::new();
    add_gnu(&mut segments, &gnu.sparse)?;
    segments.extend_from_slice(extensions);
    checked(size, segments, stored)
}

/// Adds the segments in one block of an old GNU map.
pub(super) fn add_gnu(
    segments: &mut Vec<Segment>,
    block: &[GnuSparseHeader],
) -> Result<(), UnpackError> {
    for part in block.iter().filter(|part| !part.is_empty()) {
        let offset = part.offset().map_err(|_| corrupt(BAD_MAP))?;
        let length = part.length().map_err(|_| corrupt(BAD_MAP))?;
        add(segments, Segment { offset, length })?;
    }
    Ok(())
}

/// The records of a sparse file in a PAX header.
#[derive(Debug, Default)]
pub(super) struct PaxMap {
    /// The file's name; the member itself has a placeholder.
    pub(super) name: Option<Vec<u8>>,
    size: Option<u64>,
    in_data: bool,
    segments: Vec<Segment>,
    /// An offset without its length yet, in the oldest format.
    pending: Option<u64>,
}

impl PaxMap {
    /// Parses the record `GNU.sparse.` plus `key`.
    pub(super) fn take(&mut self, key: &[u8], value: &[u8]) -> Result<(), UnpackError> {
        match key {
            b"name" => self.name = Some(value.to_vec()),
            b"size" | b"realsize" => self.size = Some(number(value)?),
            b"major" => self.in_data = value == b"1",
            b"offset" => self.pending = Some(number(value)?),
            b"numbytes" => {
                let offset = self.pending.take().ok_or_else(|| corrupt(BAD_MAP))?;
                let length = number(value)?;
                add(&mut self.segments, Segment { offset, length })?;
            }
            b"map" => {
                let mut numbers = value.split(|b| *b == b',');
                while let Some(offset) = numbers.next() {
                    let offset = number(offset)?;
                    let length = number(numbers.next().ok_or_else(|| corrupt(BAD_MAP))?)?;
                    add(&mut self.segments, Segment { offset, length })?;
                }
            }
            _ => (),
        }
        Ok(())
    }

    /// The length and the map of the file. A map in front of the data is read.
    pub(super) fn read<R: Read>(
        mut self,
        members: &mut Members<'_, R>,
        stored: u64,
    ) -> Result<(u64, Vec<Segment>), UnpackError> {
        let Some(size) = self.size else {
            return Ok((stored, whole(stored)));
        };
        if self.in_data {
            self.segments = in_data(members)?;
        }
        checked(size, self.segments, members.remaining())
    }
}

/// The map in front of the data: decimal numbers in lines, padded to a block.
fn in_data<R: Read>(members: &mut Members<'_, R>) -> Result<Vec<Segment>, UnpackError> {
    let mut lines = Lines {
        members,
        block: [0; 512],
        at: 512,
    };
    let count = lines.number()?;
    let mut segments = Vec::new();
    for _ in 0..count {
        let (offset, length) = (lines.number()?, lines.number()?);
        add(&mut segments, Segment { offset, length })?;
    }
    Ok(segments)
}

/// Reads numbers from whole blocks; the data starts after the last block.
struct Lines<'a, 'b, R> {
    members: &'a mut Members<'b, R>,
    block: [u8; 512],
    at: usize,
}

impl<R: Read> Lines<'_, '_, R> {
    fn number(&mut self) -> Result<u64, UnpackError> {
        let mut digits = Vec::new();
        loop {
            match self.byte()? {
                b'\n' => return number(&digits),
                // A number has at most twenty digits.
                _ if digits.len() > 20 => return Err(corrupt(BAD_MAP)),
                digit => digits.push(digit),
            }
        }
    }

    fn byte(&mut self) -> Result<u8, UnpackError> {
        if self.at == self.block.len() {
            if self.members.remaining() < BLOCK {
                return Err(corrupt(BAD_MAP));
            }
            let mut filled = 0;
            while filled < self.block.len() {
                filled += self.members.read_data(&mut self.block[filled..])?;
            }
            self.at = 0;
        }
        self.at += 1;
        Ok(self.block[self.at - 1])
    }
}

fn add(segments: &mut Vec<Segment>, segment: Segment) -> Result<(), UnpackError> {
    if segments.len() == SEGMENTS_MAX {
        return Err(Refusal::TooSparse.into());
    }
    segments.push(segment);
    Ok(())
}

const BAD_MAP: &str = "the map of a sparse file is wrong";

/// Checks that a map is sorted, within the file, and covers exactly the stored data.
fn checked(
    size: u64,
    segments: Vec<Segment>,
    stored: u64,
) -> Result<(u64, Vec<Segment>), UnpackError> {
    let (mut end, mut data) = (0_u64, 0_u64);
    for segment in &segments {
        if segment.offset < end {
            return Err(corrupt(BAD_MAP));
        }
        end = segment
            .offset
            .checked_add(segment.length)
            .filter(|end| *end <= size)
            .ok_or_else(|| corrupt(BAD_MAP))?;
        data += segment.length;
    }
    if data == stored {
        Ok((size, segments))
    } else {
        Err(corrupt(BAD_MAP))
    }
}
