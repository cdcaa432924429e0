//! Opens connections into a sandbox.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::client::conn::{http1, http2};
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use shoal_core::auth::Token;
use shoal_core::ports::sessions::preview::{Forwarded, NotForwarded, PortForward};
use shoal_protocol::ENVD_PORT;
use shoal_protocol::client::{Duplex, EnvdClient};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};
use tokio_util::compat::FuturesAsyncReadCompatExt;

use super::{ForwardedBody, NotSent, Sender};
use crate::places::Place;

/// The timeout of a connect.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// The pauses between retries of a closed port: a starting server needs a moment.
const PAUSES: [Duration; 4] = [
    Duration::from_millis(100),
    Duration::from_millis(200),
    Duration::from_millis(300),
    Duration::from_millis(400),
];

/// The buffer for an answer that the client does not read, in bytes. An answer's head must fit.
const AHEAD: usize = 64 << 10;

/// The same for HTTP/2, for a stream and a connection. The link is inside this machine, so small
/// windows cost no speed.
const WINDOW: u32 = 256 << 10;
const CONNECTION_WINDOW: u32 = 1 << 20;

/// An open connection, and the guard that holds its resources.
type Opened = (Box<dyn Duplex>, Option<Box<dyn Send>>);

/// Opens connections into one machine.
#[derive(Debug, Clone)]
pub(crate) enum Connector {
    /// A sandbox, whose daemon reaches what listens on loopback only.
    Sandbox {
        /// Its address.
        address: IpAddr,
        /// The token of its daemon.
        token: Token,
    },
    /// An external machine.
    Forward(Arc<dyn PortForward>),
}

impl Connector {
    #[tracing::instrument(level = "debug", name = "gateway.connect", skip_all)]
    pub(super) async fn open(
        &self,
        port: u16,
        place: Arc<Place<Sender>>,
    ) -> Result<Stream, NotSent> {
        let mut pauses = PAUSES.iter();
        loop {
            if let Some((inner, guard)) = self.attempt(port).await? {
                return Ok(Stream {
                    inner: TokioIo::new(inner),
                    _guard: guard,
                    _place: place,
                });
            }
            let pause = pauses.next().ok_or(NotSent::PortClosed)?;
            metrics::counter!("shoal_gateway_connect_retries_total").increment(1);
            sleep(*pause).await;
        }
    }

    async fn attempt(&self, port: u16) -> Result<Option<Opened>, NotSent> {
        match self {
            Self::Sandbox { address, token } => {
                let stream = attempt(*address, token, port).await?;
                Ok(stream.map(|stream| (stream, None)))
            }
            Self::Forward(ports) => match ports.open(port).await {
                Ok(Forwarded { stream, guard }) => {
                    Ok(Some((Box::new(stream.compat()), Some(guard))))
                }
                Err(NotForwarded::PortClosed) => Ok(None),
                Err(NotForwarded::Full(_)) => Err(NotSent::Exhausted),
                Err(NotForwarded::Failed(reason)) => {
                    tracing::info!(reason, "cannot reach a port of an external machine");
                    Err(NotSent::Broken)
                }
            },
        }
    }
}

async fn attempt(
    address: IpAddr,
    token: &Token,
    port: u16,
) -> Result<Option<Box<dyn Duplex>>, NotSent> {
    match timeout(CONNECT_TIMEOUT, TcpStream::connect((address, port))).await {
        Ok(Ok(stream)) => {
            // Many requests are small and clients wait for them. Failing is harmless.
            let _ = stream.set_nodelay(true);
            Ok(Some(Box::new(stream)))
        }
        // The server may listen on the sandbox's loopback only, which the daemon reaches.
        Ok(Err(error)) if error.kind() == io::ErrorKind::ConnectionRefused => {
            Ok(if port == ENVD_PORT {
                None
            } else {
                tunnel(address, token, port).await
            })
        }
        Ok(Err(error)) if is_exhausted(&error) => {
            tracing::warn!(%error, "cannot open a connection into a sandbox");
            Err(NotSent::Exhausted)
        }
        Ok(Err(_)) | Err(_) => Ok(None),
    }
}

async fn tunnel(address: IpAddr, token: &Token, port: u16) -> Option<Box<dyn Duplex>> {
    let client = EnvdClient::at(SocketAddr::new(address, ENVD_PORT));
    let client = client.with_token_text(token.reveal()).ok()?;
    let stream = timeout(CONNECT_TIMEOUT, client.tunnel(port))
        .await
        .ok()?
        .ok()?;
    Some(Box::new(stream))
}

/// Whether the system is out of descriptors or memory.
fn is_exhausted(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let exhausted = [Errno::MFILE, Errno::NFILE, Errno::NOMEM, Errno::NOBUFS];
    let number = error.raw_os_error();
    exhausted
        .iter()
        .any(|errno| number == Some(errno.raw_os_error()))
}

/// A connection into a machine, direct or through something on it.
pub(super) struct Stream {
    inner: TokioIo<Box<dyn Duplex>>,
    _guard: Option<Box<dyn Send>>,
    _place: Arc<Place<Sender>>,
}

impl Read for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_read(cx, buffer)
    }
}

impl Write for Stream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffers: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write_vectored(cx, buffers)
    }
}

/// Starts HTTP/1.1 on a connection.
pub(super) async fn connect_http1(
    stream: Stream,
) -> Result<http1::SendRequest<ForwardedBody>, NotSent> {
    let (sender, connection) = http1::Builder::new()
        // As Go's proxies do, for servers that match `Host` case-sensitively.
        .title_case_headers(true)
        .max_buf_size(AHEAD)
        .handshake(stream)
        .await
        .map_err(|_| NotSent::Broken)?;
    // Errors of the connection reach its requests.
    tokio::spawn(async move { connection.with_upgrades().await.unwrap_or_default() });
    Ok(sender)
}

/// Starts HTTP/2 on a connection.
pub(super) async fn connect_http2(
    stream: Stream,
) -> Result<http2::SendRequest<ForwardedBody>, NotSent> {
    let (sender, connection) = http2::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .initial_stream_window_size(WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_send_buf_size(AHEAD)
        .handshake(stream)
        .await
        .map_err(|_| NotSent::Broken)?;
    tokio::spawn(async move { connection.await.unwrap_or_default() });
    Ok(sender)
}
