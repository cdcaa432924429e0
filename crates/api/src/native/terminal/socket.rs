//! `GET /terminal/sandbox/{id}/ws`: a shell with a terminal.
//!
//! Authentication is by `X-API-Key`, as everywhere. A web page cannot send that header with a
//! WebSocket. It offers two subprotocols instead, [`PROTOCOL`] and `shoal-key.<key>`, and the
//! server selects the first. The key is not in the URL, because URLs are logged.

use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::extract::ws::{Message, WebSocket, WebSocketUpgrade};
use axum::extract::{Path, State};
use axum::response::Response;
use bytes::Bytes;
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt, Stream, StreamExt};
use http::header::ORIGIN;
use http::{HeaderMap, StatusCode, Uri};
use shoal_core::BoxFuture;
use shoal_core::auth::Principal;
use shoal_core::ports::inside::{
    CommandControl, CommandOutput, InsideError, RunningCommand, SandboxCommand, TerminalSize,
};
use shoal_core::ports::sessions::{SessionError, WindowControl};
use tokio::time::{Instant, interval_at, timeout};

use super::super::sessions::window_name;
use super::messages::{ClientMessage, Decoder, ServerMessage, size};
use crate::auth::KeyLifetime;
use crate::backend::Backend;
use crate::error::ApiError;
use crate::host::host_of;

/// The subprotocol, if a client requests one.
const PROTOCOL: &str = "shoal-terminal";

/// The largest message, in bytes.
const MESSAGE_MAX: usize = 64 << 10;

/// How long a client may take to send the first message.
const INIT: Duration = Duration::from_secs(10);

/// The interval of pings, and the timeout of an unresponsive client.
const PING: Duration = Duration::from_secs(30);
const SILENT: Duration = Duration::from_secs(90);

/// An interactive login shell: bash if available.
const SHELL: &str = "if command -v bash >/dev/null 2>&1; then exec bash -il; fi; exec sh -il";

/// The variable that describes the terminal to programs.
const TERM: (&str, &str) = ("TERM", "xterm-256color");

/// The message to a client whose key is deleted.
const KEY_DELETED: &str = "the API key was deleted";

type Sender = SplitSink<WebSocket, Message>;
type Receiver = SplitStream<WebSocket>;

/// Opens a terminal.
pub(in crate::native) async fn open(
    State(backend): State<Backend>,
    Extension(principal): Extension<Principal>,
    Extension(lifetime): Extension<KeyLifetime>,
    Path(id): Path<String>,
    headers: HeaderMap,
    uri: Uri,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Result<Response, ApiError> {
    let (permit, _) = backend.sandboxes.find(&principal, &id).await?;
    let upgrade = accepted(&headers, &uri, upgrade)?;
    let inside = backend.access.open(&permit, None).await?;
    let start = async move |size| {
        let mut command = SandboxCommand::new("/bin/sh", ["-c", SHELL]);
        command.terminal = Some(size);
        command.env.insert(TERM.0.to_owned(), TERM.1.to_owned());
        inside.run(command).await.map_err(|error| error.to_string())
    };
    Ok(upgrade.on_upgrade(async move |socket| serve(socket, start, lifetime).await))
}

/// `GET /sessions/{id}/windows/{window}/ws`: attaches to a window of a session. Closing it detaches.
pub(in crate::native) async fn attach(
    State(backend): State<Backend>,
    Extension(principal): Extension<Principal>,
    Extension(lifetime): Extension<KeyLifetime>,
    Path((id, window)): Path<(String, String)>,
    headers: HeaderMap,
    uri: Uri,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Result<Response, ApiError> {
    backend.sessions.get(&principal, &id).await?;
    let window = window_name("the window", &window)?;
    let upgrade = accepted(&headers, &uri, upgrade)?;
    let attached = backend.sessions.attach(&principal, &id, &window, 0).await?;
    let start = async move |size| {
        let resized = attached.control.resize(size).await;
        resized.map_err(|error| error.to_string())?;
        let output = attached
            .output
            .map(|bytes| Ok(CommandOutput::Stdout(bytes)));
        Ok(RunningCommand {
            output: output.boxed(),
            control: Arc::new(Detaches(attached.control)),
        })
    };
    Ok(upgrade.on_upgrade(async move |socket| serve(socket, start, lifetime).await))
}

/// A WebSocket that this page may open.
fn accepted(
    headers: &HeaderMap,
    uri: &Uri,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Result<WebSocketUpgrade, ApiError> {
    check_origin(headers, uri)?;
    let upgrade =
        upgrade.map_err(|refused| ApiError::new(refused.status(), refused.body_text()))?;
    Ok(upgrade
        .protocols([PROTOCOL])
        .max_message_size(MESSAGE_MAX)
        .max_frame_size(MESSAGE_MAX))
}

/// Controls a window, which stays when its terminal goes.
struct Detaches(Arc<dyn WindowControl>);

impl CommandControl for Detaches {
    fn input(&self, bytes: Bytes) -> BoxFuture<'_, Result<(), InsideError>> {
        Box::pin(async { self.0.input(bytes).await.map_err(closed) })
    }

    fn close_input(&self) -> BoxFuture<'_, Result<(), InsideError>> {
        Box::pin(async {
            Err(InsideError::Invalid(
                "a window has no end of input".to_owned(),
            ))
        })
    }

    fn resize(&self, size: TerminalSize) -> BoxFuture<'_, Result<(), InsideError>> {
        Box::pin(async move { self.0.resize(size).await.map_err(closed) })
    }

    fn kill(&self) -> BoxFuture<'_, Result<(), InsideError>> {
        Box::pin(async { Ok(()) })
    }
}

