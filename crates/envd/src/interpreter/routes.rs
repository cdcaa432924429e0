//! HTTP API of the code interpreter (spec).

use std::sync::Arc;

use http::header::CONTENT_TYPE;
use http::{HeaderValue, Method, Request, StatusCode};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use shoal_protocol::headers::ACCESS_TOKEN;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::context::Context;
use super::contexts::{ContextError, Contexts, HealthError};
use super::execution::{self, ExecutionSpec};
use super::output_channel::channel;
use crate::auth::UNAUTHORIZED_MESSAGE;
use crate::cors;
use crate::log::Log;
use crate::response::{self, HttpResponse};
use crate::server::{Peer, RequestHandler};
use crate::settings::{Settings, Variables};

/// Largest request. Larger data belongs into a file.
const MAX_BODY: usize = 16 << 20;

/// Memory limit of all requests being read or queued.
const MAX_QUEUED: usize = 64 << 20;

/// Allocation unit of that limit.
const UNIT: usize = 1 << 10;

/// Bytes read of an oversized request, so that the client receives the response.
const MAX_DISCARDED: usize = 256 << 20;

/// Request handler.
pub(super) struct Routes {
    contexts: Arc<Contexts>,
    settings: Arc<Settings>,
    log: Log,
    /// Memory for requests being read or queued.
    reservation: Arc<Semaphore>,
}

/// A parsed request and its memory reservation.
type Parsed<T> = (T, Option<OwnedSemaphorePermit>);

/// `POST /execute`.
#[derive(Deserialize)]
struct Execute {
    code: String,
    context_id: Option<String>,
    language: Option<String>,
    env_vars: Option<Variables>,
}

/// `POST /contexts`.
#[derive(Deserialize)]
struct Create {
    language: Option<String>,
    cwd: Option<String>,
}

impl RequestHandler for Routes {
    async fn handle(&self, request: Request<Incoming>) -> HttpResponse {
        if let Some(answer) = cors::preflight(&request) {
            return answer;
        }
        let from_page = cors::is_from_page(&request);
        let mut answer = match self.route(request).await {
            Ok(answer) | Err(answer) => answer,
        };
        if from_page {
            cors::allow_origin(&mut answer);
        }
        answer
    }
}

impl Routes {
    /// A handler for these contexts.
    pub(super) fn new(contexts: Arc<Contexts>, settings: Arc<Settings>, log: Log) -> Self {
        Self {
            contexts,
            settings,
            log,
            reservation: Arc::new(Semaphore::new(MAX_QUEUED / UNIT)),
        }
    }

    async fn route(&self, request: Request<Incoming>) -> Result<HttpResponse, HttpResponse> {
        let path = request.uri().path().to_owned();
        let parts: Vec<&str> = path.split('/').skip(1).collect();
        match (request.method(), parts.as_slice()) {
            (&Method::GET, ["health"]) => self.health().await,
            (&Method::POST, ["execute"]) => self.execute(request).await,
            (&Method::GET, ["contexts"]) => {
                self.contexts.started().await;
                Ok(response::json(StatusCode::OK, &self.contexts.list()))
            }
            (&Method::POST, ["contexts"]) => self.create(request).await,
            (&Method::POST, ["contexts", id, "restart"]) => {
                let (contexts, id) = (Arc::clone(&self.contexts), (*id).to_owned());
                run_to_completion(async move { contexts.restart(&id).await }).await?;
                Ok(response::json(StatusCode::OK, &()))
            }
            (&Method::DELETE, ["contexts", id]) => {
                self.contexts.delete(id).map_err(context_error)?;
                Ok(response::json(StatusCode::OK, &()))
            }
            (_, ["health" | "execute" | "contexts"])
            | (_, ["contexts", _])
            | (_, ["contexts", _, "restart"]) => {
                Err(text(StatusCode::METHOD_NOT_ALLOWED, "Method Not Allowed"))
            }
            _ => Err(text(StatusCode::NOT_FOUND, "Not Found")),
        }
    }

    async fn health(&self) -> Result<HttpResponse, HttpResponse> {
        match self.contexts.health().await {
            Ok(()) => Ok(response::not_stored(response::json(StatusCode::OK, &"OK"))),
            Err(unwell) => {
                let status = match unwell {
                    HealthError::Starting => StatusCode::SERVICE_UNAVAILABLE,
                    HealthError::Failed(_) => StatusCode::INTERNAL_SERVER_ERROR,
                };
                Err(text(status, unwell.to_string()))
            }
        }
    }

    async fn execute(&self, request: Request<Incoming>) -> Result<HttpResponse, HttpResponse> {
        let offered = request.headers().get(ACCESS_TOKEN);
        let auth_policy = self.settings.auth_policy(Peer::of(&request));
        if !auth_policy.admits(offered.map(HeaderValue::as_bytes)) {
            let reason = "refused: no valid access token";
            self.log.refused("interpreter", reason, "/execute");
            return Err(response::error(
                StatusCode::UNAUTHORIZED,
                UNAUTHORIZED_MESSAGE,
            ));
        }
        let (parsed, reservation): Parsed<Execute> = self.body(request).await?;
        let context = match (&parsed.context_id, &parsed.language) {
            (Some(_), Some(_)) => {
                let message = "Only one of context_id or language can be provided";
                return Err(text(StatusCode::BAD_REQUEST, message));
            }
            (Some(id), None) => self.contexts.find(id).map_err(context_error)?,
            (None, language) => {
                let language = language.as_deref().unwrap_or_default();
                self.default(language).await?
            }
        };
        let queue_slot = context.queue_slot().ok_or_else(|| {
            let message = "Too many executions wait for this context";
            text(StatusCode::TOO_MANY_REQUESTS, message)
        })?;
        let mut variables = parsed.env_vars.unwrap_or_default();
        variables.retain(|name, value| crate::settings::is_variable(name, value));
        let spec = ExecutionSpec {
            code: parsed.code,
            variables,
            reservation,
        };
        let launcher = Arc::clone(self.contexts.launcher());
        let (output_channel, lines) = channel(&launcher.output);
        tokio::spawn(execution::run(
            context,
            launcher,
            spec,
            output_channel,
            queue_slot,
        ));
        let mut answer = HttpResponse::new(lines.first_output().await.body());
        let kind = HeaderValue::from_static("application/x-ndjson");
        answer.headers_mut().insert(CONTENT_TYPE, kind);
        Ok(response::not_stored(answer))
    }

