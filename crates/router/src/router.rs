//! A request's way through the router.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body::Body;
use kube::{Client as KubeClient, Config};
use shoal_gateway::{Client, Gateway, GatewayBody, GatewayConfig, Target};
use tokio::sync::watch;

use crate::answer::{self, Refusal};
use crate::authenticate::{Authentication, Authenticator, InvalidTokens};
use crate::headers::{self, Asked};
use crate::table::Table;
use crate::watch::follow;

/// How long a request waits for the watch to show its sandbox.
const PATIENCE: Duration = Duration::from_millis(1500);

/// The configuration of the router.
#[derive(Debug, Clone)]
pub struct RouterConfig {
    /// The domain of the cluster's DNS.
    pub cluster_domain: String,
    /// The longest wait for the head of an answer.
    pub proxy_timeout: Duration,
    /// How callers are authenticated.
    pub authentication: Authentication,
    /// The limits of proxying.
    pub gateway: GatewayConfig,
}

/// Why the router does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// There is no service account and no kubeconfig.
    #[error("no cluster is configured: {0}")]
    NoCluster(String),
    /// See [`InvalidTokens`].
    #[error(transparent)]
    Tokens(#[from] InvalidTokens),
}

/// The router. Cheap to clone.
#[derive(Clone)]
pub struct Router {
    shared: Arc<Shared>,
}

struct Shared {
    table: Arc<Table>,
    gateway: Gateway,
    authenticator: Authenticator,
    proxy_timeout: Duration,
}

/// The watch of a router's sandboxes.
pub struct Watching {
    client: KubeClient,
    table: Arc<Table>,
    synced: watch::Sender<bool>,
}

impl Watching {
    /// Becomes true when the router knows all sandboxes.
    #[must_use]
    pub fn synced(&self) -> watch::Receiver<bool> {
        self.synced.subscribe()
    }

    /// Keeps the router up to date. Without it, the router finds no sandbox.
    pub async fn run(self) {
        follow(self.client, self.table, self.synced).await;
    }
}

impl Router {
    /// A router of the cluster that the environment names, and its watch.
    ///
    /// # Errors
    /// See [`StartError`].
    pub async fn connect(config: RouterConfig) -> Result<(Self, Watching), StartError> {
        let cluster = Config::infer().await;
        let cluster = cluster.map_err(|error| StartError::NoCluster(error.to_string()))?;
        let client = KubeClient::try_from(cluster);
        let client = client.map_err(|error| StartError::NoCluster(error.to_string()))?;
        let authenticator = Authenticator::new(config.authentication, client.clone()).await?;
        let table = Arc::new(Table::new(&config.cluster_domain));
        let router = Self::new(
            table.clone(),
            config.gateway,
            authenticator,
            config.proxy_timeout,
        );
        let watching = Watching {
            client,
            table,
            synced: watch::Sender::new(false),
        };
        Ok((router, watching))
    }

    fn new(
        table: Arc<Table>,
        gateway: GatewayConfig,
        authenticator: Authenticator,
        proxy_timeout: Duration,
    ) -> Self {
        let shared = Shared {
            gateway: Gateway::new(gateway, table.clone()),
            table,
            authenticator,
            proxy_timeout,
        };
        Self {
            shared: Arc::new(shared),
        }
    }

    /// The answer to a request that comes while the router stops.
    #[must_use]
    pub fn stopping(&self) -> Response<GatewayBody> {
        Refusal::Stopping.answer()
    }

    /// Forwards a request to the sandbox that its headers name, and returns the answer.
    pub async fn answer<B>(&self, request: Request<B>, client: Client) -> Response<GatewayBody>
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        if request.uri().path() == "/healthz" && !headers::names_sandbox(request.headers()) {
            return answer::healthy();
        }
        let (begun, method) = (Instant::now(), method_label(request.method()));
        let mut namespace = String::new();
        let answered = self.forward(request, client, &mut namespace).await;
        let answer = answered.unwrap_or_else(|refusal| refusal.answer());
        count(method, &answer, namespace, begun);
        answer
    }

    /// `namespace` is set when the request reached a sandbox: others must not make up label values.
    async fn forward<B>(
        &self,
        mut request: Request<B>,
        client: Client,
        namespace: &mut String,
    ) -> Result<Response<GatewayBody>, Refusal>
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let shared = &self.shared;
        let asked = headers::read(request.headers())?;
        let Asked {
            id,
            namespace: within,
            port,
            timeout,
        } = asked;
        let checked = shared
            .authenticator
            .check(request.headers_mut(), &within, &id)
            .await;
        let decision = if checked.is_ok() { "allow" } else { "deny" };
        metrics::counter!("sandbox_router_authz_decisions_total", "decision" => decision)
            .increment(1);
        if let Err(refused) = &checked {
            tracing::debug!(sandbox = id, namespace = within, %refused, "refused");
        }
        checked?;
        headers::strip(request.headers_mut());
        let most = timeout.map_or(shared.proxy_timeout, |asked| {
            asked.min(shared.proxy_timeout)
        });
        let key = (within, id);
        let passed = async {
            let found = shared.table.find(&key, PATIENCE).await;
            let route = found.ok_or_else(|| Refusal::Unreachable(key.1.clone()))?;
            namespace.clone_from(&key.0);
            let target = Target {
                sandbox: route.sandbox.clone(),
                port,
            };
            let answer = shared.gateway.proxy(request, target, client).await;
            answer::translated(answer, &key.1).await
        };
        tokio::time::timeout(most, passed)
            .await
            .unwrap_or_else(|_| Err(Refusal::TimedOut(key.1.clone())))
    }
}

/// The label of a method; clients may make up others.
fn method_label(method: &Method) -> &'static str {
    match *method {
        Method::GET => "GET",
        Method::HEAD => "HEAD",
        Method::POST => "POST",
        Method::PUT => "PUT",
        Method::PATCH => "PATCH",
        Method::DELETE => "DELETE",
        Method::OPTIONS => "OPTIONS",
        Method::CONNECT => "CONNECT",
        _ => "other",
    }
}

/// Counts an answer and the time to its head.
fn count(method: &'static str, answer: &Response<GatewayBody>, namespace: String, begun: Instant) {
    let code = answer.status().as_u16().to_string();
    metrics::counter!(
        "sandbox_router_requests_total",
        "method" => method, "code" => code, "sandbox_namespace" => namespace.clone()
    )
    .increment(1);
    metrics::histogram!(
        "sandbox_router_request_duration_seconds", "sandbox_namespace" => namespace
    )
    .record(begun.elapsed().as_secs_f64());
}

#[cfg(test)]
mod tests;
