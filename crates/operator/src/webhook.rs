//! The conversion webhook: HTTPS, with certificates that the operator creates and rotates.

mod certificates;
mod review;

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use parking_lot::RwLock;
use rustls::ServerConfig;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

pub(crate) use self::certificates::Certificates;
use crate::args::any_address;

/// The largest list of objects that is converted at once. The API server's caches ask for whole kinds.
const LARGEST_BODY: usize = 256 << 20;
/// Larger bodies are converted on a thread of their own.
const LARGE_BODY: usize = 64 << 10;
/// How long a client may take for the TLS handshake.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// The certificate in use. A rotation replaces it; connections keep theirs.
pub(crate) type Served = Arc<RwLock<Arc<ServerConfig>>>;

/// The webhook's port, on all addresses.
///
/// # Errors
/// When the port cannot be bound.
pub(crate) async fn bind(port: u16) -> std::io::Result<TcpListener> {
    TcpListener::bind((any_address(), port)).await
}

/// Serves the connections of a listener forever.
pub(crate) async fn serve(listener: TcpListener, served: Served) {
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "webhook: cannot accept a connection");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let acceptor = TlsAcceptor::from(served.read().clone());
        tokio::spawn(async move {
            let stream = match tokio::time::timeout(HANDSHAKE, acceptor.accept(stream)).await {
                Ok(Ok(stream)) => stream,
                Ok(Err(error)) => {
                    tracing::debug!(%error, "webhook: the handshake failed");
                    return;
                }
                Err(_) => return,
            };
            // A client that disconnects is no error.
            let _ = auto::Builder::new(TokioExecutor::new())
                .serve_connection(TokioIo::new(stream), service_fn(answer))
                .await;
        });
    }
}

async fn answer(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let text = |status: StatusCode, text: String| {
        let mut response = Response::new(Full::new(Bytes::from(text)));
        *response.status_mut() = status;
        response
    };
    if request.method() != Method::POST || request.uri().path() != "/convert" {
        return Ok(text(StatusCode::NOT_FOUND, "POST /convert".to_owned()));
    }
    let body = match Limited::new(request.into_body(), LARGEST_BODY)
        .collect()
        .await
    {
        Ok(body) => body.to_bytes(),
        Err(error) => return Ok(text(StatusCode::BAD_REQUEST, error.to_string())),
    };
    let converted = if body.len() > LARGE_BODY {
        tokio::task::spawn_blocking(move || review::answer(&body))
            .await
            .map_err(|error| error.to_string())
    } else {
        Ok(review::answer(&body))
    };
    Ok(match converted.and_then(|converted| converted) {
        Ok(json) => {
            let mut response = Response::new(Full::new(Bytes::from(json)));
            let json = http::HeaderValue::from_static("application/json");
            response
                .headers_mut()
                .insert(http::header::CONTENT_TYPE, json);
            response
        }
        Err(error) => text(StatusCode::BAD_REQUEST, error),
    })
}
