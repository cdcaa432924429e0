//! A request's way to a sandbox and back.

mod enter;
mod exchange;
mod idle;
mod metrics;
mod preview;
mod runs;
mod send;
mod span;
mod tokens;

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use ipnet::IpNet;
use parking_lot::Mutex;
use shoal_core::id::ExecutionId;
use shoal_core::ports::sessions::preview::{NoPreviews, Previews};
use shoal_core::routes::{Lookup, Route, RouteTable, Visit};
use shoal_core::session::preview::PreviewDomain;
use shoal_core::template::RuntimeName;
use shoal_protocol::{ENVD_PORT, is_internal_route};
use tracing::Instrument;

use self::exchange::{answer_of, give_back, prepare, version};
use self::metrics::Counts;
use self::send::send;
use self::span::span_of;
use self::tokens::{AuthenticatedBy, check_traffic_token, may_wake};
use crate::answer::{AnswerForm, Refusal};
use crate::forward::strip_proxy_headers;
use crate::kruise_path::{self, KruisePath};
use crate::limit::{Connections, Slot};
use crate::places::Places;
use crate::signed;
use crate::target::{self, InvalidTarget, Target};
use crate::tunnel::Upgrade;
use crate::upstream::{BoxError, ForwardedBody, Sender, Upstream};

/// The configuration of the gateway.
#[derive(Debug, Clone)]
pub struct GatewayConfig {
    /// The domain of sandbox host names, if any.
    pub domain: Option<String>,
    /// The maximum number of concurrent requests into a sandbox.
    pub connections: usize,
    /// The maximum number of open connections into all sandboxes.
    pub upstreams: usize,
    /// Proxies whose `X-Forwarded-For` and similar headers are trusted. Those of other clients are
    /// replaced.
    pub trusted_proxies: Vec<IpNet>,
}

impl Default for GatewayConfig {
    /// No domain, and E2B's limit of connections.
    fn default() -> Self {
        Self {
            domain: None,
            connections: 2500,
            upstreams: 8192,
            trusted_proxies: Vec::new(),
        }
    }
}

/// The client of a request.
#[derive(Debug, Clone, Copy, Default)]
pub struct Client {
    /// Its address.
    pub address: Option<IpAddr>,
    /// Whether it uses TLS.
    pub tls: bool,
}

/// The data path. Cheap to clone.
#[derive(Clone)]
pub struct Gateway {
    shared: Arc<Shared>,
    previews: Arc<dyn Previews>,
}

struct Shared {
    config: GatewayConfig,
    preview_domain: PreviewDomain,
    routes: Arc<dyn RouteTable>,
    upstreams: Mutex<HashMap<ExecutionId, Arc<Upstream>>>,
    connections: Connections,
    places: Arc<Places<Sender>>,
    counts: Counts,
}

/// Marks an answer of the gateway itself, not of a server in a sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OwnAnswer;

/// The body of an answer.
pub type GatewayBody = ForwardedBody;

impl Gateway {
    /// A gateway to the sandboxes in `routes`.
    #[must_use]
    pub fn new(config: GatewayConfig, routes: Arc<dyn RouteTable>) -> Self {
        let connections = Connections::new(config.connections);
        let places = Arc::new(Places::new(config.upstreams));
        let shared = Shared {
            preview_domain: PreviewDomain::of(config.domain.as_deref()),
            config,
            routes,
            upstreams: Mutex::default(),
            connections,
            places,
            counts: Counts::default(),
        };
        Self {
            shared: Arc::new(shared),
            previews: Arc::new(NoPreviews),
        }
    }

    /// The target of a request; none for the API.
    ///
    /// # Errors
    /// When the target is invalid.
    pub fn target<B>(&self, request: &Request<B>) -> Result<Option<Target>, InvalidTarget> {
        let domain = self.shared.config.domain.as_deref();
        let named = target::find(request.headers(), request.uri(), domain)?;
        Ok(named
            .or_else(|| signed::find(request.method(), request.uri(), self.shared.routes.as_ref())))
    }

    /// Rewrites a request that names no sandbox, if its path is one of OpenKruise's.
    pub fn rewrite_kruise_path<B>(&self, request: &mut Request<B>) -> KruisePath {
        // Most requests have another path.
        if !kruise_path::is_one(request.uri()) {
            return KruisePath::Other;
        }
        match self.target(request) {
            Ok(None) => kruise_path::rewrite(request),
            _ => KruisePath::Other,
        }
    }

    /// The answer to a request with an invalid target.
    #[must_use]
    pub fn refuse(&self, invalid: InvalidTarget) -> Response<GatewayBody> {
        answer_of(Refusal::Invalid(invalid).answer(AnswerForm::Data, None))
    }

    /// The answer to a request that comes while the server stops.
    #[must_use]
    pub fn stopping(&self) -> Response<GatewayBody> {
        answer_of(Refusal::Stopping.answer(AnswerForm::Data, None))
    }

