//! HTTP over dialled connections, for plain requests and for the generated clients.

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

/// What can go wrong while a body is read or written.
pub type BodyError = Box<dyn std::error::Error + Send + Sync>;

/// The body of a request.
pub type RequestBody = UnsyncBoxBody<Bytes, BodyError>;

/// How long an unused connection is kept. Shorter than the daemon's own patience, so that it does
/// not close one just as it is used again.
const IDLE_CONNECTION: Duration = Duration::from_secs(30);

/// Sends requests over connections that it keeps and uses again.
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

    /// The URL of a path, or the default one when they do not make one.
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

/// A [`Dial`] as hyper wants it.
#[derive(Clone)]
struct Connector(Arc<dyn Dial>);

impl tower_service::Service<Uri> for Connector {
    type Response = TokioIo<Dialled>;
    type Error = io::Error;
    type Future = Dialling;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        Dialling(self.0.dial())
    }
}

/// A connection being opened.
struct Dialling(DialFuture);

impl Future for Dialling {
    type Output = io::Result<TokioIo<Dialled>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let dialled = std::task::ready!(self.0.as_mut().poll(cx))?;
        Poll::Ready(Ok(TokioIo::new(Dialled(dialled))))
    }
}

/// An open connection.
struct Dialled(Box<dyn Duplex>);

impl Connection for Dialled {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

impl AsyncRead for Dialled {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.0).poll_read(cx, buf)
    }
}

impl AsyncWrite for Dialled {
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