    /// Parses a JSON object. Serde alone would accept an array of the field values too.
    async fn body<T: DeserializeOwned>(
        &self,
        request: Request<Incoming>,
    ) -> Result<Parsed<T>, HttpResponse> {
        let (body, reservation) = self.read_body(request.into_body()).await?;
        let fields: Result<Map<String, Value>, _> = serde_json::from_slice(&body);
        let parsed = fields.and_then(|fields| serde_json::from_value(Value::Object(fields)));
        let parsed = parsed.map_err(|error| {
            let message = format!("Invalid request: {error}");
            text(StatusCode::UNPROCESSABLE_ENTITY, message)
        })?;
        Ok((parsed, reservation))
    }

    /// Reads the whole body. An oversized one is read and discarded: most clients send everything
    /// before they read the response.
    async fn read_body(&self, mut body: Incoming) -> Result<Parsed<Vec<u8>>, HttpResponse> {
        let (mut bytes, mut length, mut reservation) =
            (Vec::new(), 0, None::<OwnedSemaphorePermit>);
        let mut fits = true;
        while let Some(frame) = body.frame().await {
            let cut = |_| text(StatusCode::BAD_REQUEST, "Incomplete request body");
            let Ok(data) = frame.map_err(cut)?.into_data() else {
                continue;
            };
            length += data.len();
            if length > MAX_DISCARDED {
                break;
            }
            let more = self.reserve_more(data.len());
            let Some(more) = more.filter(|_| fits && length <= MAX_BODY) else {
                fits = false;
                (bytes, reservation) = (Vec::new(), None);
                continue;
            };
            match &mut reservation {
                Some(reservation) => reservation.merge(more),
                None => reservation = Some(more),
            }
            bytes.extend_from_slice(&data);
        }
        if length > MAX_BODY {
            let message = format!(
                "The request is longer than {} MiB. Write its data to a file instead",
                MAX_BODY >> 20
            );
            return Err(text(StatusCode::PAYLOAD_TOO_LARGE, message));
        }
        if !fits {
            return Err(queue_full());
        }
        Ok((bytes, reservation))
    }

    fn reserve_more(&self, length: usize) -> Option<OwnedSemaphorePermit> {
        let units = u32::try_from(length.div_ceil(UNIT)).unwrap_or(u32::MAX);
        let reservation = Arc::clone(&self.reservation);
        reservation.try_acquire_many_owned(units).ok()
    }

    async fn create(&self, request: Request<Incoming>) -> Result<HttpResponse, HttpResponse> {
        let (parsed, _reservation): Parsed<Create> = self.body(request).await?;
        let language = parsed.language.unwrap_or_default();
        let cwd = parsed.cwd.unwrap_or_default();
        let contexts = Arc::clone(&self.contexts);
        let made = run_to_completion(async move { contexts.create(&language, &cwd).await }).await?;
        Ok(response::json(StatusCode::OK, made.listing()))
    }

    async fn default(&self, language: &str) -> Result<Arc<Context>, HttpResponse> {
        if let Some(context) = self.contexts.find_default(language) {
            return Ok(context);
        }
        let (contexts, language) = (Arc::clone(&self.contexts), language.to_owned());
        run_to_completion(async move { contexts.default(&language).await }).await
    }
}

/// Runs to completion even if the client disconnects, because a half-started process would leak.
/// The resulting context can be listed and deleted.
async fn run_to_completion<T: Send + 'static>(
    starting: impl Future<Output = Result<T, ContextError>> + Send + 'static,
) -> Result<T, HttpResponse> {
    let outcome = tokio::spawn(starting).await.map_err(|_| {
        let status = StatusCode::SERVICE_UNAVAILABLE;
        text(status, "The daemon is shutting down")
    })?;
    outcome.map_err(context_error)
}

fn queue_full() -> HttpResponse {
    let limit = MAX_QUEUED >> 20;
    let message = format!("Queued requests exceed {limit} MiB");
    text(StatusCode::TOO_MANY_REQUESTS, message)
}

/// A plain-text response.
fn text(status: StatusCode, text: impl Into<String>) -> HttpResponse {
    let mut answer = HttpResponse::new(response::full(text.into()));
    *answer.status_mut() = status;
    let plain = HeaderValue::from_static("text/plain; charset=utf-8");
    answer.headers_mut().insert(CONTENT_TYPE, plain);
    answer
}

fn context_error(error: ContextError) -> HttpResponse {
    let status = match &error {
        ContextError::Unknown(_) => StatusCode::NOT_FOUND,
        ContextError::Full => StatusCode::TOO_MANY_REQUESTS,
        ContextError::Language { .. } | ContextError::InvalidCwd(_) | ContextError::Start(_) => {
            StatusCode::INTERNAL_SERVER_ERROR
        }
    };
    text(status, error.to_string())
}
