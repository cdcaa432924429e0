//! Health, readiness and metrics over HTTP.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use metrics_exporter_prometheus::PrometheusHandle;
use parking_lot::RwLock;
use tokio::net::TcpListener;

/// Counts when the metrics are read.
pub type Gauges = Box<dyn Fn() -> String + Send + Sync>;

/// The state behind the endpoints.
#[derive(Clone)]
pub struct Endpoints {
    /// Whether the caches have listed everything, or another replica leads.
    pub ready: Arc<AtomicBool>,
    /// The metrics.
    pub metrics: PrometheusHandle,
    /// More metrics, counted at each scrape, in the text format of Prometheus.
    pub gauges: Arc<RwLock<Vec<Gauges>>>,
}

impl Endpoints {
    fn render(&self) -> String {
        let mut text = self.metrics.render();
        for gauges in self.gauges.read().iter() {
            text.push_str(&gauges());
        }
        text
    }

    fn answer(&self, request: &Request<Incoming>) -> Response<Full<Bytes>> {
        let (status, text) = match request.uri().path() {
            "/healthz" => (StatusCode::OK, "ok".to_owned()),
            "/readyz" if self.ready.load(Ordering::Relaxed) => (StatusCode::OK, "ok".to_owned()),
            "/readyz" => (StatusCode::SERVICE_UNAVAILABLE, "not synced yet".to_owned()),
            "/metrics" => (StatusCode::OK, self.render()),
            _ => (StatusCode::NOT_FOUND, "not found".to_owned()),
        };
        let mut response = Response::new(Full::new(Bytes::from(text)));
        *response.status_mut() = status;
        response
    }

    /// Serves the connections of a listener forever.
    pub async fn serve(self, listener: TcpListener) {
        loop {
            let stream = match listener.accept().await {
                Ok((stream, _)) => stream,
                Err(error) => {
                    // Too many open files, for example: a loop would not help.
                    tracing::warn!(%error, "cannot accept a connection");
                    tokio::time::sleep(std::time::Duration::from_millis(100)).await;
                    continue;
                }
            };
            let endpoints = self.clone();
            tokio::spawn(async move {
                let service = service_fn(move |request| {
                    let response = endpoints.answer(&request);
                    async move { Ok::<_, Infallible>(response) }
                });
                // A client that disconnects is no error.
                let _ = auto::Builder::new(TokioExecutor::new())
                    .serve_connection(TokioIo::new(stream), service)
                    .await;
            });
        }
    }
}
