//! The session at the server.

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{Method, Response, StatusCode};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::MESSAGE_MAX;
use super::events::Events;
use crate::connection::Connection;
use crate::failure::Failure;

/// The endpoint.
const PATH: &str = "/mcp";

const ACCEPT: &str = "accept";
const SESSION: &str = "mcp-session-id";
const VERSION: &str = "mcp-protocol-version";
const METHOD: &str = "mcp-method";
const TEMPLATE: &str = "shoal-template";

/// The `Accept` header that the protocol demands of a client.
const ACCEPTED: &str = "application/json, text/event-stream";

/// Where a request names its own version of the protocol.
const OWN_VERSION: &str = "/params/_meta/io.modelcontextprotocol~1protocolVersion";

/// The code of errors that are not of the protocol.
const SERVER_ERROR: i64 = -32000;

/// Why a request gets an error after the session has ended.
const ENDED: &str = "the session had ended, and its sandbox with it: a new one has begun, so files and processes are gone. \
                     Try again";

/// The session at the server.
pub(super) struct Session {
    server: Connection,
    template: Option<String>,
    /// Messages to the client.
    lines: mpsc::Sender<Bytes>,
    id: Option<String>,
    version: Option<String>,
    /// The request that began it, to begin another when it has ended.
    beginning: Option<Value>,
    /// Answers that are under way.
    answers: JoinSet<()>,
    /// The stream of the server's own messages.
    listening: JoinSet<()>,
}

impl Session {
    pub(super) fn new(
        server: Connection,
        template: Option<String>,
        lines: mpsc::Sender<Bytes>,
    ) -> Self {
        Self {
            server,
            template,
            lines,
            id: None,
            version: None,
            beginning: None,
            answers: JoinSet::new(),
            listening: JoinSet::new(),
        }
    }

    /// Forwards a message of the client. The order of messages stays; only answers are waited for beside each other.
    ///
    /// # Errors
    /// When no session can begin.
    pub(super) async fn forward(&mut self, message: Value) -> Result<(), Failure> {
        // Ends are collected here, so that they do not pile up.
        while self.answers.try_join_next().is_some() {}
        match message["method"].as_str() {
            Some("initialize") => self.begin(message).await,
            Some("notifications/initialized") => {
                self.deliver(&message).await;
                self.listen();
                Ok(())
            }
            _ => {
                self.deliver(&message).await;
                Ok(())
            }
        }
    }

    /// Waits for all answers.
    pub(super) async fn answered(&mut self) {
        while self.answers.join_next().await.is_some() {}
    }

    /// Ends the session at the server.
    pub(super) async fn end(&mut self) {
        self.answers.shutdown().await;
        self.listening.shutdown().await;
        if self.id.is_some() {
            // It may have ended already.
            let _ = self.exchange(Method::DELETE, None).await;
        }
    }

    async fn begin(&mut self, message: Value) -> Result<(), Failure> {
        (self.id, self.version) = (None, None);
        let id = message["id"].clone();
        let begun = match self.initialize(&message).await {
            Ok(answer) => answer,
            Err(failure) => {
                self.tell_error(&id, SERVER_ERROR, &failure.to_string())
                    .await;
                return Err(failure);
            }
        };
        self.beginning = Some(message);
        self.tell(begun).await;
        Ok(())
    }

    /// Begins a session, and returns the server's answer.
    async fn initialize(&mut self, message: &Value) -> Result<Bytes, Failure> {
        let response = self.exchange(Method::POST, Some(message)).await?;
        if !response.status().is_success() {
            return Err(self.server.refused(response).await);
        }
        let id = response.headers().get(SESSION);
        self.id = id.and_then(|id| id.to_str().ok()).map(str::to_owned);
        let mut answer = None;
        let mut messages = Messages::of(response);
        while let Some(message) = messages.next().await.map_err(|e| self.server.broken(&e))? {
            answer = Some(message);
        }
        let answer = answer.ok_or_else(|| Failure::other("the server did not answer"))?;
        let said: Value = serde_json::from_slice(&answer).unwrap_or_default();
        let version = &said["result"]["protocolVersion"];
        self.version = version.as_str().map(str::to_owned);
        Ok(answer)
    }

    /// Sends a message, and has its answer written.
    async fn deliver(&mut self, message: &Value) {
        let id = message["id"].clone();
        // An answer of the client has an id too, and gets none itself.
        let asks = message["method"].is_string() && !id.is_null();
        let response = match self.exchange(Method::POST, Some(message)).await {
            Ok(response) => response,
            Err(failure) if asks => {
                self.tell_error(&id, SERVER_ERROR, &failure.to_string())
                    .await;
                return;
            }
            Err(_) => return,
        };
        if response.status() == StatusCode::NOT_FOUND && self.id.is_some() {
            self.begin_again(asks, &id).await;
            return;
        }
        if !asks {
            return;
        }
        let (server, lines) = (self.server.clone(), self.lines.clone());
        if !response.status().is_success() && !is_json(&response) {
            let failure = server.refused(response).await;
            self.tell_error(&id, SERVER_ERROR, &failure.to_string())
                .await;
            return;
        }
        self.answers.spawn(async move {
            if !pass(response, &lines, Some(&id)).await {
                let message = "the connection to the server broke before it answered";
                // The reader may be gone.
                let _ = lines.send(error(&id, SERVER_ERROR, message)).await;
            }
        });
    }

