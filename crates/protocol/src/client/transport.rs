//! HTTP over stream connections, for plain requests and the generated clients.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use connectrpc::client::{ClientBody, ClientTransport};
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{Request, Response, Uri};
use http_body_util::BodyExt;
use http_body_util::combinators::UnsyncBoxBody;
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::{ClientError, Dial, DialFuture, Duplex};

/// Error while a body is transferred.
pub type BodyError = Box<dyn std::error::Error + Send + Sync>;

/// Body of a request.
pub type RequestBody = UnsyncBoxBody<Bytes, BodyError>;

/// Idle timeout of pooled connections. Shorter than the daemon's, so that it does not close a
/// connection just as it is reused.
const IDLE_CONNECTION: Duration = Duration::from_secs(30);

/// Sends requests over pooled connections.
#[derive(Clone)]
pub struct Transport {
    client: Client<Connector, RequestBody>,
    authority: Option<Authority>,
}

impl Transport {
    pub(super) fn new(dial: Arc<dyn Dial>, authority: &str) -> Self {
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_CONNECTION)
            .build(Connector(dial));
        Self {
            client,
            authority: authority.parse().ok(),
        }
    }

    /// The URL of a path; the default URL if invalid.
    pub(super) fn uri(&self, path_and_query: &str) -> Uri {
        let build = || {
            let mut parts = http::uri::Parts::default();
            parts.scheme = Some(Scheme::HTTP);
            parts.authority = Some(self.authority.clone()?);
            parts.path_and_query = Some(PathAndQuery::try_from(path_and_query).ok()?);
            Uri::from_parts(parts).ok()
        };
        build().unwrap_or_default()
    }

    pub(super) async fn send_request(
        &self,
        request: Request<RequestBody>,
    ) -> Result<Response<Incoming>, ClientError> {
        self.client.request(request).await.map_err(|error| {
            if error.is_connect() {
                ClientError::Unreachable(error.into())
            } else {
                ClientError::Interrupted(error.into())
            }
        })
    }
}

impl ClientTransport for Transport {
    type ResponseBody = Incoming;
    type Error = hyper_util::client::legacy::Error;

    fn send(
        &self,
        request: Request<ClientBody>,
    ) -> Pin<Box<dyn Future<Output = Result<Response<Incoming>, Self::Error>> + Send>> {
        let request = request.map(|body| RequestBody::new(body.map_err(BodyError::from)));
        Box::pin(self.client.request(request))
    }
}

/// Adapts a [`Dial`] to hyper.
#[derive(Clone)]
struct Connector(Arc<dyn Dial>);

impl tower_service::Service<Uri> for Connector {
    type Response = TokioIo<DialedStream>;
    type Error = io::Error;
    type Future = Connecting;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        Connecting(self.0.dial())
    }
}

/// A connection attempt.
struct Connecting(DialFuture);

impl Future for Connecting {
    type Output = io::Result<TokioIo<DialedStream>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let stream = std::task::ready!(self.0.as_mut().poll(cx))?;
        Poll::Ready(Ok(TokioIo::new(DialedStream(stream))))
    }
}

/// An open connection.
struct DialedStream(Box<dyn Duplex>);

impl Connection for DialedStream {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

impl AsyncRead for DialedStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.0).poll_read(cx, buf)
    }
}

impl AsyncWrite for DialedStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut *self.0).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.0).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut *self.0).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.0.is_write_vectored()
    }
}
