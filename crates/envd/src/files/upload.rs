//! `POST /files`.
//!
//! The body is passed piece by piece to a thread that decodes, parses and writes it. The channel is
//! short, so a slow disk throttles the sender.

use std::collections::{BTreeMap, HashSet};
use std::io::{self, Read};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, Bytes};
use flate2::read::MultiGzDecoder;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use http::{HeaderMap, Request, StatusCode};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use shoal_protocol::files::{WrittenFile, check_metadata};
use shoal_protocol::headers::METADATA_PREFIX;
use shoal_protocol::signature::Operation;
use tokio::sync::mpsc;

use super::encoding::{self, Encoding};
use super::multipart::{self, Multipart, MultipartError};
use super::target::Target;
use super::{Actor, Files, Parameters, RequestError};
use crate::path;
use crate::response::{self, HttpResponse};
use crate::server::Peer;

/// Channel capacity in pieces. A piece is at most about half a MiB, the server's read size.
const CHANNEL_CAPACITY: usize = 4;

/// Limit of files per upload.
const MAX_FILES: usize = 16_384;

/// How much of a body is read, and for how long, after an early response: clients that send
/// everything before they read would see a reset instead of the response.
const MAX_DRAINED: u64 = 1 << 30;
const DRAIN_TIMEOUT: Duration = Duration::from_secs(10);

/// An upload request, validated before its body is read.
struct UploadRequest {
    actor: Actor,
    path: Option<PathBuf>,
    metadata: BTreeMap<String, String>,
    encoding: Encoding,
    form: Form,
    announced: Option<u64>,
}

/// Format of the body.
enum Form {
    /// A single file.
    Raw,
    /// Multipart with this boundary.
    Multipart(String),
}

impl Files {
    pub(super) async fn upload(
        &self,
        query: &str,
        request: Request<Incoming>,
    ) -> Result<HttpResponse, RequestError> {
        let upload = self.upload_request(query, Peer::of(&request), request.headers());
        let body = request.into_body();
        let upload = match upload {
            Ok(upload) => upload,
            Err(error) => {
                drain(body);
                return Err(error);
            }
        };
        let entries = self.write(body, move |pieces| upload.write(pieces)).await?;
        Ok(response::json(StatusCode::OK, &entries))
    }

    /// Passes a body to a function that writes it, on the blocking pool. Drains the body if that fails.
    pub(super) async fn write<T: Send + 'static>(
        &self,
        mut body: Incoming,
        write: impl FnOnce(Pieces) -> Result<T, RequestError> + Send + 'static,
    ) -> Result<T, RequestError> {
        let writer = Arc::clone(&self.writers).acquire_owned().await;
        let (tx, pieces) = Pieces::channel();
        let work = tokio::task::spawn_blocking(move || {
            let _writer = writer;
            write(pieces)
        });
        let moved = forward(&mut body, tx).await;
        self.heap.record_transfer(moved);
        let written = work.await.map_err(|_| RequestError::shutting_down())?;
        if written.is_err() {
            drain(body);
        }
        written
    }

    fn upload_request(
        &self,
        query: &str,
        peer: Peer,
        headers: &HeaderMap,
    ) -> Result<UploadRequest, RequestError> {
        let parameters = Parameters::parse(query)?;
        self.authorise(peer, &parameters, headers, Operation::Write)?;
        let actor = self.actor(parameters.username.as_deref())?;
        let encoding = encoding::of_content(headers).map_err(|error| {
            RequestError::bad_request(format!("error decompressing request body: {error}"))
        })?;
        let metadata = metadata(headers)?;
        let form = form(headers, &parameters)?;
        let path = parameters
            .path
            .as_deref()
            .map(|path| path::resolve(path, &actor.user, actor.workdir.as_deref()));
        let announced = headers.get(CONTENT_LENGTH);
        Ok(UploadRequest {
            path: path.transpose()?,
            actor,
            metadata,
            encoding,
            form,
            announced: announced.and_then(|text| text.to_str().ok()?.parse().ok()),
        })
    }
}

/// Parses metadata headers. The first of two with one name wins.
fn metadata(headers: &HeaderMap) -> Result<BTreeMap<String, String>, RequestError> {
    let mut metadata = BTreeMap::new();
    for name in headers.keys() {
        let Some(key) = name.as_str().strip_prefix(METADATA_PREFIX) else {
            continue;
        };
        let value = headers.get(name).map(|value| value.as_bytes());
        // Invalid UTF-8 becomes non-ASCII characters, which are refused below.
        let value = String::from_utf8_lossy(value.unwrap_or_default());
        if !key.is_empty() {
            metadata.insert(key.to_owned(), value.into_owned());
        }
    }
    check_metadata(&metadata)
        .map_err(|error| RequestError::bad_request(format!("invalid metadata: {error}")))?;
    Ok(metadata)
}