fn closed(error: SessionError) -> InsideError {
    InsideError::NotFound(error.to_string())
}

/// A page of another origin must not open a terminal with the browser's credentials.
fn check_origin(headers: &HeaderMap, uri: &Uri) -> Result<(), ApiError> {
    let Some(origin) = headers.get(ORIGIN) else {
        return Ok(());
    };
    let origin = origin.to_str().ok();
    let origin = origin.and_then(|origin| origin.split_once("://"));
    match (origin, host_of(headers, uri)) {
        (Some((_, origin)), Some(host)) if origin.eq_ignore_ascii_case(host) => Ok(()),
        _ => Err(ApiError::new(
            StatusCode::FORBIDDEN,
            "a page of another site may not open a terminal",
        )),
    }
}

async fn serve<S>(socket: WebSocket, start: S, lifetime: KeyLifetime)
where
    S: AsyncFnOnce(TerminalSize) -> Result<RunningCommand, String>,
{
    let (mut sender, mut receiver) = socket.split();
    let served = match begin(&mut receiver, start, &lifetime).await {
        Ok(Some(process)) => talk(&mut sender, &mut receiver, process, &lifetime).await,
        Ok(None) => Ok(()),
        Err(error) => send(&mut sender, &ServerMessage::Error { error }).await,
    };
    // A client that has disconnected receives no more messages.
    if served.is_ok() && send(&mut sender, &ServerMessage::Closed).await.is_ok() {
        let _ = sender.close().await;
    }
}

/// Waits for the first message and starts the shell; `None` if the client disconnects.
async fn begin<S>(
    receiver: &mut Receiver,
    start: S,
    lifetime: &KeyLifetime,
) -> Result<Option<RunningCommand>, String>
where
    S: AsyncFnOnce(TerminalSize) -> Result<RunningCommand, String>,
{
    let first = tokio::select! {
        biased;
        () = lifetime.ended() => return Err(KEY_DELETED.to_owned()),
        first = timeout(INIT, first_message(receiver)) => first,
    };
    let first = first.map_err(|_| "nothing was said: begin with init".to_owned())?;
    let size = match first {
        Ok(Some(ClientMessage::Init { cols, rows })) => size(cols, rows),
        Ok(Some(ClientMessage::Close) | None) => return Ok(None),
        _ => return Err("the first message must be init".to_owned()),
    };
    start(size).await.map(Some)
}

/// The client's first message; `None` if it disconnects. Control frames may come first.
async fn first_message<R>(receiver: &mut R) -> Result<Option<ClientMessage>, String>
where
    R: Stream<Item = Result<Message, axum::Error>> + Unpin,
{
    while let Some(Ok(message)) = receiver.next().await {
        if let Some(parsed) = read(&message)? {
            return Ok(Some(parsed));
        }
    }
    Ok(None)
}

