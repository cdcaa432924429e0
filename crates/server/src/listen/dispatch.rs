//! Requests that name a sandbox go to the gateway, all others to the API.

use std::convert::Infallible;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use http::uri::Scheme;
use http::{Request, Response};
use hyper::body::Incoming;
use shoal_api::ClientAddress;
use shoal_core::audit::AuditLog;
use shoal_core::session::preview::PreviewName;
use shoal_gateway::{Client, Gateway, KruisePath};
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use super::{Answer, DrainBody, close_after};
use crate::{audit, trace_context};

/// Routes requests to the gateway or the API.
#[derive(Clone)]
pub(crate) struct Dispatch {
    gateway: Gateway,
    api: Router,
    audit: Arc<dyn AuditLog>,
    stopping: CancellationToken,
}

impl Dispatch {
    /// Routes requests until `stopping`, and refuses them from then on.
    pub(crate) fn new(
        gateway: Gateway,
        api: Router,
        audit: Arc<dyn AuditLog>,
        stopping: CancellationToken,
    ) -> Self {
        Self {
            gateway,
            api,
            audit,
            stopping,
        }
    }

    /// The answer to a request that comes while the server stops.
    fn refuse(&self, request: &Request<DrainBody<Incoming>>) -> Response<Body> {
        let answer = match self.gateway.target(request) {
            Ok(None) if matches!(self.gateway.path_route(request), Ok(None)) => {
                shoal_api::stopping(request.uri().path())
            }
            _ => self.gateway.stopping().map(Body::new),
        };
        close_after(answer, request.version())
    }

    async fn route(
        self,
        mut request: Request<DrainBody<Incoming>>,
        client: Client,
    ) -> Response<Body> {
        if let Some(name) = self.gateway.preview(&request) {
            return self.route_preview(request, name, client).await;
        }
        let path = self.gateway.rewrite_kruise_path(&mut request);
        if self.stopping.is_cancelled() {
            return self.refuse(&request);
        }
        if path == KruisePath::Api {
            return self.call(request.map(Body::new), client).await;
        }
        let mut answer = self.route_plain(request, client).await;
        path.isolate(answer.headers_mut());
        answer
    }

    /// No path of this server is served under the name of a preview.
    async fn route_preview(
        self,
        request: Request<DrainBody<Incoming>>,
        name: PreviewName,
        client: Client,
    ) -> Response<Body> {
        if self.stopping.is_cancelled() {
            let answer = self.gateway.stopping().map(Body::new);
            return close_after(answer, request.version());
        }
        let answer = self.gateway.proxy_preview(request, name, client).await;
        answer.map(Body::new)
    }

    async fn route_plain(
        self,
        request: Request<DrainBody<Incoming>>,
        client: Client,
    ) -> Response<Body> {
        match self.gateway.target(&request) {
            Ok(Some(target)) => {
                let sandbox = target.sandbox.to_string();
                let answer = self.gateway.proxy(request, target, client).await;
                audit::refused(self.audit.as_ref(), &answer, &sandbox, client.address);
                answer.map(Body::new)
            }
            Ok(None) => match self.gateway.path_route(&request) {
                Ok(Some(path_route)) => {
                    let name = path_route.name().to_owned();
                    let answer = self.gateway.proxy_path(request, path_route, client).await;
                    audit::refused(self.audit.as_ref(), &answer, &name, client.address);
                    answer.map(Body::new)
                }
                Ok(None) => match page(&request) {
                    Some(page) => page,
                    None => self.call(request.map(Body::new), client).await,
                },
                Err(invalid) => self.gateway.refuse(invalid).map(Body::new),
            },
            Err(invalid) => self.gateway.refuse(invalid).map(Body::new),
        }
    }

    /// An API call.
    async fn call(self, mut request: Request<Body>, client: Client) -> Response<Body> {
        // For URLs in answers.
        let scheme = if client.tls {
            Scheme::HTTPS
        } else {
            Scheme::HTTP
        };
        request.extensions_mut().insert(scheme);
        if let Some(address) = client.address {
            request.extensions_mut().insert(ClientAddress(address));
        }
        let call = tower_service_call(self.api, request);
        call.await.unwrap_or_else(|never| match never {})
    }
}

impl Answer for Dispatch {
    async fn answer(
        self,
        mut request: Request<DrainBody<Incoming>>,
        client: Client,
    ) -> Response<Body> {
        let span = trace_context::continue_trace(request.headers_mut());
        self.route(request, client).instrument(span).await
    }

    fn stopping(&self) -> &CancellationToken {
        &self.stopping
    }
}

/// A file of the web UI, if the request asks for one.
fn page<B>(request: &Request<B>) -> Option<Response<Body>> {
    let page = shoal_ui::answer(request.method(), request.uri().path(), request.headers())?;
    Some(page.map(Body::from))
}

async fn tower_service_call(
    mut api: Router,
    request: Request<Body>,
) -> Result<Response<Body>, Infallible> {
    // A router is always ready.
    tower_service::Service::call(&mut api, request).await
}
