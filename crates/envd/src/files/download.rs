//! `GET /files`.

use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use futures_util::{Stream, StreamExt, stream};
use http::header::{
    ACCEPT_RANGES, CONTENT_DISPOSITION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE,
    CONTENT_TYPE, HeaderMap, LAST_MODIFIED, VARY,
};
use http::{HeaderValue, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use shoal_protocol::signature::Operation;

use super::conditions::{self, Outcome};
use super::encoding::{Accepted, Encoding, UnknownEncoding};
use super::range::{self, RequestedRange};
use super::{Files, Parameters, RequestError, disposition, kind};
use crate::heap::HeapTrimmer;
use crate::path::{self, base_name};
use crate::response::{self, Body, BodyError, HttpResponse};
use crate::server::Peer;

/// Read size. The next piece is read while one is sent.
const READ_SIZE: usize = 512 << 10;

/// An open file and its metadata.
struct OpenedFile {
    file: File,
    meta: Metadata,
    kind: &'static str,
}

impl Files {
    pub(super) async fn download(
        &self,
        query: &str,
        peer: Peer,
        headers: &HeaderMap,
    ) -> Result<HttpResponse, RequestError> {
        let parameters = Parameters::parse(query)?;
        self.authorise(peer, &parameters, headers, Operation::Read)?;
        let actor = self.actor(parameters.username.as_deref())?;
        let asked = parameters.path.as_deref().unwrap_or_default();
        let path = path::resolve(asked, &actor.user, actor.workdir.as_deref())?;
        let encoding = negotiate(headers)?;
        let name = base_name(&path);
        let opened = tokio::task::spawn_blocking(move || open(&path)).await;
        let opened = opened.map_err(|_| RequestError::shutting_down())??;
        let mut answer = match encoding {
            Encoding::Gzip => gzipped(opened, &self.heap),
            Encoding::Identity => plain(opened, headers, &self.heap),
        }?;
        let headers = answer.headers_mut();
        headers.insert(VARY, HeaderValue::from_static("Accept-Encoding"));
        headers.insert(CONTENT_DISPOSITION, disposition::inline(&name));
        Ok(answer)
    }
}

impl Files {
    /// Sends a file, whole or a range of it, without a check of a token.
    pub(super) async fn send(
        &self,
        path: PathBuf,
        headers: &HeaderMap,
    ) -> Result<HttpResponse, RequestError> {
        let opened = tokio::task::spawn_blocking(move || open(&path)).await;
        let opened = opened.map_err(|_| RequestError::shutting_down())??;
        plain(opened, headers, &self.heap)
    }
}

/// The response encoding. Ranges and conditions require identity.
fn negotiate(headers: &HeaderMap) -> Result<Encoding, RequestError> {
    let refuse = |error: UnknownEncoding| {
        let text = format!("error parsing Accept-Encoding: {error}");
        RequestError::new(StatusCode::NOT_ACCEPTABLE, text)
    };
    let accepted = Accepted::parse(headers);
    if !conditions::are_set(headers) {
        return accepted.best.ok_or_else(|| refuse(UnknownEncoding::Accept));
    }
    accepted
        .identity
        .then_some(Encoding::Identity)
        .ok_or_else(|| {
            RequestError::new(
                StatusCode::NOT_ACCEPTABLE,
                "identity encoding not acceptable for Range or conditional request",
            )
        })
}

fn open(path: &Path) -> Result<OpenedFile, RequestError> {
    let shown = path.display();
    let failed = |error: io::Error| match error.raw_os_error() {
        Some(libc::ENOENT | libc::ENOTDIR) => {
            let text = format!("path '{shown}' does not exist");
            RequestError::new(StatusCode::NOT_FOUND, text)
        }
        _ => RequestError::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            format!("error opening file '{shown}': {error}"),
        ),
    };
    check_kind(&std::fs::metadata(path).map_err(failed)?, path)?;
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC | libc::O_NOCTTY)
        .open(path);
    let mut file = file.map_err(failed)?;
    // Checked again: the path may have been replaced in between.
    let meta = file.metadata().map_err(failed)?;
    check_kind(&meta, path)?;
    let kind = match kind::by_name(path) {
        Some(kind) => kind,
        None => {
            let mut start = Vec::new();
            let sniffed = (&mut file)
                .take(kind::SNIFF_LENGTH as u64)
                .read_to_end(&mut start);
            sniffed.and_then(|_| file.rewind()).map_err(failed)?;
            kind::guess(path, &start)
        }
    };
    Ok(OpenedFile { file, meta, kind })
}