fn form(headers: &HeaderMap, parameters: &Parameters) -> Result<Form, RequestError> {
    let header = headers.get(CONTENT_TYPE);
    let content_type = header
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default();
    let kind = content_type.split(';').next().unwrap_or_default().trim();
    let kind = kind.to_ascii_lowercase();
    if kind == "application/octet-stream" {
        return match parameters.path {
            Some(_) => Ok(Form::Raw),
            None => Err(RequestError::bad_request(
                "path query parameter is required for raw body upload",
            )),
        };
    }
    if kind.starts_with("multipart/") {
        return Ok(Form::Multipart(multipart::boundary(content_type)?));
    }
    Err(RequestError::bad_request(format!(
        "unsupported content type: {content_type}, expected multipart/form-data or \
         application/octet-stream"
    )))
}

impl From<MultipartError> for RequestError {
    fn from(error: MultipartError) -> Self {
        Self::bad_request(format!("error reading form: {error}"))
    }
}

impl UploadRequest {
    /// Decodes and writes the body. Blocking.
    fn write(self, pieces: Pieces) -> Result<Vec<WrittenFile>, RequestError> {
        let mut body: Box<dyn Read> = match self.encoding {
            Encoding::Identity => Box::new(pieces),
            Encoding::Gzip => Box::new(MultiGzDecoder::new(pieces)),
        };
        match &self.form {
            Form::Raw => {
                let path = self.path.clone().unwrap_or_default();
                Ok(vec![self.target(path).write(&mut body)?])
            }
            Form::Multipart(boundary) => self.write_parts(Multipart::new(body, boundary)),
        }
    }

    fn write_parts(
        &self,
        mut parts: Multipart<impl Read>,
    ) -> Result<Vec<WrittenFile>, RequestError> {
        let mut entries = Vec::new();
        let mut seen = HashSet::new();
        while let Some(named) = parts.next_part()? {
            if named.name.as_deref() != Some("file") {
                continue;
            }
            let path = match (&self.path, named.filename) {
                (Some(path), _) => path.clone(),
                (None, Some(name)) => {
                    path::resolve(&name, &self.actor.user, self.actor.workdir.as_deref())?
                }
                (None, None) => {
                    return Err(RequestError::bad_request(
                        "filename not found in Content-Disposition header",
                    ));
                }
            };
            if !seen.insert(path.clone()) {
                return Err(RequestError::bad_request(format!(
                    "you cannot upload multiple files to the same path '{}' in one upload request",
                    path.display()
                )));
            }
            if entries.len() >= MAX_FILES {
                return Err(RequestError::bad_request(format!(
                    "more than {MAX_FILES} files"
                )));
            }
            entries.push(self.target(path).write(&mut parts)?);
        }
        Ok(entries)
    }

    fn target(&self, path: PathBuf) -> Target<'_> {
        Target {
            path,
            user: &self.actor.user,
            metadata: &self.metadata,
            announced: self.announced,
        }
    }
}

/// A piece of the body; `None` at its end. A channel closed without `None` means that the sender
/// disconnected.
pub(crate) type Piece = Option<Bytes>;

/// Forwards the body while the writer accepts it. Returns the number of bytes.
pub(crate) async fn forward(body: &mut Incoming, tx: mpsc::Sender<Piece>) -> u64 {
    let mut moved = 0;
    loop {
        match body.frame().await {
            Some(Ok(frame)) => {
                let Ok(piece) = frame.into_data() else {
                    continue;
                };
                moved += piece.len() as u64;
                if tx.send(Some(piece)).await.is_err() {
                    // The writer stopped reading.
                    return moved;
                }
            }
            Some(Err(_)) => return moved,
            None => {
                let _ = tx.send(None).await;
                return moved;
            }
        }
    }
}

/// Discards the rest of a body within limits, detached. Clients that read while sending get the
/// response at once; others finish sending and then read it.
pub(crate) fn drain(mut body: Incoming) {
    let read = async move {
        let mut left = MAX_DRAINED;
        while let Some(Ok(frame)) = body.frame().await {
            let count = frame.data_ref().map_or(0, |data| data.len() as u64);
            left = left.saturating_sub(count);
            if left == 0 {
                return;
            }
        }
    };
    tokio::spawn(tokio::time::timeout(DRAIN_TIMEOUT, read));
}

/// Blocking reader of a forwarded body.
pub(crate) struct Pieces {
    rx: mpsc::Receiver<Piece>,
    present: Bytes,
    over: bool,
}

impl Pieces {
    /// A body, and where its pieces go.
    pub(crate) fn channel() -> (mpsc::Sender<Piece>, Self) {
        let (tx, rx) = mpsc::channel(CHANNEL_CAPACITY);
        (tx, Self::new(rx))
    }

    fn new(rx: mpsc::Receiver<Piece>) -> Self {
        Self {
            rx,
            present: Bytes::new(),
            over: false,
        }
    }
}

impl Read for Pieces {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.present.is_empty() && !self.over {
            match self.rx.blocking_recv() {
                Some(Some(piece)) => self.present = piece,
                Some(None) => self.over = true,
                None => return Err(io::ErrorKind::UnexpectedEof.into()),
            }
        }
        let count = self.present.len().min(buffer.len());
        self.present
            .copy_to_slice(buffer.get_mut(..count).unwrap_or_default());
        Ok(count)
    }
}
