//! Request routing and authentication.

use std::sync::Arc;

use http::{Method, Request, StatusCode};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use shoal_protocol::headers::ACCESS_TOKEN;
use shoal_protocol::is_internal_route;

use crate::activity::ActivityReader;
use crate::auth::UNAUTHORIZED_MESSAGE;
use crate::cors;
use crate::files::Files;
use crate::freezer::Freezer;
use crate::init::Init;
use crate::interpreter::Interpreter;
use crate::log::Log;
use crate::metrics::Meter;
use crate::response::{self, HttpResponse};
use crate::rpc::Rpc;
use crate::server::{Peer, RequestHandler};
use crate::settings::Settings;
use crate::sync::Sync;
use crate::tunnel;

/// Routes without the token check: liveness, and those that authorise requests themselves.
const UNAUTHENTICATED_ROUTES: [(Method, &str); 4] = [
    (Method::GET, "/health"),
    (Method::GET, "/files"),
    (Method::POST, "/files"),
    (Method::POST, "/init"),
];

/// The daemon's services.
pub(crate) struct Routes {
    /// Settings, for authentication.
    pub(crate) settings: Arc<Settings>,
    /// Connect calls.
    pub(crate) rpc: Rpc,
    /// `/files`.
    pub(crate) files: Files,
    /// `/sync`.
    pub(crate) sync: Sync,
    /// `/init`.
    pub(crate) init: Init,
    /// The code interpreter, which looks for kernels after each `/init`.
    pub(crate) interpreter: Interpreter,
    /// `/freeze` and `/unfreeze`.
    pub(crate) freezer: Freezer,
    /// `/activity`.
    pub(crate) activity: ActivityReader,
    /// `/metrics`.
    pub(crate) meter: Arc<Meter>,
    /// The log.
    pub(crate) log: Log,
}

impl RequestHandler for Routes {
    async fn handle(&self, request: Request<Incoming>) -> HttpResponse {
        if let Some(answer) = cors::preflight(&request) {
            return answer;
        }
        let from_page = cors::is_from_page(&request);
        let mut answer = if self.is_authorised(&request) {
            self.route(request).await
        } else {
            let path = request.uri().path();
            self.log
                .refused("envd", "refused: no valid access token", path);
            response::error(StatusCode::UNAUTHORIZED, UNAUTHORIZED_MESSAGE)
        };
        if from_page {
            cors::allow_origin(&mut answer);
        }
        answer
    }
}

impl Routes {
    fn is_authorised(&self, request: &Request<Incoming>) -> bool {
        let open = UNAUTHENTICATED_ROUTES
            .iter()
            .any(|(method, path)| method == request.method() && *path == request.uri().path());
        let offered = request.headers().get(ACCESS_TOKEN);
        // Internal routes are for the host only: programs exempted from the token may not call
        // them.
        let peer = match is_internal_route(request.uri().path()) {
            true => Peer::Outside,
            false => Peer::of(request),
        };
        let auth_policy = || self.settings.auth_policy(peer);
        open || auth_policy().admits(offered.map(|value| value.as_bytes()))
    }

    async fn route(&self, request: Request<Incoming>) -> HttpResponse {
        let path = request.uri().path();
        if path.starts_with("/process.Process/") || path.starts_with("/filesystem.Filesystem/") {
            let answer = self.rpc.call(request).await;
            return answer.map(|body| body.map_err(|never| match never {}).boxed_unsync());
        }
        if path.starts_with("/files") {
            return self.files.handle(request).await;
        }
        if path.starts_with("/sync/") {
            return self.sync.handle(request).await;
        }
        if let (Some(port), &Method::GET) = (path.strip_prefix("/tunnel/"), request.method()) {
            let port = port.to_owned();
            return tunnel::handle(&port, request, &self.log).await;
        }
        match (request.method(), path) {
            (&Method::GET, "/health") => {
                response::not_stored(response::status(StatusCode::NO_CONTENT))
            }
            (&Method::GET, "/metrics") => self.metrics().await,
            (&Method::GET, "/envs") => {
                let environment = self.settings.environment();
                response::not_stored(response::json(StatusCode::OK, &*environment))
            }
            (&Method::POST, "/init") => self.init(request).await,
            (&Method::POST, "/freeze") => self.freezer.freeze(request.uri().query()).await,
            (&Method::POST, "/unfreeze") => self.freezer.unfreeze(),
            (&Method::GET, "/activity") => self.activity.answer().await,
            (
                _,
                "/health" | "/metrics" | "/envs" | "/init" | "/freeze" | "/unfreeze" | "/activity",
            ) => response::error(StatusCode::METHOD_NOT_ALLOWED, "method not allowed"),
            _ => response::error(StatusCode::NOT_FOUND, "not found"),
        }
    }

    /// Applies settings. The sandbox starts or resumes, so its kernels may be new, or need them.
    async fn init(&self, request: Request<Incoming>) -> HttpResponse {
        let response = self.init.handle(request).await;
        if response.status().is_success() {
            self.interpreter.discover().await;
        }
        response
    }

    async fn metrics(&self) -> HttpResponse {
        let meter = Arc::clone(&self.meter);
        match tokio::task::spawn_blocking(move || meter.measure()).await {
            Ok(metrics) => response::not_stored(response::json(StatusCode::OK, &metrics)),
            Err(_) => response::status(StatusCode::SERVICE_UNAVAILABLE),
        }
    }
}