fn check_kind(meta: &Metadata, path: &Path) -> Result<(), RequestError> {
    let shown = path.display();
    if meta.is_dir() {
        return Err(RequestError::bad_request(format!(
            "path '{shown}' is a directory"
        )));
    }
    if !meta.is_file() {
        return Err(RequestError::bad_request(format!(
            "path '{shown}' is not a regular file"
        )));
    }
    Ok(())
}

/// A response with the file's bytes or a range of them.
fn plain(
    opened: OpenedFile,
    headers: &HeaderMap,
    heap: &Arc<HeapTrimmer>,
) -> Result<HttpResponse, RequestError> {
    let OpenedFile {
        mut file,
        meta,
        kind,
    } = opened;
    let modified = meta.modified().ok();
    match conditions::evaluate(headers, modified) {
        Outcome::Send => {}
        Outcome::NotModified => {
            let mut answer = response::status(StatusCode::NOT_MODIFIED);
            describe(answer.headers_mut(), kind, modified);
            answer.headers_mut().remove(CONTENT_TYPE);
            return Ok(answer);
        }
        Outcome::PreconditionFailed => {
            return Ok(response::status(StatusCode::PRECONDITION_FAILED));
        }
    }
    let size = meta.len();
    let (status, range) = match range::parse(conditions::range(headers, modified), size) {
        RequestedRange::Whole => (StatusCode::OK, 0..size),
        RequestedRange::Bytes(range) => (StatusCode::PARTIAL_CONTENT, range),
        RequestedRange::Unsatisfiable => {
            let text = "range outside of the file";
            let mut answer = response::error(StatusCode::RANGE_NOT_SATISFIABLE, text);
            insert(
                answer.headers_mut(),
                CONTENT_RANGE,
                format!("bytes */{size}"),
            );
            return Ok(answer);
        }
    };
    let seek = file.seek(SeekFrom::Start(range.start));
    seek.map_err(|error| {
        let text = format!("error reading file: {error}");
        RequestError::new(StatusCode::INTERNAL_SERVER_ERROR, text)
    })?;
    // Files of procfs and sysfs report size 0 but have contents: read those to the end.
    let hidden = size == 0 && status == StatusCode::OK && has_hidden_contents(&file);
    let length = (!hidden).then_some(range.end - range.start);
    let mut answer = HttpResponse::new(match length {
        Some(length) => file_body(file, length, heap),
        None => body(FileBytes::new(file, None, heap)),
    });
    *answer.status_mut() = status;
    let answer_headers = answer.headers_mut();
    describe(answer_headers, kind, modified);
    if let Some(length) = length {
        insert(answer_headers, CONTENT_LENGTH, length.to_string());
    }
    if status == StatusCode::PARTIAL_CONTENT {
        let (first, last) = (range.start, range.end - 1);
        insert(
            answer_headers,
            CONTENT_RANGE,
            format!("bytes {first}-{last}/{size}"),
        );
    }
    Ok(answer)
}

/// The first bytes of a file, as a response body.
pub(crate) fn file_body(file: File, length: u64, heap: &Arc<HeapTrimmer>) -> Body {
    match length {
        0 => response::empty(),
        length => body(FileBytes::new(file, Some(length), heap)),
    }
}

/// Whether an allegedly empty file has contents.
fn has_hidden_contents(file: &File) -> bool {
    let mut byte = [0];
    matches!(rustix::io::pread(file, &mut byte, 0), Ok(1))
}

/// A gzip-compressed response with the whole file.
fn gzipped(opened: OpenedFile, heap: &Arc<HeapTrimmer>) -> Result<HttpResponse, RequestError> {
    let bytes = FileBytes::new(opened.file, None, heap);
    let packed = Gzipped {
        bytes,
        encoder: Some(GzEncoder::new(Vec::new(), Compression::fast())),
    };
    let mut answer = HttpResponse::new(body(packed));
    let headers = answer.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(opened.kind));
    headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    Ok(answer)
}

