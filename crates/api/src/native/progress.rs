//! Responses of long operations: lines of JSON with progress.

use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::stream;
use http::header::CONTENT_TYPE;
use parking_lot::Mutex;
use shoal_core::image::{Image, ImageError, Progress, ProgressSink};
use shoal_protocol::native::{ImageEvent, NDJSON};
use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use tracing::Instrument;

use super::images::view;
use crate::error::ApiError;

/// How many reports wait for a slow reader; later ones replace those that are dropped.
const WAITING: usize = 64;

/// The minimum interval between reports of one step.
const EVERY: Duration = Duration::from_millis(100);

/// Sends reports to the response.
struct Lines {
    sender: mpsc::Sender<ImageEvent>,
    told: Mutex<HashMap<String, Instant>>,
}

impl ProgressSink for Lines {
    fn report(&self, progress: Progress) {
        let Progress { step, done, total } = progress;
        let ended = total.is_some_and(|total| done >= total);
        let now = Instant::now();
        let mut told = self.told.lock();
        let last = told.get(&step);
        if !ended && last.is_some_and(|last| now.duration_since(*last) < EVERY) {
            return;
        }
        told.insert(step.clone(), now);
        // Without room the report is dropped: it only shows progress.
        let _ = self
            .sender
            .try_send(ImageEvent::Progress { step, done, total });
    }
}

/// Cancels the operation when its response is dropped.
struct Work(AbortHandle);

impl Drop for Work {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Runs the operation, and responds with its progress and its result.
pub(super) fn stream<W, F>(work: W) -> Response
where
    W: FnOnce(Arc<dyn ProgressSink>) -> F,
    F: Future<Output = Result<Image, ImageError>> + Send + 'static,
{
    let (sender, receiver) = mpsc::channel(WAITING);
    let sink = Lines {
        sender: sender.clone(),
        told: Mutex::default(),
    };
    let working = work(Arc::new(sink));
    let task = async move {
        let last = match working.await {
            Ok(image) => ImageEvent::Done {
                image: view(&image),
            },
            Err(error) => {
                let error = ApiError::from(error);
                ImageEvent::Error {
                    code: error.status().as_u16().to_string(),
                    message: error.message().to_owned(),
                }
            }
        };
        // Sending fails when the client has disconnected.
        let _ = sender.send(last).await;
    };
    let task = tokio::spawn(task.in_current_span());
    let state = (receiver, Work(task.abort_handle()));
    let lines = stream::unfold(state, |(mut receiver, work)| async move {
        let event = receiver.recv().await?;
        Some((line(&event), (receiver, work)))
    });
    ([(CONTENT_TYPE, NDJSON)], Body::from_stream(lines)).into_response()
}

fn line(event: &ImageEvent) -> Result<Bytes, serde_json::Error> {
    let mut line = serde_json::to_vec(event)?;
    line.push(b'\n');
    Ok(line.into())
}
