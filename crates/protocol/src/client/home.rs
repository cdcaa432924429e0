//! The port `HomeFiles` over the daemon's protocol.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::stream::{self, StreamExt};
use http::Method;
use http_body::Frame;
use http_body_util::StreamBody;
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use shoal_core::BoxFuture;
use shoal_core::ports::inside::home::{
    Applied, Found, HomeChange, HomeEvent, HomeEvents, HomeFiles,
};
use shoal_core::ports::inside::{FileContents, InsideError};
use shoal_session_files::path::SessionPath;
use tokio::time::timeout;

use super::files::encode;
use super::sandbox::{begun, contents};
use super::{BodyError, ClientError, Download, EnvdClient, REQUEST_TIMEOUT, RequestBody, success};
use crate::sync::frame::{self, Head, Write};
use crate::sync::{
    AppliedLine, BATCH_MAX, FlushAnswer, FoundLine, KEEPALIVE, LINE_MAX, LookRequest, WatchFailure,
    WatchLine,
};

/// How long the daemon may take for one batch of changes or looks.
const BATCH: Duration = Duration::from_secs(600);

/// The size of a piece of a body, in bytes. Each piece wakes its reader, so small files go together.
const PIECE: usize = 64 << 10;

/// How long a watch may be silent before its daemon counts as gone.
const SILENCE: Duration = KEEPALIVE.saturating_mul(3);

/// The numbers of changes that were made. Older events at their paths are dropped.
type Fences = Arc<Mutex<BTreeMap<SessionPath, u64>>>;

/// A home directory in one sandbox.
pub(super) struct Home {
    envd: EnvdClient,
    directory: String,
    fences: Fences,
}

impl Home {
    pub(super) fn new(envd: EnvdClient, directory: &str) -> Self {
        Self {
            envd,
            directory: directory.to_owned(),
            fences: Fences::default(),
        }
    }

    fn route(&self, name: &str) -> String {
        format!("/sync/{name}?home={}", encode(&self.directory))
    }

    /// Sends a batch, and reads a line for each of its parts.
    async fn batch<T: DeserializeOwned>(
        &self,
        name: &str,
        body: RequestBody,
        count: usize,
    ) -> Result<Vec<T>, ClientError> {
        let request = self
            .envd
            .request_with(Method::POST, &self.route(name), body)?;
        let (_, answer) = self.envd.call(request, BATCH).await?;
        let lines = answer.split(|byte| *byte == b'\n');
        let lines = lines.filter(|line| !line.is_empty());
        let parsed: Result<Vec<T>, _> = lines.map(serde_json::from_slice).collect();
        let parsed = parsed.map_err(ClientError::malformed)?;
        if parsed.len() != count {
            return Err(ClientError::malformed("another number of answers"));
        }
        Ok(parsed)
    }

    async fn apply_batch(&self, changes: &[HomeChange]) -> Result<Vec<Applied>, InsideError> {
        let mut body = Pieces::default();
        for change in changes {
            let write = change.file.as_ref().map(|file| Write {
                size: file.contents.len() as u64,
                executable: file.executable,
            });
            let head = Head {
                path: change.path.clone(),
                expected: change.expected,
                write,
            };
            let head =
                frame::encode(&head).map_err(|error| InsideError::TooMuch(error.to_string()))?;
            body.push(&Bytes::from(head));
            if let Some(file) = &change.file {
                body.push(&file.contents);
            }
        }
        let frames = stream::iter(body.end()).map(|piece| Ok::<_, BodyError>(Frame::data(piece)));
        let body = RequestBody::new(StreamBody::new(frames));
        let lines: Vec<AppliedLine> = self.batch("apply", body, changes.len()).await?;
        let mut fences = self.fences.lock();
        let outcomes = changes.iter().zip(lines).map(|(change, line)| match line {
            AppliedLine::Done { at } => {
                fences.insert(change.path.clone(), at);
                Applied::Done
            }
            AppliedLine::Differs { state } => Applied::Differs(state),
            AppliedLine::Failed { message } => Applied::Failed(message),
        });
        Ok(outcomes.collect())
    }
}

