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
use super::contexts::{Contexts, NoContext, Unwell};
use super::execution::{self, Order};
use super::feed::feed;
use crate::answer::{self, Answer};
use crate::cors;
use crate::log::Log;
use crate::router::UNAUTHORISED;
use crate::server::{Answers, Side};
use crate::settings::{Settings, Variables};

/// Largest request. Larger data belongs into a file.
const MAX_BODY: usize = 16 << 20;

/// Memory limit of all requests being read or queued.
const MAX_ALL: usize = 64 << 20;

/// Allocation unit of that limit.
const UNIT: usize = 1 << 10;

/// Bytes read of an oversized request, so that the client receives the response.
const MAX_READ: usize = 256 << 20;

/// Request handler.
pub(super) struct Routes {
    contexts: Arc<Contexts>,
    settings: Arc<Settings>,
    log: Log,
    /// Memory for requests being read or queued.
    room: Arc<Semaphore>,
}

/// A parsed request and its memory reservation.
type Asked<T> = (T, Option<OwnedSemaphorePermit>);

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

impl Answers for Routes {
    async fn answer(&self, request: Request<Incoming>) -> Answer {
        if let Some(answer) = cors::preflight(&request) {
            return answer;
        }
        let from_page = cors::is_from_page(&request);
        let mut answer = match self.route(request).await {
            Ok(answer) | Err(answer) => answer,
        };
        if from_page {
            cors::open(&mut answer);
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
            room: Arc::new(Semaphore::new(MAX_ALL / UNIT)),
        }
    }

    async fn route(&self, request: Request<Incoming>) -> Result<Answer, Answer> {
        let path = request.uri().path().to_owned();
        let parts: Vec<&str> = path.split('/').skip(1).collect();
        match (request.method(), parts.as_slice()) {
            (&Method::GET, ["health"]) => self.health().await,
            (&Method::POST, ["execute"]) => self.execute(request).await,
            (&Method::GET, ["contexts"]) => {
                self.contexts.started().await;
                Ok(answer::json(StatusCode::OK, &self.contexts.list()))
            }
            (&Method::POST, ["contexts"]) => self.create(request).await,
            (&Method::POST, ["contexts", id, "restart"]) => {
                let (contexts, id) = (Arc::clone(&self.contexts), (*id).to_owned());
                finished(async move { contexts.restart(&id).await }).await?;
                Ok(answer::json(StatusCode::OK, &()))
            }
            (&Method::DELETE, ["contexts", id]) => {
                self.contexts.delete(id).map_err(refusal)?;
                Ok(answer::json(StatusCode::OK, &()))
            }
            (_, ["health" | "execute" | "contexts"])
            | (_, ["contexts", _])
            | (_, ["contexts", _, "restart"]) => {
                Err(text(StatusCode::METHOD_NOT_ALLOWED, "Method Not Allowed"))
            }
            _ => Err(text(StatusCode::NOT_FOUND, "Not Found")),
        }
    }

    async fn health(&self) -> Result<Answer, Answer> {
        match self.contexts.health().await {
            Ok(()) => Ok(answer::not_stored(answer::json(StatusCode::OK, &"OK"))),
            Err(unwell) => {
                let status = match unwell {
                    Unwell::Starting => StatusCode::SERVICE_UNAVAILABLE,
                    Unwell::Failed(_) => StatusCode::INTERNAL_SERVER_ERROR,
                };
                Err(text(status, unwell.to_string()))
            }
        }
    }

    async fn execute(&self, request: Request<Incoming>) -> Result<Answer, Answer> {
        let offered = request.headers().get(ACCESS_TOKEN);
        let guard = self.settings.guard(Side::of(&request));
        if !guard.opens(offered.map(HeaderValue::as_bytes)) {
            let reason = "refused: no valid access token";
            self.log.refused("interpreter", reason, "/execute");
            return Err(answer::error(StatusCode::UNAUTHORIZED, UNAUTHORISED));
        }
        let (asked, room): Asked<Execute> = self.body(request).await?;
        let context = match (&asked.context_id, &asked.language) {
            (Some(_), Some(_)) => {
                let problem = "Only one of context_id or language can be provided";
                return Err(text(StatusCode::BAD_REQUEST, problem));
            }
            (Some(id), None) => self.contexts.find(id).map_err(refusal)?,
            (None, language) => {
                let language = language.as_deref().unwrap_or_default();
                self.default(language).await?
            }
        };
        let place = context.place().ok_or_else(|| {
            let problem = "Too many executions wait for this context";
            text(StatusCode::TOO_MANY_REQUESTS, problem)
        })?;
        let mut variables = asked.env_vars.unwrap_or_default();
        variables.retain(|name, value| crate::init::is_variable(name, value));
        let order = Order {
            code: asked.code,
            variables,
            room,
        };
        let launcher = Arc::clone(self.contexts.launcher());
        let (feed, lines) = feed(&launcher.output);
        tokio::spawn(execution::run(context, launcher, order, feed, place));
        let mut answer = Answer::new(lines.begun().await.body());
        let kind = HeaderValue::from_static("application/x-ndjson");
        answer.headers_mut().insert(CONTENT_TYPE, kind);
        Ok(answer::not_stored(answer))
    }

