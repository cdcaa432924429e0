//! Listening, and the life of a connection.
//!
//! HTTP/1.1 and HTTP/2 without TLS share a port: a connection's first bytes say which it speaks. A
//! connection on which nothing is asked for [`IDLE`] is closed; that clock stands still while a
//! request is answered, however long that takes, so nothing wakes an idle daemon but the one alarm
//! of each open connection.

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

/// How long a connection may be idle: longer than the proxies in front keep theirs, so that none
/// sends a request into a connection that is just being closed (spec).
const IDLE: Duration = Duration::from_secs(640);

/// The most connections at a time; others wait to be accepted.
const MAX_CONNECTIONS: usize = 4096;

/// How many connections may wait to be accepted.
const BACKLOG: u32 = 1024;

/// How much of a body may be under way in HTTP/2, in a stream and in all of a connection's: enough
/// for a fast line to a neighbour.
const STREAM_WINDOW: u32 = 1 << 20;
const CONNECTION_WINDOW: u32 = 4 << 20;

/// The largest frame of HTTP/2 that is taken. Uploads come in few large ones.
const MAX_FRAME: u32 = 256 << 10;

/// The most requests at a time on one HTTP/2 connection.
const MAX_STREAMS: u32 = 1024;

/// How long to wait after the system refused a connection for want of descriptors or memory.
const REFUSED: Duration = Duration::from_millis(50);

/// Where a caller is. Every request has one among its extensions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    /// A program in the sandbox, which came by the loopback.
    Inside,
    /// Anything else.
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

    /// Who sent a request.
    pub(crate) fn of<B>(request: &Request<B>) -> Self {
        let noted = request.extensions().get::<Self>();
        noted.copied().unwrap_or(Self::Outside)
    }
}

/// Something that answers requests.
pub(crate) trait Answers: Send + Sync + 'static {
    /// Answers one.
    fn answer(&self, request: Request<Incoming>) -> impl Future<Output = Answer> + Send;
}

/// Listens on a port: of one address, or of all addresses of both families, or of IPv4 where there
/// is no IPv6.
///
/// # Errors
/// When the port is taken.
pub(crate) fn listen(bind: Option<IpAddr>, port: u16) -> std::io::Result<TcpListener> {
    let on = |address: IpAddr| {
        let address = SocketAddr::new(address, port);
        let socket = match address {
            SocketAddr::V4(_) => TcpSocket::new_v4()?,
            // Takes IPv4 too, unless the system was told otherwise for all.
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

/// Serves whoever connects. Runs for ever.
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
    // Events are small and waited for.
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
        // How it ended is the client's affair.
        _ = connection => {}
        () = idle_for(idle, IDLE) => {}
    }
}

/// Waits until nothing has been asked for a time.
async fn idle_for(mut asked: watch::Receiver<usize>, time: Duration) {
    loop {
        if asked.wait_for(|count| *count == 0).await.is_err() {
            // The connection is gone with its last request; its own end is waited for.
            return std::future::pending().await;
        }
        if tokio::time::timeout(time, asked.changed()).await.is_err() {
            return;
        }
    }
}

/// Says that something is being answered, until it is dropped.
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

/// A body during which its connection is not idle.
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
    fn only_the_loopback_is_inside() {
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
    async fn the_clock_of_idleness_stands_still_while_something_is_answered() {
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
