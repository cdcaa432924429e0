//! Streaming parser of `multipart/form-data` (RFC 7578, RFC 2046).

use std::io::{self, Read};

use memchr::memmem::Finder;

use super::disposition::{self, PartNames};

/// Size of the parse window, and the limit of a piece.
const WINDOW: usize = 256 << 10;

/// Longest part headers, in bytes.
const MAX_HEADERS: usize = 16 << 10;

/// Longest boundary, as in RFC 2046.
const MAX_BOUNDARY: usize = 70;

/// Invalid multipart body.
#[derive(Debug, thiserror::Error)]
pub(super) enum MultipartError {
    /// The content type has no boundary.
    #[error("no multipart boundary param in Content-Type")]
    NoBoundary,
    /// Premature end.
    #[error("unexpected end of multipart body")]
    Truncated,
    /// Part headers too long.
    #[error("headers of a part exceed {MAX_HEADERS} bytes")]
    LongHeaders,
    /// Unexpected data after a delimiter.
    #[error("malformed multipart delimiter")]
    Malformed,
    /// Reading failed.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// The boundary in a content type.
pub(super) fn boundary(content_type: &str) -> Result<String, MultipartError> {
    let parameters = content_type.split(';').skip(1);
    let mut parameters = parameters.filter_map(|parameter| parameter.split_once('='));
    let boundary = parameters.find(|(key, _)| key.trim().eq_ignore_ascii_case("boundary"));
    let boundary = boundary.map(|(_, value)| value.trim().trim_matches('"').to_owned());
    boundary
        .filter(|boundary| (1..=MAX_BOUNDARY).contains(&boundary.len()))
        .ok_or(MultipartError::NoBoundary)
}

/// A multipart body. `Read` reads the current part.
pub(super) struct Multipart<R> {
    body: R,
    delimiter: Vec<u8>,
    finder: Finder<'static>,
    window: Box<[u8]>,
    /// Unconsumed range of the window.
    start: usize,
    end: usize,
    at_end: bool,
    state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Before the first delimiter.
    Preamble,
    /// In a part.
    Part,
    /// After a delimiter.
    Delimiter,
    /// After the last delimiter.
    Over,
}

impl<R: Read> Multipart<R> {
    /// A parser of a body.
    pub(super) fn new(body: R, boundary: &str) -> Self {
        let delimiter = format!("\r\n--{boundary}").into_bytes();
        let mut window = vec![0; WINDOW].into_boxed_slice();
        // The first delimiter may start the body, without a preceding line break.
        window[..2].copy_from_slice(b"\r\n");
        Self {
            body,
            finder: Finder::new(&delimiter).into_owned(),
            delimiter,
            window,
            start: 0,
            end: 2,
            at_end: false,
            state: State::Preamble,
        }
    }

    /// Skips the rest of the current part. Returns the next part's names, or `None` after the last
    /// part.
    pub(super) fn next_part(&mut self) -> Result<Option<PartNames>, MultipartError> {
        while matches!(self.state, State::Preamble | State::Part) {
            let count = self.available()?;
            self.start += count;
        }
        if self.state == State::Over {
            return Ok(None);
        }
        // A delimiter is followed by `--` at the end, else by a line break and headers.
        while self.end - self.start < 2 {
            self.fill()?;
        }
        if self.unread().starts_with(b"--") {
            self.state = State::Over;
            return Ok(None);
        }
        let named = self.headers()?;
        self.state = State::Part;
        Ok(Some(named))
    }

    /// Parses headers up to the start of the contents.
    fn headers(&mut self) -> Result<PartNames, MultipartError> {
        let end = loop {
            let unread = self.unread();
            if let Some(end) = memchr::memmem::find(unread, b"\r\n\r\n") {
                break end;
            }
            if unread.len() > MAX_HEADERS {
                return Err(MultipartError::LongHeaders);
            }
            self.fill()?;
        };
        if end > MAX_HEADERS {
            return Err(MultipartError::LongHeaders);
        }
        let head = self.unread().get(..end + 2).unwrap_or_default();
        let mut lines = head.split(|byte| *byte == b'\n');
        // The rest of the delimiter's line may only be whitespace.
        let rest = lines.next().unwrap_or_default();
        if !rest.iter().all(u8::is_ascii_whitespace) {
            return Err(MultipartError::Malformed);
        }
        let mut lines = lines.filter_map(|line| std::str::from_utf8(line).ok()?.split_once(':'));
        let found = lines.find(|(name, _)| name.trim().eq_ignore_ascii_case("content-disposition"));
        let named = found.map(|(_, value)| disposition::parse(value.trim()));
        let named = named.unwrap_or_default();
        // If the part is empty, the line break before its contents belongs to the next delimiter.
        self.start += end + 2;
        while self.end - self.start < self.delimiter.len() {
            self.fill()?;
        }
        if !self.unread().starts_with(&self.delimiter) {
            self.start += 2;
        }
        Ok(named)
    }

    /// Number of contents bytes in the window, at least one. 0 at the end of the part, where the
    /// delimiter is consumed.
    fn available(&mut self) -> Result<usize, MultipartError> {
        loop {
            let unread = self.unread();
            match self.finder.find(unread) {
                Some(0) => {
                    self.start += self.delimiter.len();
                    self.state = State::Delimiter;
                    return Ok(0);
                }
                Some(count) => return Ok(count),
                // The end of the window may be the start of a delimiter.
                None if unread.len() >= self.delimiter.len() => {
                    return Ok(unread.len() - (self.delimiter.len() - 1));
                }
                None => self.fill()?,
            }
        }
    }

    fn unread(&self) -> &[u8] {
        self.window.get(self.start..self.end).unwrap_or_default()
    }

    /// Reads more. There is always room, because the unconsumed rest is shorter than the window.
    fn fill(&mut self) -> Result<(), MultipartError> {
        if self.at_end {
            return Err(MultipartError::Truncated);
        }
        if self.start > 0 {
            self.window.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        let room = self.window.get_mut(self.end..).unwrap_or_default();
        match self.body.read(room) {
            Ok(0) => self.at_end = true,
            Ok(count) => self.end += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }
}

impl<R: Read> Read for Multipart<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.state != State::Part || buffer.is_empty() {
            return Ok(0);
        }
        let count = self.available().map_err(|error| match error {
            MultipartError::Io(error) => error,
            other => io::Error::new(io::ErrorKind::InvalidData, other),
        })?;
        let count = count.min(buffer.len());
        let bytes = self.window.get(self.start..self.start + count);
        if let (Some(to), Some(from)) = (buffer.get_mut(..count), bytes) {
            to.copy_from_slice(from);
        }
        self.start += count;
        Ok(count)
    }
}

// Explicit path, because `fuzz/` includes this file.
#[cfg(test)]
#[path = "multipart/tests.rs"]
mod tests;
