//! Commands in windows.

use axum::Extension;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http::header::CONTENT_TYPE;
use shoal_core::auth::Principal;
use shoal_core::ports::sessions::{ExecEnd, ExecEvent, ExecStream};
use shoal_core::session::WindowName;
use shoal_protocol::native::{NDJSON, SessionCommand, SessionOutput};

use super::super::answer::Answer;
use super::super::terminal::Decoder;
use crate::backend::Backend;
use crate::body::JsonBody;
use crate::error::ApiError;

/// `POST /sessions/{id}/exec`: a line of JSON for each piece of output, and a last one for the end.
pub(in crate::native) async fn run(
    State(backend): State<Backend>,
    Extension(principal): Extension<Principal>,
    Path(id): Path<String>,
    body: JsonBody<SessionCommand>,
) -> Result<Response, ApiError> {
    let SessionCommand { command, window } = body.value;
    let window = match &window {
        Some(name) => window_name("`window`", name)?,
        None => WindowName::default(),
    };
    let events = backend.sessions.exec(&principal, &id, &window, &command);
    let lines = Body::from_stream(lines(events.await?));
    Ok(([(CONTENT_TYPE, NDJSON)], lines).into_response())
}

/// `POST /sessions/{id}/windows/{window}/cancel`.
pub(in crate::native) async fn cancel(
    State(backend): State<Backend>,
    Extension(principal): Extension<Principal>,
    Path((id, window)): Path<(String, String)>,
) -> Result<Answer<()>, ApiError> {
    let window = window_name("the window", &window)?;
    backend.sessions.cancel(&principal, &id, &window).await?;
    Ok(Answer::ok(()))
}

/// The name of a window.
pub(in crate::native) fn window_name(what: &str, text: &str) -> Result<WindowName, ApiError> {
    text.parse()
        .map_err(|error| ApiError::invalid(format_args!("{what}: {error}")))
}

/// The events as lines of JSON. A character that is split between two pieces is kept for the second.
fn lines(
    events: ExecStream,
) -> impl futures_util::Stream<Item = Result<Bytes, serde_json::Error>> + Send {
    stream::unfold(
        (events, Decoder::default()),
        |(mut events, mut decoder)| async move {
            let event = match events.next().await? {
                ExecEvent::Notice(message) => SessionOutput::Notice { message },
                ExecEvent::Output(bytes) => SessionOutput::Output {
                    data: decoder.decode(&bytes),
                },
                ExecEvent::Ended(ExecEnd::Exited(code)) => SessionOutput::Exit { code },
                ExecEvent::Ended(ExecEnd::Cancelled) => SessionOutput::Cancelled,
                ExecEvent::Ended(ExecEnd::Lost(reason)) => SessionOutput::Lost { reason },
            };
            Some((line(&event), (events, decoder)))
        },
    )
}

fn line(event: &SessionOutput) -> Result<Bytes, serde_json::Error> {
    let mut line = serde_json::to_vec(event)?;
    line.push(b'\n');
    Ok(line.into())
}
