//! Listeners and connections.
//!
//! HTTP/1.1 and HTTP/2 cleartext share a port: the first bytes of a connection select the protocol.
//! A connection without requests is closed after [`IDLE`]. Its idle timer is suspended while a
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

use crate::answer::{Answer, Body, BodyError};
use crate::log::Log;

/// Idle timeout of a connection. Longer than that of the proxies in front, so that no proxy sends a
/// request into a connection that is being closed (spec).
const IDLE: Duration = Duration::from_secs(640);

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
const REFUSED: Duration = Duration::from_millis(50);

/// Network origin of a request. The server adds it to the extensions of every request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    /// A program in the sandbox, connected over loopback.
    Inside,
    /// Any other peer.
    Outside,
}

impl Side {
    fn at(address: IpAddr) -> Self {
        if address.to_canonical().is_loopback() {
            Self::Inside
        } else {
            Self::Outside
        }
    }

    /// The origin of a request.
    pub(crate) fn of<B>(request: &Request<B>) -> Self {
        let noted = request.extensions().get::<Self>();
        noted.copied().unwrap_or(Self::Outside)
    }
}

/// Handles HTTP requests.
pub(crate) trait Answers: Send + Sync + 'static {
    /// Answers one request.
    fn answer(&self, request: Request<Incoming>) -> impl Future<Output = Answer> + Send;
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
pub(crate) async fn serve<A: Answers>(listener: TcpListener, answers: Arc<A>, log: Log) {
    let room = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        let Ok(place) = Arc::clone(&room).acquire_owned().await else {
            return;
        };
        match listener.accept().await {
            Ok((stream, peer)) => {
                let side = Side::at(peer.ip());
                let answers = Arc::clone(&answers);
                tokio::spawn(async move {
                    let _place = place;
                    connection(stream, side, answers).await;
                });
            }
            Err(error) => {
                let entry = log.warn("envd", "connection not accepted");
                entry.with("error", error.to_string()).send();
                tokio::time::sleep(REFUSED).await;
            }
        }
    }
}

async fn connection<A: Answers>(stream: TcpStream, side: Side, answers: Arc<A>) {
    // Events are small and latency matters.
    let _ = stream.set_nodelay(true);
    let (asked, idle) = watch::channel(0_usize);
    let asked = Arc::new(asked);
    let service = hyper::service::service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(side);
        let busy = Busy::new(&asked);
        let answers = Arc::clone(&answers);
        async move {
            let answer = answers.answer(request).await;
            Ok::<_, Infallible>(watched(answer, busy))
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
        () = idle_for(idle, IDLE) => {}
    }
}

/// Returns after a period without requests.
async fn idle_for(mut asked: watch::Receiver<usize>, time: Duration) {
    loop {
        if asked.wait_for(|count| *count == 0).await.is_err() {
            // The last request ended with the connection, whose own future completes.
            return std::future::pending().await;
        }
        if tokio::time::timeout(time, asked.changed()).await.is_err() {
            return;
        }
    }
}

/// Marks a request as active until dropped.
struct Busy(Arc<watch::Sender<usize>>);

impl Busy {
    fn new(asked: &Arc<watch::Sender<usize>>) -> Self {
        asked.send_modify(|count| *count += 1);
        Self(Arc::clone(asked))
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}

/// A response body that keeps its connection active.
struct Watched {
    body: Body,
    _busy: Busy,
}

fn watched(answer: Answer, busy: Busy) -> Response<Watched> {
    answer.map(|body| Watched { body, _busy: busy })
}

impl http_body::Body for Watched {
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
        for (address, side) in [
            ("127.0.0.1", Side::Inside),
            ("127.8.9.1", Side::Inside),
            ("::1", Side::Inside),
            ("::ffff:127.0.0.1", Side::Inside),
            ("10.11.0.1", Side::Outside),
            ("::ffff:10.11.0.1", Side::Outside),
            ("fe80::1", Side::Outside),
        ] {
            assert_eq!(Side::at(address.parse().unwrap()), side, "{address}");
        }
        assert_eq!(Side::of(&Request::new(())), Side::Outside);
    }

    #[tokio::test(start_paused = true)]
    async fn the_idle_timer_is_suspended_during_a_response() {
        let (asked, idle) = watch::channel(0_usize);
        let asked = Arc::new(asked);
        let start = Instant::now();
        let waiting = tokio::spawn(idle_for(idle, IDLE));
        tokio::time::sleep(IDLE / 2).await;
        let busy = Busy::new(&asked);
        tokio::time::sleep(IDLE * 3).await;
        assert!(!waiting.is_finished());
        drop(busy);
        waiting.await.unwrap();
        assert_eq!(start.elapsed().as_secs(), (IDLE * 9 / 2).as_secs());
    }
}