    /// Begins another session after the server has ended this one.
    async fn begin_again(&mut self, asks: bool, id: &Value) {
        (self.id, self.version) = (None, None);
        self.listening.shutdown().await;
        let mut message = ENDED.to_owned();
        if let Some(beginning) = self.beginning.clone() {
            if let Err(failure) = self.initialize(&beginning).await {
                message = failure.to_string();
            } else {
                let initialized = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
                let _ = self.exchange(Method::POST, Some(&initialized)).await;
                self.listen();
            }
        }
        if asks {
            self.tell_error(id, SERVER_ERROR, &message).await;
        }
    }

    /// Has the server's own messages written.
    fn listen(&mut self) {
        let (server, headers) = (self.server.clone(), self.headers(None));
        let lines = self.lines.clone();
        self.listening.spawn(async move {
            let nothing = (Bytes::new(), "application/json");
            let answer = server.exchange(Method::GET, PATH, nothing, &headers).await;
            if let Ok(response) = answer
                && response.status().is_success()
            {
                pass(response, &lines, None).await;
            }
        });
    }

    async fn exchange(
        &self,
        method: Method,
        message: Option<&Value>,
    ) -> Result<Response<Incoming>, Failure> {
        let bytes = message.map(|message| Bytes::from(message.to_string()));
        let body = (bytes.unwrap_or_default(), "application/json");
        let headers = self.headers(message);
        self.server.exchange(method, PATH, body, &headers).await
    }

    fn headers(&self, message: Option<&Value>) -> Vec<(&'static str, String)> {
        let own = message.and_then(|message| message.pointer(OWN_VERSION)?.as_str());
        let version = own.map(str::to_owned).or_else(|| self.version.clone());
        let method = own
            .and(message)
            .and_then(|message| message["method"].as_str());
        let optional = [
            (SESSION, self.id.clone()),
            (VERSION, version),
            (METHOD, method.map(str::to_owned)),
            (
                TEMPLATE,
                self.template.clone().filter(|_| self.id.is_none()),
            ),
        ];
        let mut headers = vec![(ACCEPT, ACCEPTED.to_owned())];
        headers.extend(
            optional
                .into_iter()
                .filter_map(|(name, value)| Some((name, value?))),
        );
        headers
    }

    async fn tell(&self, message: Bytes) {
        // The reader may be gone.
        let _ = self.lines.send(message).await;
    }

    /// Tells the client that a request failed.
    pub(super) async fn tell_error(&self, id: &Value, code: i64, message: &str) {
        self.tell(error(id, code, message)).await;
    }
}

fn error(id: &Value, code: i64, message: &str) -> Bytes {
    let about = json!({"code": code, "message": message});
    json!({"jsonrpc": "2.0", "id": id, "error": about})
        .to_string()
        .into()
}

fn is_json(response: &Response<Incoming>) -> bool {
    let kind = response.headers().get(CONTENT_TYPE);
    kind.is_some_and(|kind| kind.as_bytes().starts_with(b"application/json"))
}

/// Passes all messages of an answer on; returns whether the answer to `id` was among them.
async fn pass(
    response: Response<Incoming>,
    lines: &mpsc::Sender<Bytes>,
    id: Option<&Value>,
) -> bool {
    let mut answered = false;
    let mut messages = Messages::of(response);
    while let Ok(Some(message)) = messages.next().await {
        if let (Some(id), Ok(said)) = (id, serde_json::from_slice::<Value>(&message)) {
            answered |= said["id"] == *id && said["method"].is_null();
        }
        if lines.send(message).await.is_err() {
            return true;
        }
    }
    answered
}

/// The messages of an answer: one as JSON, or many as events.
struct Messages {
    body: Incoming,
    events: Option<Events>,
    ready: std::collections::VecDeque<Bytes>,
}

/// The answer cannot be read.
#[derive(Debug)]
struct Broken(String);

impl std::fmt::Display for Broken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Broken {}

impl Messages {
    fn of(response: Response<Incoming>) -> Self {
        let events = (!is_json(&response)).then(Events::default);
        Self {
            body: response.into_body(),
            events,
            ready: std::collections::VecDeque::new(),
        }
    }

    async fn next(&mut self) -> Result<Option<Bytes>, Broken> {
        loop {
            if let Some(message) = self.ready.pop_front() {
                return Ok(Some(message));
            }
            let Some(events) = &mut self.events else {
                let body = Limited::new(&mut self.body, MESSAGE_MAX);
                let whole = body
                    .collect()
                    .await
                    .map_err(|error| Broken(error.to_string()))?;
                let whole = whole.to_bytes();
                return Ok((!whole.is_empty()).then_some(whole));
            };
            let Some(frame) = self.body.frame().await else {
                return Ok(None);
            };
            let frame = frame.map_err(|error| Broken(error.to_string()))?;
            if let Some(bytes) = frame.data_ref() {
                self.ready.extend(events.take(bytes));
            }
        }
    }
}