impl HomeFiles for Home {
    fn watch(&self, file_max: u64) -> BoxFuture<'_, Result<HomeEvents, InsideError>> {
        Box::pin(async move {
            let path = format!("{}&file_max={file_max}", self.route("watch"));
            let request = self.envd.request(Method::GET, &path, Bytes::new())?;
            let opened = async {
                let response = self.envd.transport.send_request(request).await?;
                success(response).await
            };
            let response = begun(opened).await?;
            let lines = Lines {
                body: response.into(),
                partial: Vec::new(),
                events: VecDeque::new(),
                fences: self.fences.clone(),
                failed: false,
            };
            let events = stream::unfold(lines, async |mut lines: Lines| {
                let event = lines.next().await?;
                Some((event, lines))
            });
            Ok(events.boxed())
        })
    }

    fn apply(&self, changes: Vec<HomeChange>) -> BoxFuture<'_, Result<Vec<Applied>, InsideError>> {
        Box::pin(async move {
            let mut outcomes = Vec::with_capacity(changes.len());
            for batch in changes.chunks(BATCH_MAX) {
                outcomes.extend(self.apply_batch(batch).await?);
            }
            Ok(outcomes)
        })
    }

    fn look(&self, paths: Vec<SessionPath>) -> BoxFuture<'_, Result<Vec<Found>, InsideError>> {
        Box::pin(async move {
            let mut all = Vec::with_capacity(paths.len());
            for batch in paths.chunks(BATCH_MAX) {
                let request = LookRequest {
                    paths: batch.to_vec(),
                };
                let body = serde_json::to_vec(&request).map_err(ClientError::malformed)?;
                let whole = stream::iter([Ok::<_, BodyError>(Frame::data(Bytes::from(body)))]);
                let body = RequestBody::new(StreamBody::new(whole));
                let lines = self.batch("look", body, batch.len()).await?;
                all.extend(lines.into_iter().map(|line| match line {
                    FoundLine::Nothing => Found::Nothing,
                    FoundLine::File { state } => Found::File(state),
                    FoundLine::Other { message } => Found::Other(message),
                }));
            }
            Ok(all)
        })
    }

    fn read(&self, path: SessionPath) -> BoxFuture<'_, Result<FileContents, InsideError>> {
        Box::pin(async move {
            let route = format!("{}&path={}", self.route("file"), encode(path.as_str()));
            let request = self.envd.request(Method::GET, &route, Bytes::new())?;
            let opened = async {
                let response = self.envd.transport.send_request(request).await?;
                success(response).await
            };
            Ok(contents(begun(opened).await?.into()))
        })
    }

    fn flush(&self) -> BoxFuture<'_, Result<u64, InsideError>> {
        Box::pin(async move {
            let request = self
                .envd
                .request(Method::POST, "/sync/flush", Bytes::new())?;
            let (_, body) = self.envd.call(request, REQUEST_TIMEOUT).await?;
            let answer: FlushAnswer =
                serde_json::from_slice(&body).map_err(ClientError::malformed)?;
            Ok(answer.flush)
        })
    }
}

/// The pieces of a body: small parts together, large ones as they are.
#[derive(Default)]
struct Pieces {
    done: Vec<Bytes>,
    small: BytesMut,
}

impl Pieces {
    fn push(&mut self, part: &Bytes) {
        if self.small.len() + part.len() > PIECE {
            self.cut();
        }
        if part.len() > PIECE {
            self.done.push(part.clone());
        } else {
            self.small.extend_from_slice(part);
        }
    }

    fn cut(&mut self) {
        if !self.small.is_empty() {
            self.done.push(self.small.split().freeze());
        }
    }

    fn end(mut self) -> Vec<Bytes> {
        self.cut();
        self.done
    }
}

/// The lines of a watch.
struct Lines {
    body: Download,
    /// The beginning of a line.
    partial: Vec<u8>,
    /// The events of complete lines.
    events: VecDeque<Result<HomeEvent, InsideError>>,
    fences: Fences,
    /// Whether an error was returned, which ends it.
    failed: bool,
}

impl Lines {
    async fn next(&mut self) -> Option<Result<HomeEvent, InsideError>> {
        if self.failed {
            return None;
        }
        loop {
            if let Some(event) = self.events.pop_front() {
                self.failed = event.is_err();
                return Some(event);
            }
            let ended = match timeout(SILENCE, self.body.chunk()).await {
                Ok(Ok(Some(piece))) => {
                    self.take(&piece);
                    continue;
                }
                Ok(Ok(None)) => "the watch ended without a word".to_owned(),
                Ok(Err(error)) => InsideError::from(error).to_string(),
                Err(_) => "the watch is silent".to_owned(),
            };
            self.failed = true;
            return Some(Err(InsideError::Unreachable(ended)));
        }
    }

    /// Takes a piece of the body.
    fn take(&mut self, piece: &[u8]) {
        let mut lines = piece.split(|byte| *byte == b'\n');
        self.partial
            .extend_from_slice(lines.next().unwrap_or_default());
        for begun in lines {
            let line = std::mem::replace(&mut self.partial, begun.to_vec());
            self.take_line(&line);
        }
        if self.partial.len() > LINE_MAX {
            self.malformed("a line without an end");
        }
    }

    fn malformed(&mut self, what: &str) {
        let message = format!("an invalid answer of the watch: {what}");
        self.events.push_back(Err(InsideError::Refused(message)));
    }

    fn take_line(&mut self, line: &[u8]) {
        if line.is_empty() {
            return;
        }
        let line = match serde_json::from_slice(line) {
            Ok(line) => line,
            Err(error) => return self.malformed(&error.to_string()),
        };
        let event = match line {
            WatchLine::Present { path, state, at } => {
                if self.is_old(&path, at) {
                    return;
                }
                HomeEvent::Present { path, state }
            }
            WatchLine::Absent { path, at } => {
                if self.is_old(&path, at) {
                    return;
                }
                HomeEvent::Absent { path }
            }
            WatchLine::Withheld { path, at } => {
                if self.is_old(&path, at) {
                    return;
                }
                HomeEvent::Withheld { path }
            }
            WatchLine::Limited { path, reason } => HomeEvent::Limited { path, reason },
            WatchLine::Settled { flush, at } => {
                self.fences.lock().retain(|_, changed| *changed > at);
                HomeEvent::Settled(flush)
            }
            WatchLine::Failed { reason, message } => {
                self.events.push_back(Err(match reason {
                    WatchFailure::TooMany => InsideError::TooMuch(message),
                    WatchFailure::Gone => InsideError::NotFound(message),
                    WatchFailure::Replaced | WatchFailure::Other => InsideError::Refused(message),
                }));
                return;
            }
            WatchLine::Unknown => return,
        };
        self.events.push_back(Ok(event));
    }

    /// Whether an event is older than a change that the caller knows to be made.
    fn is_old(&self, path: &SessionPath, at: u64) -> bool {
        let fences = self.fences.lock();
        fences.get(path).is_some_and(|changed| at < *changed)
    }
}