    /// Forwards a request and returns the answer.
    pub async fn proxy<B>(
        &self,
        mut request: Request<B>,
        target: Target,
        client: Client,
    ) -> Response<GatewayBody>
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        self.check_proxy_headers(request.headers_mut(), client);
        let form = AnswerForm::of(request.headers());
        let (passed, runtime) = self
            .pass_on(request, &target, client, AuthenticatedBy::Tokens)
            .await;
        let answer =
            passed.unwrap_or_else(|refusal| answer_of(refusal.answer(form, Some(&target))));
        self.shared.counts.add(&answer, runtime.as_ref());
        answer
    }

    /// Removes proxy headers of clients that are not trusted.
    fn check_proxy_headers(&self, headers: &mut http::HeaderMap, client: Client) {
        let trusted = &self.shared.config.trusted_proxies;
        let is_trusted = |address| trusted.iter().any(|proxies| proxies.contains(&address));
        if !client.address.is_some_and(is_trusted) {
            strip_proxy_headers(headers);
        }
    }

    /// Forwards an authorized request; also returns the sandbox's runtime.
    async fn pass_on<B>(
        &self,
        request: Request<B>,
        target: &Target,
        client: Client,
        authenticated: AuthenticatedBy,
    ) -> (Result<Response<GatewayBody>, Refusal>, Option<RuntimeName>)
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let span = span_of(request.headers(), target);
        let forwarded = self.forward(request, target, client, authenticated);
        forwarded.instrument(span).await
    }

    async fn forward<B>(
        &self,
        request: Request<B>,
        target: &Target,
        client: Client,
        authenticated: AuthenticatedBy,
    ) -> (Result<Response<GatewayBody>, Refusal>, Option<RuntimeName>)
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        // First, so that a request that its head refuses does not wake a sandbox.
        let asked = match Upgrade::of(&request) {
            Ok(asked) => asked,
            Err(refusal) => return (Err(refusal), None),
        };
        let (headers, path) = (request.headers(), request.uri().path());
        match self.route(headers, path, target, authenticated).await {
            Ok((route, visit)) => {
                let runtime = route.runtime.clone();
                let place = (target, route, visit);
                let reached = self
                    .reach(request, asked, place, client, authenticated)
                    .await;
                (reached, Some(runtime))
            }
            Err(refusal) => (Err(refusal), None),
        }
    }

    /// Authorizes a request and returns its route. Wakes a paused or parked sandbox. The visit keeps it
    /// from being parked.
    async fn route(
        &self,
        headers: &http::HeaderMap,
        path: &str,
        target: &Target,
        authenticated: AuthenticatedBy,
    ) -> Result<(Arc<Route>, Visit), Refusal> {
        if target.port == ENVD_PORT && is_internal_route(path) {
            return Err(Refusal::Internal(path.to_owned()));
        }
        self.check_machine(target, authenticated)?;
        let routes = &self.shared.routes;
        let mut route = match routes.lookup(&target.sandbox) {
            Lookup::Running(route) => route,
            // Its session wakes it.
            Lookup::Resumable(_) if authenticated == AuthenticatedBy::Preview => {
                return Err(Refusal::Paused);
            }
            Lookup::Resumable(auth) => {
                if authenticated == AuthenticatedBy::Tokens {
                    may_wake(&auth, target, headers)?;
                }
                Box::pin(self.wake(target, Refusal::Busy)).await?
            }
            // A request that reaches a running sandbox wakes a parked one: clients cannot distinguish them.
            Lookup::Parked(auth) => {
                if authenticated == AuthenticatedBy::Tokens {
                    check_traffic_token(auth.traffic_access_token.as_ref(), target, headers)?;
                }
                Box::pin(self.wake(target, Refusal::NotWoken)).await?
            }
            Lookup::Paused => return Err(Refusal::Paused),
            Lookup::Busy => return Err(Refusal::Busy),
            Lookup::Failed(reason) => return Err(Refusal::Failed(reason)),
            Lookup::Unknown => return Err(Refusal::NotFound),
        };
        if authenticated == AuthenticatedBy::Tokens {
            check_traffic_token(route.traffic_access_token.as_ref(), target, headers)?;
        }
        if let Some(visit) = routes.visit(&route) {
            return Ok((route, visit));
        }
        // It was about to be parked, or has just been.
        route = Box::pin(self.wake(target, Refusal::NotWoken)).await?;
        let visit = routes.visit(&route).ok_or(Refusal::Busy)?;
        Ok((route, visit))
    }

    async fn reach<B>(
        &self,
        request: Request<B>,
        asked: Upgrade,
        (target, route, visit): (&Target, Arc<Route>, Visit),
        client: Client,
        authenticated: AuthenticatedBy,
    ) -> Result<Response<GatewayBody>, Refusal>
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let slot = self.slot(target)?;
        let (http2, asked) = version(&request, asked);
        let (forwarded, client_side) =
            prepare(request, target, Some(&route), client, &asked, http2)?;
        let upstream = self.upstream(&route);
        let mut ended = self.over(&route, authenticated);
        let response = tokio::select! {
            response = send(&upstream, target.port, forwarded, http2) => response,
            () = &mut ended => Err(match self.has_ended(&route) {
                true => Refusal::NotFound,
                false => Refusal::Unproven,
            }),
        };
        let answered = response.and_then(|(response, stream)| {
            let held = (slot, stream, visit);
            let idle = client_side
                .as_ref()
                .and_then(|_| self.idle_connection(&route, authenticated));
            give_back(response, client_side, &asked, ended, held, idle)
        });
        // The connection broke because the sandbox ended.
        answered.map_err(|refusal| match self.has_ended(&route) {
            true => Refusal::NotFound,
            false => refusal,
        })
    }

    /// The place of one more request to a machine.
    fn slot(&self, target: &Target) -> Result<Slot, Refusal> {
        let connections = &self.shared.connections;
        let slot = connections.take(&target.sandbox);
        slot.ok_or_else(|| Refusal::TooMany(connections.most()))
    }
}

#[cfg(test)]
mod tests;