fn describe(headers: &mut HeaderMap, kind: &'static str, modified: Option<SystemTime>) {
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    if let Some(modified) = modified.and_then(conditions::whole_seconds) {
        insert(headers, LAST_MODIFIED, httpdate::fmt_http_date(modified));
    }
}

/// Inserts a generated header value, which is always valid.
fn insert(headers: &mut HeaderMap, name: http::HeaderName, value: String) {
    if let Ok(value) = HeaderValue::try_from(value) {
        headers.insert(name, value);
    }
}

/// A blocking source of pieces.
trait Pieces: Send + 'static {
    /// The next piece, and whether more may follow.
    fn next(&mut self) -> io::Result<(Bytes, bool)>;
}

/// Reads a file.
struct FileBytes {
    file: File,
    /// Bytes left, if a length was announced.
    left: Option<u64>,
    moved: u64,
    heap: Arc<HeapTrimmer>,
}

impl FileBytes {
    fn new(file: File, left: Option<u64>, heap: &Arc<HeapTrimmer>) -> Self {
        Self {
            file,
            left,
            moved: 0,
            heap: Arc::clone(heap),
        }
    }
}

impl Drop for FileBytes {
    fn drop(&mut self) {
        self.heap.record_transfer(self.moved);
    }
}

impl Pieces for FileBytes {
    fn next(&mut self) -> io::Result<(Bytes, bool)> {
        let most = match self.left.map(usize::try_from) {
            Some(Ok(left)) => left.min(READ_SIZE),
            Some(Err(_)) | None => READ_SIZE,
        };
        let mut piece: Vec<u8> = Vec::with_capacity(most.max(1));
        rustix::io::retry_on_intr(|| {
            rustix::io::read(&self.file, rustix::buffer::spare_capacity(&mut piece))
        })?;
        piece.truncate(most);
        self.moved += piece.len() as u64;
        match &mut self.left {
            Some(left) => {
                // The file was truncated below the announced length.
                if piece.is_empty() && *left > 0 {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
                *left -= piece.len() as u64;
                Ok((piece.into(), *left > 0))
            }
            None => {
                let more = !piece.is_empty();
                Ok((piece.into(), more))
            }
        }
    }
}

/// Compresses a file.
struct Gzipped {
    bytes: FileBytes,
    encoder: Option<GzEncoder<Vec<u8>>>,
}

impl Pieces for Gzipped {
    fn next(&mut self) -> io::Result<(Bytes, bool)> {
        while let Some(encoder) = &mut self.encoder {
            let (piece, more) = self.bytes.next()?;
            encoder.write_all(&piece)?;
            if more {
                let packed = std::mem::take(encoder.get_mut());
                if !packed.is_empty() {
                    return Ok((packed.into(), true));
                }
            } else if let Some(encoder) = self.encoder.take() {
                return Ok((encoder.finish()?.into(), false));
            }
        }
        Ok((Bytes::new(), false))
    }
}

/// A response body that reads one piece ahead. A read error resets the connection, because the
/// length is announced already.
fn body(pieces: impl Pieces) -> Body {
    let frames = read_ahead(pieces).map(|piece| piece.map(Frame::data).map_err(BodyError::from));
    StreamBody::new(frames).boxed_unsync()
}

fn read_ahead(pieces: impl Pieces) -> impl Stream<Item = io::Result<Bytes>> + Send {
    let read = |mut pieces| {
        tokio::task::spawn_blocking(move || {
            let piece = Pieces::next(&mut pieces);
            (pieces, piece)
        })
    };
    stream::unfold(Some(read(pieces)), move |reading| async move {
        let (pieces, piece) = reading?.await.ok()?;
        match piece {
            Ok((piece, more)) => Some((Ok(piece), more.then(|| read(pieces)))),
            Err(error) => Some((Err(error), None)),
        }
    })
}

#[cfg(test)]
mod tests;