    /// Parses a JSON object. Serde alone would accept an array of the field values too.
    async fn body<T: DeserializeOwned>(
        &self,
        request: Request<Incoming>,
    ) -> Result<Asked<T>, Answer> {
        let (body, room) = self.whole(request.into_body()).await?;
        let fields: Result<Map<String, Value>, _> = serde_json::from_slice(&body);
        let asked = fields.and_then(|fields| serde_json::from_value(Value::Object(fields)));
        let asked = asked.map_err(|error| {
            let problem = format!("Invalid request: {error}");
            text(StatusCode::UNPROCESSABLE_ENTITY, problem)
        })?;
        Ok((asked, room))
    }

    /// Reads the whole body. An oversized one is read and discarded: most clients send everything
    /// before they read the response.
    async fn whole(&self, mut body: Incoming) -> Result<Asked<Vec<u8>>, Answer> {
        let (mut whole, mut length, mut room) = (Vec::new(), 0, None::<OwnedSemaphorePermit>);
        let mut fits = true;
        while let Some(frame) = body.frame().await {
            let cut = |_| text(StatusCode::BAD_REQUEST, "Incomplete request body");
            let Ok(data) = frame.map_err(cut)?.into_data() else {
                continue;
            };
            length += data.len();
            if length > MAX_READ {
                break;
            }
            let more = self.more_room(data.len());
            let Some(more) = more.filter(|_| fits && length <= MAX_BODY) else {
                fits = false;
                (whole, room) = (Vec::new(), None);
                continue;
            };
            match &mut room {
                Some(room) => room.merge(more),
                None => room = Some(more),
            }
            whole.extend_from_slice(&data);
        }
        if length > MAX_BODY {
            let problem = format!(
                "The request is longer than {} MiB. Write its data to a file instead",
                MAX_BODY >> 20
            );
            return Err(text(StatusCode::PAYLOAD_TOO_LARGE, problem));
        }
        if !fits {
            return Err(full());
        }
        Ok((whole, room))
    }

    fn more_room(&self, length: usize) -> Option<OwnedSemaphorePermit> {
        let units = u32::try_from(length.div_ceil(UNIT)).unwrap_or(u32::MAX);
        let room = Arc::clone(&self.room);
        room.try_acquire_many_owned(units).ok()
    }

    async fn create(&self, request: Request<Incoming>) -> Result<Answer, Answer> {
        let (asked, _room): Asked<Create> = self.body(request).await?;
        let language = asked.language.unwrap_or_default();
        let cwd = asked.cwd.unwrap_or_default();
        let contexts = Arc::clone(&self.contexts);
        let made = finished(async move { contexts.create(&language, &cwd).await }).await?;
        Ok(answer::json(StatusCode::OK, made.listing()))
    }

    async fn default(&self, language: &str) -> Result<Arc<Context>, Answer> {
        if let Some(context) = self.contexts.find_default(language) {
            return Ok(context);
        }
        let (contexts, language) = (Arc::clone(&self.contexts), language.to_owned());
        finished(async move { contexts.default(&language).await }).await
    }
}

/// Runs to completion even if the client disconnects, because a half-started process would leak.
/// The resulting context can be listed and deleted.
async fn finished<T: Send + 'static>(
    starting: impl Future<Output = Result<T, NoContext>> + Send + 'static,
) -> Result<T, Answer> {
    let finished = tokio::spawn(starting).await.map_err(|_| {
        let status = StatusCode::SERVICE_UNAVAILABLE;
        text(status, "The daemon is shutting down")
    })?;
    finished.map_err(refusal)
}

fn full() -> Answer {
    let limit = MAX_ALL >> 20;
    let problem = format!("Queued requests exceed {limit} MiB");
    text(StatusCode::TOO_MANY_REQUESTS, problem)
}

/// A plain-text response.
fn text(status: StatusCode, text: impl Into<String>) -> Answer {
    let mut answer = Answer::new(answer::full(text.into()));
    *answer.status_mut() = status;
    let plain = HeaderValue::from_static("text/plain; charset=utf-8");
    answer.headers_mut().insert(CONTENT_TYPE, plain);
    answer
}

fn refusal(problem: NoContext) -> Answer {
    let status = match &problem {
        NoContext::Unknown(_) => StatusCode::NOT_FOUND,
        NoContext::Full => StatusCode::TOO_MANY_REQUESTS,
        NoContext::Language { .. } | NoContext::Place(_) | NoContext::Start(_) => {
            StatusCode::INTERNAL_SERVER_ERROR
        }
    };
    text(status, problem.to_string())
}
