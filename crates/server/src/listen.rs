//! One listener for everything: a request that names a sandbox goes to the gateway, every other
//! to the API.

mod opening;
mod turn;
mod unread;

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
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
use shoal_api::ClientAddress;
use shoal_core::audit::AuditLog;
use shoal_gateway::{Client, Gateway};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, mpsc, watch};
use tokio_rustls::TlsAcceptor;

use self::opening::Opening;
use self::turn::{Rests, Turn};
use self::unread::Unread;
use crate::audit;

/// How long a client may take to send the head of a request. The same as E2B's.
const HEADER_TIMEOUT: Duration = Duration::from_secs(5);

/// How long a connection is kept between two requests: longer than clients keep theirs, of whom the
/// most patient wait 90 s, so that it is they who close.
const IDLE_TIMEOUT: Duration = Duration::from_secs(100);

/// How long a connection of HTTP/2 is kept without a request. Some clients keep theirs for 300 s.
const IDLE_TIMEOUT_HTTP2: Duration = Duration::from_secs(600);

/// How often a client of HTTP/2 is asked whether it is still there, and how long it may take to
/// say so: clients that read only while they wait for an answer do not see the question before.
const ALIVE_INTERVAL: Duration = Duration::from_secs(30);
const ALIVE_TIMEOUT: Duration = IDLE_TIMEOUT_HTTP2;

/// How long a connection is kept without a request when others wait for its place, and how often
/// those are looked for.
const CROWDED_TIMEOUT: Duration = Duration::from_secs(5);
const CROWDED_LOOK: Duration = Duration::from_secs(1);

const RESTS: Rests = Rests {
    first: HEADER_TIMEOUT,
    idle: IDLE_TIMEOUT_HTTP2,
    crowded: CROWDED_TIMEOUT,
};

/// How long a client of HTTP/2 has to learn that its connection ends.
const FAREWELL: Duration = Duration::from_secs(1);

/// How much is kept of an answer that a client does not read, in bytes, for each request: beside it
/// there is as much on the way from the sandbox. The head of a request has to fit, too.
const AHEAD: usize = 64 << 10;

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
    audit: Arc<dyn AuditLog>,
}

impl Dispatch {
    pub(crate) fn new(gateway: Gateway, api: Router, audit: Arc<dyn AuditLog>) -> Self {
        Self {
            gateway,
            api,
            audit,
        }
    }

    async fn answer(self, request: Request<Unread<Incoming>>, client: Client) -> Response<Body> {
        match self.gateway.target(&request) {
            Ok(Some(target)) => {
                let sandbox = target.sandbox.to_string();
                let answer = self.gateway.proxy(request, target, client).await;
                audit::refused(self.audit.as_ref(), &answer, &sandbox, client.address);
                answer.map(Body::new)
            }
            Ok(None) => match self.gateway.door(&request) {
                Ok(Some(door)) => {
                    let name = door.name().to_owned();
                    let answer = self.gateway.enter(request, door, client).await;
                    audit::refused(self.audit.as_ref(), &answer, &name, client.address);
                    answer.map(Body::new)
                }
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
        if let Some(address) = client.address {
            request.extensions_mut().insert(ClientAddress(address));
        }
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
/// finish. A client that comes when all places are taken waits to be accepted, and those that rest
/// make room.
pub(crate) async fn serve(
    listener: TcpListener,
    tls: Option<TlsAcceptor>,
    dispatch: Dispatch,
    connections: usize,
    mut ending: watch::Receiver<bool>,
) {
    let places = Arc::new(Semaphore::new(connections));
    // Closed when the last connection has ended.
    let (open, mut all_ended) = mpsc::channel::<Infallible>(1);
    let scarce = Arc::new(Notify::new());
    let next = async || {
        let place = place(&places, &scarce).await;
        let accepted = listener.accept().await;
        accepted.map(|accepted| (accepted, place))
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
                    ending: ending.clone(),
                    scarce: scarce.clone(),
                    place,
                };
                let open = open.clone();
                tokio::spawn(async move {
                    connection.serve(stream).await;
                    drop(open);
                });
            }
            Err(error) => {
                tracing::warn!(%error, "a connection cannot be accepted");
                tokio::time::sleep(ACCEPT_AGAIN).await;
            }
        }
    }
    drop(listener);
    drop(open);
    if tokio::time::timeout(GRACE, all_ended.recv()).await.is_err() {
        tracing::info!("some requests were cut off");
    }
}

/// A place for one more connection.
async fn place(places: &Arc<Semaphore>, scarce: &Notify) -> Option<OwnedSemaphorePermit> {
    let mut next = pin!(places.clone().acquire_owned());
    loop {
        tokio::select! {
            biased;
            // The semaphore is never closed.
            place = &mut next => return place.ok(),
            () = tokio::time::sleep(CROWDED_LOOK) => {}
        }
        scarce.notify_waiters();
    }
}

struct Connection {
    from: SocketAddr,
    dispatch: Dispatch,
    tls: Option<TlsAcceptor>,
    ending: watch::Receiver<bool>,
    /// Says that others wait for a place.
    scarce: Arc<Notify>,
    /// Its place among all connections, which a WebSocket keeps for as long as it lives.
    place: Option<OwnedSemaphorePermit>,
}

impl Connection {
    async fn serve(self, stream: TcpStream) {
        let client = Client {
            address: Some(self.from.ip()),
            tls: self.tls.is_some(),
        };
        let dispatch = self.dispatch;
        let turn = Turn::default();
        let answer = move |request| dispatch.clone().answer(request, client);
        let service = taking_turns(turn.clone(), answer);
        let Some(acceptor) = self.tls else {
            let stream = Opening::new(stream, HEADER_TIMEOUT, turn.clone(), self.place);
            return serve_http(stream, turn, service, self.ending, &self.scarce).await;
        };
        match tokio::time::timeout(HANDSHAKE_TIMEOUT, acceptor.accept(stream)).await {
            Ok(Ok(stream)) => {
                let stream = Opening::new(stream, HEADER_TIMEOUT, turn.clone(), self.place);
                serve_http(stream, turn, service, self.ending, &self.scarce).await;
            }
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
        let exchange = turn.answering(request.method());
        let answer = answer(unread::finish(request, exchange.clone()));
        async move { Ok(exchange.until_sent(answer.await)) }
    })
}

async fn serve_http<T, S>(
    stream: Opening<T>,
    turn: Turn,
    service: S,
    mut ending: watch::Receiver<bool>,
    scarce: &Notify,
) where
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    S: Service<Request<Incoming>, Response = Response<Body>, Error = Infallible> + Send + 'static,
    S::Future: Send,
{
    let mut builder = Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .max_buf_size(AHEAD)
        .header_read_timeout(IDLE_TIMEOUT);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_send_buf_size(AHEAD)
        .keep_alive_interval(ALIVE_INTERVAL)
        .keep_alive_timeout(ALIVE_TIMEOUT)
        .enable_connect_protocol();
    let connection = builder.serve_connection_with_upgrades(TokioIo::new(stream), service);
    let mut connection = pin!(connection);
    let told_to_end = async {
        let _ = ending.wait_for(|ending| *ending).await;
    };
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = told_to_end => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
        () = turn.overstayed(RESTS, scarce) => {
            connection.as_mut().graceful_shutdown();
            let farewell = tokio::time::timeout(FAREWELL, connection).await;
            farewell.unwrap_or(Ok(()))
        }
    };
    // How a connection ends is the client's affair.
    if let Err(error) = ended {
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
mod tests;
