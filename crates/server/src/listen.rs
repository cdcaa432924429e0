//! One listener for everything: a request that names a sandbox goes to the gateway, every other
//! to the API.

mod opening;
mod unread;

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use http::uri::Scheme;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::GracefulShutdown;
use shoal_gateway::{Client, Gateway};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio_rustls::TlsAcceptor;

use self::opening::{Opening, Turn};
use self::unread::Unread;

/// How long a client may take to send the head of a request. The same as E2B's.
const HEADER_TIMEOUT: Duration = Duration::from_secs(5);

/// How long a connection is kept between two requests: longer than clients keep theirs, of whom the
/// most patient wait 90 s, so that it is they who close.
const IDLE_TIMEOUT: Duration = Duration::from_secs(100);

/// How often a client of HTTP/2 is asked whether it is still there, and how long it may take to
/// say so.
const ALIVE_INTERVAL: Duration = Duration::from_secs(30);
const ALIVE_TIMEOUT: Duration = Duration::from_secs(20);

/// How long a client may take over the handshake of TLS.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// How long requests may go on after the server was told to end.
const GRACE: Duration = Duration::from_secs(10);

/// How long to wait after the system refused a connection: it has run out of something.
const ACCEPT_AGAIN: Duration = Duration::from_millis(50);

/// How long a start waits for its address: a server that was killed lets go of it with its last
/// child, which may be just about to become an OCI runtime.
const BIND_PATIENCE: Duration = Duration::from_secs(2);
const BIND_RETRY: Duration = Duration::from_millis(20);

/// What answers.
#[derive(Clone)]
pub(crate) struct Dispatch {
    gateway: Gateway,
    api: Router,
}

impl Dispatch {
    pub(crate) fn new(gateway: Gateway, api: Router) -> Self {
        Self { gateway, api }
    }

    async fn answer(self, request: Request<Unread<Incoming>>, client: Client) -> Response<Body> {
        match self.gateway.target(&request) {
            Ok(Some(target)) => self
                .gateway
                .proxy(request, target, client)
                .await
                .map(Body::new),
            Ok(None) => match self.gateway.door(&request) {
                Ok(Some(door)) => self
                    .gateway
                    .enter(request, door, client)
                    .await
                    .map(Body::new),
                Ok(None) => self.call(request.map(Body::new), client).await,
                Err(invalid) => self.gateway.refuse(invalid).map(Body::new),
            },
            Err(invalid) => self.gateway.refuse(invalid).map(Body::new),
        }
    }

    /// A call of the API.
    async fn call(self, mut request: Request<Body>, client: Client) -> Response<Body> {
        // For addresses that are told to clients.
        let scheme = if client.tls {
            Scheme::HTTPS
        } else {
            Scheme::HTTP
        };
        request.extensions_mut().insert(scheme);
        let call = tower_service_call(self.api, request);
        call.await.unwrap_or_else(|never| match never {})
    }
}

async fn tower_service_call(
    mut api: Router,
    request: Request<Body>,
) -> Result<Response<Body>, Infallible> {
    // A router is always ready.
    tower_service::Service::call(&mut api, request).await
}

/// Serves at most `connections` at once until `ending` says so, and then lets what is under way
/// finish. Who comes when all places are taken waits to be accepted.
pub(crate) async fn serve(
    listener: TcpListener,
    tls: Option<TlsAcceptor>,
    dispatch: Dispatch,
    connections: usize,
    mut ending: watch::Receiver<bool>,
) {
    let graceful = Arc::new(GracefulShutdown::new());
    let places = Arc::new(Semaphore::new(connections));
    let next = async || {
        let place = places.clone().acquire_owned().await;
        let accepted = listener.accept().await;
        // The semaphore is never closed.
        accepted.map(|accepted| (accepted, place.ok()))
    };
    loop {
        let accepted = tokio::select! {
            accepted = next() => accepted,
            _ = ending.wait_for(|ending| *ending) => break,
        };
        match accepted {
            Ok(((stream, from), place)) => {
                // Answers are small and waited for. A stream that refuses this works too.
                let _ = stream.set_nodelay(true);
                let connection = Connection {
                    from,
                    dispatch: dispatch.clone(),
                    tls: tls.clone(),
                };
                let graceful = graceful.clone();
                tokio::spawn(async move {
                    connection.serve(stream, graceful).await;
                    drop(place);
                });
            }
            Err(error) => {
                tracing::warn!(%error, "a connection cannot be accepted");
                tokio::time::sleep(ACCEPT_AGAIN).await;
            }
        }
    }
    drop(listener);
    if let Some(graceful) = Arc::into_inner(graceful)
        && tokio::time::timeout(GRACE, graceful.shutdown())
            .await
            .is_err()
    {
        tracing::info!("some requests were cut off");
    }
}

struct Connection {
    from: SocketAddr,
    dispatch: Dispatch,
    tls: Option<TlsAcceptor>,
}

