//! Listeners and connections.
//!
//! HTTP/1.1 and HTTP/2 cleartext share a port: the first bytes of a connection select the protocol.
//! A connection without requests is closed after [`IDLE_TIMEOUT`]. Its idle timer is suspended while a
//! response is in progress, and is the only timer of an idle daemon.

use std::convert::Infallible;
use std::future::Future;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body::{Frame, SizeHint};
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{Semaphore, watch};

use crate::log::Log;
use crate::response::{Body, BodyError, HttpResponse};

/// Idle timeout of a connection. Longer than that of the proxies in front, so that no proxy sends a
/// request into a connection that is being closed (spec).
const IDLE_TIMEOUT: Duration = Duration::from_secs(640);

/// Limit of concurrent connections; more wait in the accept queue.
const MAX_CONNECTIONS: usize = 4096;

/// Length of the accept queue.
const BACKLOG: u32 = 1024;

/// HTTP/2 flow-control windows of a stream and of a connection, large enough to saturate a fast
/// local link.
const STREAM_WINDOW: u32 = 1 << 20;
const CONNECTION_WINDOW: u32 = 4 << 20;

/// Largest HTTP/2 frame accepted. Uploads use few large frames.
const MAX_FRAME: u32 = 256 << 10;

/// Limit of concurrent streams on one HTTP/2 connection.
const MAX_STREAMS: u32 = 1024;

/// Pause after `accept` fails for lack of descriptors or memory.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(50);

/// Network origin of a request. The server adds it to the extensions of every request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Peer {
    /// A program in the sandbox, connected over loopback.
    Inside,
    /// Any other peer.
    Outside,
}

impl Peer {
    fn at(address: IpAddr) -> Self {
        if address.to_canonical().is_loopback() {
            Self::Inside
        } else {
            Self::Outside
        }
    }

    /// The origin of a request.
    pub(crate) fn of<B>(request: &Request<B>) -> Self {
        let peer = request.extensions().get::<Self>();
        peer.copied().unwrap_or(Self::Outside)
    }
}

/// Handles HTTP requests.
pub(crate) trait RequestHandler: Send + Sync + 'static {
    /// Answers one request.
    fn handle(&self, request: Request<Incoming>) -> impl Future<Output = HttpResponse> + Send;
}

/// Listens on one address, or on all addresses of both families, or on IPv4 alone where IPv6 is
/// unavailable.
///
/// # Errors
/// If the port is in use.
pub(crate) fn listen(bind: Option<IpAddr>, port: u16) -> std::io::Result<TcpListener> {
    let on = |address: IpAddr| {
        let address = SocketAddr::new(address, port);
        let socket = match address {
            SocketAddr::V4(_) => TcpSocket::new_v4()?,
            // Dual-stack, unless the sysctl `bindv6only` is set.
            SocketAddr::V6(_) => TcpSocket::new_v6()?,
        };
        socket.set_reuseaddr(true)?;
        socket.bind(address)?;
        socket.listen(BACKLOG)
    };
    match bind {
        Some(address) => on(address),
        None => on(Ipv6Addr::UNSPECIFIED.into()).or_else(|_| on(Ipv4Addr::UNSPECIFIED.into())),
    }
}

/// Accepts connections forever.
pub(crate) async fn serve<A: RequestHandler>(listener: TcpListener, handler: Arc<A>, log: Log) {
    let connections = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        let Ok(permit) = Arc::clone(&connections).acquire_owned().await else {
            return;
        };
        match listener.accept().await {
            Ok((stream, address)) => {
                let peer = Peer::at(address.ip());
                let handler = Arc::clone(&handler);
                tokio::spawn(async move {
                    let _permit = permit;
                    connection(stream, peer, handler).await;
                });
            }
            Err(error) => {
                let entry = log.warn("envd", "connection not accepted");
                entry.with("error", error.to_string()).send();
                tokio::time::sleep(ACCEPT_RETRY_DELAY).await;
            }
        }
    }
}

async fn connection<A: RequestHandler>(stream: TcpStream, peer: Peer, handler: Arc<A>) {
    // Events are small and latency matters.
    let _ = stream.set_nodelay(true);
    let (active, idle) = watch::channel(0_usize);
    let active = Arc::new(active);
    let service = hyper::service::service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(peer);
        let active_request = ActiveRequest::new(&active);
        let handler = Arc::clone(&handler);
        async move {
            let answer = handler.handle(request).await;
            Ok::<_, Infallible>(tracked(answer, active_request))
        }
    });
    let mut builder = Builder::new(TokioExecutor::new());
    builder
        .http2()
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_frame_size(MAX_FRAME)
        .max_concurrent_streams(MAX_STREAMS);
    let connection = builder.serve_connection_with_upgrades(TokioIo::new(stream), service);
    tokio::select! {
        // Connection errors are the client's.
        _ = connection => {}
        () = idle_for(idle, IDLE_TIMEOUT) => {}
    }
}

/// Returns after a period without requests.
async fn idle_for(mut active: watch::Receiver<usize>, time: Duration) {
    loop {
        if active.wait_for(|count| *count == 0).await.is_err() {
            // The last request ended with the connection, whose own future completes.
            return std::future::pending().await;
        }
        if tokio::time::timeout(time, active.changed()).await.is_err() {
            return;
        }
    }
}

/// Marks a request as active until dropped.
struct ActiveRequest(Arc<watch::Sender<usize>>);

impl ActiveRequest {
    fn new(active: &Arc<watch::Sender<usize>>) -> Self {
        active.send_modify(|count| *count += 1);
        Self(Arc::clone(active))
    }
}

impl Drop for ActiveRequest {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}

/// A response body that keeps its connection active.
struct TrackedBody {
    body: Body,
    _active: ActiveRequest,
}

fn tracked(answer: HttpResponse, active_request: ActiveRequest) -> Response<TrackedBody> {
    answer.map(|body| TrackedBody {
        body,
        _active: active_request,
    })
}

impl http_body::Body for TrackedBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;

    #[test]
    fn only_loopback_peers_are_inside() {
        for (address, peer) in [
            ("127.0.0.1", Peer::Inside),
            ("127.8.9.1", Peer::Inside),
            ("::1", Peer::Inside),
            ("::ffff:127.0.0.1", Peer::Inside),
            ("10.11.0.1", Peer::Outside),
            ("::ffff:10.11.0.1", Peer::Outside),
            ("fe80::1", Peer::Outside),
        ] {
            assert_eq!(Peer::at(address.parse().unwrap()), peer, "{address}");
        }
        assert_eq!(Peer::of(&Request::new(())), Peer::Outside);
    }

    #[tokio::test(start_paused = true)]
    async fn the_idle_timer_is_suspended_during_a_response() {
        let (active, idle) = watch::channel(0_usize);
        let active = Arc::new(active);
        let start = Instant::now();
        let waiting = tokio::spawn(idle_for(idle, IDLE_TIMEOUT));
        tokio::time::sleep(IDLE_TIMEOUT / 2).await;
        let active_request = ActiveRequest::new(&active);
        tokio::time::sleep(IDLE_TIMEOUT * 3).await;
        assert!(!waiting.is_finished());
        drop(active_request);
        waiting.await.unwrap();
        assert_eq!(start.elapsed().as_secs(), (IDLE_TIMEOUT * 9 / 2).as_secs());
    }
}