/// Forwards input and output until one side ends or the API key is deleted.
async fn talk(
    sender: &mut Sender,
    receiver: &mut Receiver,
    process: RunningCommand,
    lifetime: &KeyLifetime,
) -> Result<(), axum::Error> {
    let control = process.control.clone();
    let mut output = process.output;
    let (problems, mut problem) = tokio::sync::mpsc::channel(1);
    let hearing = hear(receiver, control.as_ref(), problems);
    let telling = async {
        let mut decoder = Decoder::default();
        let mut ping = interval_at(Instant::now() + PING, PING);
        send(sender, &ServerMessage::Ready).await?;
        loop {
            let message = tokio::select! {
                next = output.next() => match next {
                    Some(Ok(CommandOutput::Stdout(bytes) | CommandOutput::Stderr(bytes))) => {
                        let data = decoder.decode(&bytes);
                        ServerMessage::Output { data }
                    }
                    Some(Ok(CommandOutput::Exit(exit))) => ServerMessage::Exit { code: exit.code },
                    Some(Err(error)) => ServerMessage::Error { error: error.to_string() },
                    None => return Ok(()),
                },
                Some(error) = problem.recv() => ServerMessage::Error { error },
                _ = ping.tick() => {
                    sender.send(Message::Ping(Bytes::new())).await?;
                    continue;
                }
            };
            send(sender, &message).await?;
        }
    };
    let ended = tokio::select! {
        // First, so that input sent after the deletion is not processed.
        biased;
        () = lifetime.ended() => None,
        message = telling => Some(message),
        () = hearing => Some(Ok(())),
    };
    // The shell has no client any more; it may have exited by itself.
    let _ = control.kill().await;
    match ended {
        Some(ended) => ended,
        None => {
            let error = KEY_DELETED.to_owned();
            send(sender, &ServerMessage::Error { error }).await
        }
    }
}

/// Processes the client's messages in order until it disconnects. A shell that does not read blocks
/// only its own input.
async fn hear(
    receiver: &mut Receiver,
    control: &dyn CommandControl,
    problems: tokio::sync::mpsc::Sender<String>,
) {
    while let Ok(Some(Ok(message))) = timeout(SILENT, receiver.next()).await {
        let parsed = match read(&message) {
            Ok(Some(parsed)) => parsed,
            Ok(None) => continue,
            Err(error) => {
                let _ = problems.send(error).await;
                continue;
            }
        };
        let done = match parsed {
            ClientMessage::Close => return,
            ClientMessage::Init { .. } => Ok(()),
            ClientMessage::Resize { cols, rows } => {
                control.resize(size(Some(cols), Some(rows))).await
            }
            ClientMessage::Input { data } => control.input(data.into()).await,
        };
        if let Err(error) = done {
            let _ = problems.send(error.to_string()).await;
        }
    }
}

/// Parses a message; `None` for control frames.
fn read(message: &Message) -> Result<Option<ClientMessage>, String> {
    match message {
        Message::Text(text) => serde_json::from_str(text)
            .map(Some)
            .map_err(|error| format!("a message makes no sense: {error}")),
        Message::Binary(_) => Err("a message makes no sense: it is not text".to_owned()),
        Message::Close(_) => Ok(Some(ClientMessage::Close)),
        Message::Ping(_) | Message::Pong(_) => Ok(None),
    }
}

async fn send(sender: &mut Sender, message: &ServerMessage) -> Result<(), axum::Error> {
    // Strings and numbers always serialize.
    let text = serde_json::to_string(message).unwrap_or_default();
    sender.send(Message::Text(text.into())).await
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allowed(host: &'static str, origin: Option<&'static str>) -> bool {
        let mut headers = HeaderMap::new();
        headers.insert(http::header::HOST, http::HeaderValue::from_static(host));
        if let Some(origin) = origin {
            headers.insert(ORIGIN, http::HeaderValue::from_static(origin));
        }
        check_origin(&headers, &Uri::from_static("/")).is_ok()
    }

    async fn first(messages: Vec<Message>) -> Result<Option<ClientMessage>, String> {
        let messages = messages.into_iter().map(Ok::<_, axum::Error>);
        first_message(&mut futures_util::stream::iter(messages)).await
    }

    #[tokio::test]
    async fn what_programs_say_to_each_other_is_no_first_word() {
        let ping = || Message::Ping(Bytes::from_static(b"there?"));
        let pong = || Message::Pong(Bytes::new());
        let init = || Message::Text(r#"{"type":"init"}"#.into());
        let begun = Ok(Some(ClientMessage::Init {
            cols: None,
            rows: None,
        }));
        assert_eq!(first(vec![init()]).await, begun);
        assert_eq!(first(vec![ping(), pong(), ping(), init()]).await, begun);
        assert_eq!(first(vec![ping()]).await, Ok(None));
        let close = first(vec![ping(), Message::Close(None)]).await;
        assert_eq!(close, Ok(Some(ClientMessage::Close)));
        let binary = Message::Binary(Bytes::new());
        assert!(first(vec![ping(), binary, init()]).await.is_err());
    }

    #[test]
    fn only_pages_of_the_same_host_open_terminals() {
        assert!(allowed("shoal.example:3000", None));
        assert!(allowed(
            "shoal.example:3000",
            Some("https://Shoal.example:3000")
        ));
        for other in [
            "https://shoal.example",
            "https://shoal.example:3000.evil.example",
            "https://evil.example",
            "null",
            "",
            "shoal.example:3000",
        ] {
            assert!(!allowed("shoal.example:3000", Some(other)), "{other}");
        }
    }
}