impl Connection {
    async fn serve(self, stream: TcpStream, graceful: Arc<GracefulShutdown>) {
        let client = Client {
            address: Some(self.from.ip()),
            tls: self.tls.is_some(),
        };
        let dispatch = self.dispatch;
        let turn = Turn::default();
        let answer = move |request| dispatch.clone().answer(request, client);
        let service = taking_turns(turn.clone(), answer);
        let Some(acceptor) = self.tls else {
            return serve_http(stream, turn, service, &graceful).await;
        };
        match tokio::time::timeout(HANDSHAKE_TIMEOUT, acceptor.accept(stream)).await {
            Ok(Ok(stream)) => serve_http(stream, turn, service, &graceful).await,
            Ok(Err(error)) => tracing::debug!(%error, "a handshake failed"),
            Err(_) => tracing::debug!("a handshake took too long"),
        }
    }
}

/// Answers requests, and says on whom the connection waits meanwhile.
fn taking_turns<A, F>(
    turn: Turn,
    answer: A,
) -> impl Service<
    Request<Incoming>,
    Response = Response<Body>,
    Error = Infallible,
    Future: Future<Output = Result<Response<Body>, Infallible>> + Send,
> + Send
where
    A: Fn(Request<Unread<Incoming>>) -> F + Send,
    F: Future<Output = Response<Body>> + Send,
{
    service_fn(move |request| {
        let exchange = turn.answering();
        let answer = answer(unread::finish(request, exchange.clone()));
        async move { Ok(exchange.until_sent(answer.await)) }
    })
}

async fn serve_http<T, S>(stream: T, turn: Turn, service: S, graceful: &GracefulShutdown)
where
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    S: Service<Request<Incoming>, Response = Response<Body>, Error = Infallible> + Send + 'static,
    S::Future: Send,
{
    let mut builder = Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(IDLE_TIMEOUT);
    builder
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(ALIVE_INTERVAL)
        .keep_alive_timeout(ALIVE_TIMEOUT)
        .enable_connect_protocol();
    let stream = Opening::new(stream, HEADER_TIMEOUT, turn);
    let connection = builder.serve_connection_with_upgrades(TokioIo::new(stream), service);
    // How a connection ends is the client's affair.
    if let Err(error) = graceful.watch(connection.into_owned()).await {
        tracing::trace!(%error, "a connection broke");
    }
}

/// Binds the address of the listener.
///
/// # Errors
/// Says what to do when the port is taken.
pub(crate) async fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let end = Instant::now() + BIND_PATIENCE;
    let bound = loop {
        match TcpListener::bind(address).await {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && Instant::now() < end => {
                tokio::time::sleep(BIND_RETRY).await;
            }
            bound => break bound,
        }
    };
    bound.map_err(|error| match error.kind() {
        io::ErrorKind::AddrInUse => io::Error::new(
            error.kind(),
            format!("{address} is taken by another program: stop it, or choose --listen"),
        ),
        io::ErrorKind::AddrNotAvailable => io::Error::new(
            error.kind(),
            format!("{address} is not an address of this machine: choose --listen"),
        ),
        io::ErrorKind::PermissionDenied => io::Error::new(
            error.kind(),
            format!("{address} may only be listened on by root: choose a port above 1023"),
        ),
        _ => error,
    })
}

#[cfg(test)]
mod tests {
    use http::StatusCode;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
    use tokio::time::sleep;

    use super::*;

    /// A server that refuses everything by its head.
    fn refusing() -> DuplexStream {
        let (client, server) = duplex(1024);
        let turn = Turn::default();
        let service = taking_turns(turn.clone(), async |request| {
            drop(request);
            let mut answer = Response::new(Body::from("no"));
            *answer.status_mut() = StatusCode::NOT_FOUND;
            answer
        });
        tokio::spawn(async move {
            serve_http(server, turn, service, &GracefulShutdown::new()).await;
        });
        client
    }

    async fn answer(client: &mut DuplexStream) {
        let mut seen = Vec::new();
        while !seen.ends_with(b"\r\n\r\nno") {
            assert_ne!(client.read_buf(&mut seen).await.unwrap(), 0, "it closed");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_rest_of_a_body_that_nobody_reads_begins_no_head() {
        let mut client = refusing();
        for _ in 0..3 {
            let head = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5000\r\n\r\n";
            client.write_all(head).await.unwrap();
            answer(&mut client).await;
            client.write_all(&[b'x'; 5000]).await.unwrap();
            // A client that rests between two requests, and longer than a head may take.
            sleep(HEADER_TIMEOUT * 4).await;
        }
        // A head that is begun is waited for no longer than that.
        client.write_all(b"POST / HT").await.unwrap();
        let closed = async { client.read_u8().await.unwrap_err() };
        let closed = tokio::time::timeout(HEADER_TIMEOUT * 2, closed).await;
        assert_eq!(closed.unwrap().kind(), io::ErrorKind::UnexpectedEof);
    }
}
