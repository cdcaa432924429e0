//! Requests of the streamable HTTP transport, and the life of sessions.

use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{HeaderValue, RETRY_AFTER};
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body::Body;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full};
use rmcp::transport::streamable_http_server::session::SessionManager;
use rmcp::transport::streamable_http_server::session::local::{LocalSessionManager, SessionConfig};
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use shoal_core::ports::Ports;
use shoal_core::template::TemplateKey;

use crate::caller::Caller;
use crate::config::McpConfig;
use crate::server::{Server, Shared};
use crate::session::Session;
use crate::sessions::{Sessions, TooMany};

/// The header with the id of a session.
const SESSION: &str = "mcp-session-id";

/// The header in which a client chooses the template of its session's sandbox, when it opens the session.
const TEMPLATE: &str = "shoal-template";

/// The largest message of a client, in bytes: the largest body of the other APIs.
const MESSAGE_MAX: usize = 16 << 20;

/// When to try again after too many sessions, in seconds.
const RETRY: u16 = 30;

/// Web pages of this machine. They need a key like any other client.
const LOCAL_ORIGINS: [&str; 6] = [
    "http://localhost:*",
    "http://127.0.0.1:*",
    "http://[::1]:*",
    "https://localhost:*",
    "https://127.0.0.1:*",
    "https://[::1]:*",
];

/// The body of an answer, which may be a stream of events.
pub type Answer = Response<BoxBody<Bytes, Infallible>>;

/// The MCP server. Cheap to clone.
#[derive(Clone)]
pub struct Mcp(Arc<Inner>);

struct Inner {
    shared: Arc<Shared>,
    sessions: Arc<Sessions>,
    manager: Arc<LocalSessionManager>,
    service: StreamableHttpService<Server, LocalSessionManager>,
}

impl Mcp {
    /// Serves from these ports.
    #[must_use]
    pub fn new(ports: Ports, config: McpConfig) -> Self {
        let mut session = SessionConfig::default();
        // Sessions end here, where calls under way are known.
        session.keep_alive = None;
        let mut manager = LocalSessionManager::default();
        manager.session_config = session;
        let manager = Arc::new(manager);
        let origins = LOCAL_ORIGINS.iter().map(|origin| (*origin).to_owned());
        let mut transport = StreamableHttpServerConfig::default()
            // Every request has a key, which no browser sends by itself: any name may lead here.
            .disable_allowed_hosts()
            .with_allowed_origins(origins.chain(config.origins.iter().cloned()))
            .enforce_origin_validation();
        transport.max_request_body_bytes = MESSAGE_MAX;
        // Not by the server's stop: the sessions end in order first.
        let sessions = Arc::new(Sessions::new(config.sessions_per_team));
        let shared = Arc::new(Shared { ports, config });
        let served = shared.clone();
        let factory = move || Ok(Server::new(served.clone()));
        let service = StreamableHttpService::new(factory, manager.clone(), transport);
        Self(Arc::new(Inner {
            shared,
            sessions,
            manager,
            service,
        }))
    }

    /// Answers a request of an authenticated caller.
    pub async fn answer<B>(&self, caller: Caller, mut request: Request<B>) -> Answer
    where
        B: Body + Send + 'static,
        B::Error: std::fmt::Display,
    {
        let headers = request.headers();
        let Some(id) = headers.get(SESSION) else {
            return self.answer_without_session(caller, request).await;
        };
        let id = id.to_str().unwrap_or_default().to_owned();
        // A session of another team looks like one that does not exist.
        let Some(session) = self.0.sessions.find(&caller.principal, &id) else {
            return text(
                StatusCode::NOT_FOUND,
                "Not Found: Session not found".to_owned(),
            );
        };
        session.touch();
        let ends = request.method() == Method::DELETE;
        request.extensions_mut().insert(caller);
        let answer = self.0.service.handle(request).await;
        if ends && answer.status().is_success() {
            session.ended().cancel();
        }
        answer
    }

    /// Answers a request that may open a session.
    async fn answer_without_session<B>(&self, caller: Caller, mut request: Request<B>) -> Answer
    where
        B: Body + Send + 'static,
        B::Error: std::fmt::Display,
    {
        let config = &self.0.shared.config;
        if config.stopping.is_cancelled() {
            return text(
                StatusCode::SERVICE_UNAVAILABLE,
                "the server is stopping".to_owned(),
            );
        }
        let template = match chosen(request.headers()) {
            Ok(chosen) => chosen.or_else(|| config.template.clone()),
            Err(mistake) => return text(StatusCode::BAD_REQUEST, mistake),
        };
        let place = match self.0.sessions.reserve(&caller.principal) {
            Ok(place) => place,
            Err(TooMany(most)) => return too_many(most),
        };
        let session = Session::new(caller.principal.clone(), template, config.idle, place);
        let session = Arc::new(session);
        request.extensions_mut().insert(caller);
        request.extensions_mut().insert(session.clone());
        let answer = self.0.service.handle(request).await;
        let opened = answer.headers().get(SESSION);
        if let Some(id) = opened.and_then(|id| id.to_str().ok()) {
            let id: Arc<str> = id.into();
            self.0.sessions.open(id.clone(), session.clone());
            tokio::spawn(self.clone().keep(id, session));
        }
        answer
    }

    /// Waits for the end of a session: the client ends it, its key is deleted, it is idle, or the server stops.
    async fn keep(self, id: Arc<str>, session: Arc<Session>) {
        let Inner {
            shared,
            sessions,
            manager,
            ..
        } = &*self.0;
        tokio::select! {
            () = session.ended().cancelled() => {}
            () = shared.ports.keys.deleted(session.opener()) => {}
            () = session.idle() => {}
            () = shared.config.stopping.cancelled() => {}
        }
        // Cancels its calls first, so that their answers are the last messages.
        session.ended().cancel();
        sessions.remove(&id);
        if let Err(error) = manager.close_session(&id).await {
            tracing::debug!(%error, "an MCP session had ended already");
        }
        session.end(&shared.ports).await;
    }

    /// Waits until no session is left: after a stop, until all have ended.
    pub async fn drained(&self) {
        self.0.sessions.drained().await;
    }
}

/// The template that a client chooses.
fn chosen(headers: &HeaderMap) -> Result<Option<TemplateKey>, String> {
    let Some(value) = headers.get(TEMPLATE) else {
        return Ok(None);
    };
    let value = value.to_str().unwrap_or_default();
    let template = value.parse();
    template
        .map(Some)
        .map_err(|error| format!("Shoal-Template: {error}"))
}

fn too_many(most: usize) -> Answer {
    let message = format!(
        "your team has {most} MCP sessions, as many as it may have: end one, or wait until one is idle"
    );
    let mut answer = text(StatusCode::TOO_MANY_REQUESTS, message);
    answer
        .headers_mut()
        .insert(RETRY_AFTER, HeaderValue::from(RETRY));
    answer
}

/// An answer of the transport, which are plain texts.
fn text(status: StatusCode, message: String) -> Answer {
    let mut answer = Response::new(Full::new(Bytes::from(message)).boxed());
    *answer.status_mut() = status;
    answer
}
