//! Connections to servers in sandboxes.

use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::Uri;
use http_body_util::combinators::UnsyncBoxBody;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use shoal_core::catalog::Route;
use shoal_protocol::ENVD_PORT;
use shoal_protocol::client::{Duplex, EnvdClient};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

/// A body on its way through.
pub(crate) type ForwardedBody = UnsyncBoxBody<Bytes, BoxError>;
/// Whatever a body failed with.
pub(crate) type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// How long a server may take to accept a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// The pauses while a port is not open: a server that was just started needs a moment.
const PAUSES: [Duration; 4] = [
    Duration::from_millis(100),
    Duration::from_millis(200),
    Duration::from_millis(300),
    Duration::from_millis(400),
];

/// How long, and how many, connections are kept for the next request.
const IDLE: Duration = Duration::from_secs(30);
const IDLE_MOST: usize = 128;

/// The clients of one run of a sandbox. What they keep open goes with them.
#[derive(Debug)]
pub(crate) struct Upstream {
    pub(crate) http1: Client<Connector, ForwardedBody>,
    pub(crate) http2: Client<Connector, ForwardedBody>,
}

impl Upstream {
    pub(crate) fn new(route: &Route) -> Self {
        let token = route
            .envd_access_token
            .as_ref()
            .map(|token| token.reveal().to_owned());
        let connector = Connector {
            address: route.address,
            token,
        };
        let builder = |http2: bool| {
            let mut builder = Client::builder(TokioExecutor::new());
            builder
                .pool_timer(TokioTimer::new())
                .timer(TokioTimer::new())
                .pool_idle_timeout(IDLE)
                .pool_max_idle_per_host(IDLE_MOST)
                .set_host(false)
                // As Go's proxies write them, for servers that look for `Host` and no other.
                .http1_title_case_headers(true)
                .http2_only(http2);
            builder.build(connector.clone())
        };
        Self {
            http1: builder(false),
            http2: builder(true),
        }
    }
}

/// The URI under which a client knows a port: one authority a port, for its pool.
pub(crate) fn uri_for(port: u16, asked: &Uri) -> Result<Uri, http::Error> {
    let path = asked
        .path_and_query()
        .map_or("/", http::uri::PathAndQuery::as_str);
    Uri::builder()
        .scheme("http")
        .authority(format!("sandbox:{port}"))
        .path_and_query(path)
        .build()
}

/// Opens connections into one sandbox.
#[derive(Debug, Clone)]
pub(crate) struct Connector {
    address: IpAddr,
    token: Option<String>,
}

/// Nothing listens on the port.
#[derive(Debug, thiserror::Error)]
#[error("port {0} is not open")]
pub(crate) struct PortClosed(pub(crate) u16);

impl Connector {
    async fn open(self, port: u16) -> Result<Stream, PortClosed> {
        let mut pauses = PAUSES.iter();
        loop {
            if let Some(stream) = self.attempt(port).await {
                return Ok(stream);
            }
            let Some(pause) = pauses.next() else {
                return Err(PortClosed(port));
            };
            metrics::counter!("shoal_gateway_connect_retries_total").increment(1);
            sleep(*pause).await;
        }
    }

    async fn attempt(&self, port: u16) -> Option<Stream> {
        let address = SocketAddr::new(self.address, port);
        match timeout(CONNECT_TIMEOUT, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => {
                // Many requests are small and waited for. A stream that refuses this works too.
                let _ = stream.set_nodelay(true);
                Some(Stream(TokioIo::new(Box::new(stream))))
            }
            // A server may listen on the sandbox's loopback only, which the daemon can reach.
            Ok(Err(error)) if error.kind() == io::ErrorKind::ConnectionRefused => {
                if port == ENVD_PORT {
                    None
                } else {
                    self.tunnel(port).await
                }
            }
            Ok(Err(_)) | Err(_) => None,
        }
    }

    async fn tunnel(&self, port: u16) -> Option<Stream> {
        let client = EnvdClient::at(SocketAddr::new(self.address, ENVD_PORT));
        let client = match &self.token {
            Some(token) => client.with_token_text(token).ok()?,
            None => client,
        };
        let stream = timeout(CONNECT_TIMEOUT, client.tunnel(port))
            .await
            .ok()?
            .ok()?;
        Some(Stream(TokioIo::new(Box::new(stream))))
    }
}

impl tower_service::Service<Uri> for Connector {
    type Response = Stream;
    type Error = PortClosed;
    type Future = Pin<Box<dyn Future<Output = Result<Stream, PortClosed>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), PortClosed>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        Box::pin(self.clone().open(uri.port_u16().unwrap_or(80)))
    }
}

/// A connection into a sandbox, direct or through its daemon.
pub(crate) struct Stream(TokioIo<Box<dyn Duplex>>);

impl Connection for Stream {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

impl Read for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buffer)
    }
}

impl Write for Stream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.0.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffers: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write_vectored(cx, buffers)
    }
}
