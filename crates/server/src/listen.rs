//! The listener: connections, their limits and timeouts, and the end of the server.

mod conn_phase;
mod dispatch;
mod drain_body;
mod head_timeout;

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::Body;
use http::header::CONNECTION;
use http::{HeaderValue, Request, Response, Version};
use hyper::body::Incoming;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use shoal_gateway::Client;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, mpsc};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use self::conn_phase::{ConnPhase, IdleTimeouts};
pub(crate) use self::dispatch::Dispatch;
pub(crate) use self::drain_body::DrainBody;
use self::head_timeout::HeadTimeout;

/// The timeout of a request's head. The same as E2B's.
const HEADER_TIMEOUT: Duration = Duration::from_secs(5);

/// The idle timeout of HTTP/1.1: longer than that of clients (up to 90 s), so that clients close first.
const IDLE_TIMEOUT: Duration = Duration::from_secs(100);

/// The idle timeout of HTTP/2. Some clients keep connections for 300 s.
const IDLE_TIMEOUT_HTTP2: Duration = Duration::from_secs(600);

/// Interval and timeout of HTTP/2 pings. The timeout is long, because some clients read only while they
/// wait for an answer.
const ALIVE_INTERVAL: Duration = Duration::from_secs(30);
const ALIVE_TIMEOUT: Duration = IDLE_TIMEOUT_HTTP2;

/// The idle timeout while other clients wait for a connection, and the interval of that check.
const CROWDED_TIMEOUT: Duration = Duration::from_secs(5);
const CROWDED_LOOK: Duration = Duration::from_secs(1);

const IDLE: IdleTimeouts = IdleTimeouts {
    first: HEADER_TIMEOUT,
    idle: IDLE_TIMEOUT_HTTP2,
    crowded: CROWDED_TIMEOUT,
};

/// The time for an HTTP/2 client to see the GOAWAY.
const FAREWELL: Duration = Duration::from_secs(1);

/// The buffer of an answer that a client does not read, in bytes, for each request. The sandbox's side
/// buffers as much again. A request's head must fit too.
const AHEAD: usize = 64 << 10;

/// The timeout of the TLS handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// How long requests and other work may continue after a stop.
const GRACE: Duration = Duration::from_secs(10);

/// The pause after a failed accept: the system ran out of a resource.
const ACCEPT_AGAIN: Duration = Duration::from_millis(50);

/// How long a start waits for its address. A killed server's child may hold it until it executes an OCI
/// runtime.
const BIND_TIMEOUT: Duration = Duration::from_secs(2);
const BIND_RETRY: Duration = Duration::from_millis(20);

/// The services of a listener.
pub(crate) trait Answer: Clone + Send + Sync + 'static {
    /// Answers a request.
    fn answer(
        self,
        request: Request<DrainBody<Incoming>>,
        client: Client,
    ) -> impl Future<Output = Response<Body>> + Send;

    /// Cancelled when the server stops: requests are refused from then on.
    fn stopping(&self) -> &CancellationToken;
}

/// Closes the connection after a refusal that a stop caused. HTTP/2 has its own way.
pub(crate) fn close_after(mut refusal: Response<Body>, version: Version) -> Response<Body> {
    if version < Version::HTTP_2 {
        let headers = refusal.headers_mut();
        headers.insert(CONNECTION, HeaderValue::from_static("close"));
    }
    refusal
}

/// Serves at most `connections` connections until the dispatch stops, then drains: requests under way
/// and then `work` get the time to end, while new requests are refused. When all connections are in
/// use, new clients wait to be accepted, and idle connections are closed for them.
pub(crate) async fn serve<A: Answer>(
    listener: TcpListener,
    tls: Option<TlsAcceptor>,
    dispatch: A,
    connections: usize,
    work: impl Future<Output = ()>,
) {
    let stopping = dispatch.stopping().clone();
    let places = Arc::new(Semaphore::new(connections));
    // Closes when the last connection ends.
    let (open, mut all_ended) = mpsc::channel::<Infallible>(1);
    let crowding = Arc::new(Notify::new());
    let connect = |from, place, ending| Connection {
        from,
        dispatch: dispatch.clone(),
        tls: tls.clone(),
        ending,
        crowding: crowding.clone(),
        place,
    };
    let next = async || loop {
        let place = place(&places, &crowding).await;
        match listener.accept().await {
            Ok((stream, from)) => {
                // Answers are small and clients wait for them. Failing is harmless.
                let _ = stream.set_nodelay(true);
                break (stream, from, place);
            }
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(ACCEPT_AGAIN).await;
            }
        }
    };
    loop {
        let (stream, from, place) = tokio::select! {
            accepted = next() => accepted,
            () = stopping.cancelled() => break,
        };
        let connection = connect(from, place, stopping.clone());
        let open = open.clone();
        tokio::spawn(async move {
            connection.serve(stream).await;
            drop(open);
        });
    }
    drop(open);
    let drained = async {
        all_ended.recv().await;
        work.await;
    };
    let refused = async {
        loop {
            let (stream, from, place) = next().await;
            // It stays open until its request was refused.
            let connection = connect(from, place, CancellationToken::new());
            tokio::spawn(connection.serve(stream));
        }
    };
    tokio::select! {
        drained = tokio::time::timeout(GRACE, drained) => if drained.is_err() {
            tracing::warn!("some work was cut off: the next start recovers from that");
        },
        () = refused => {}
    }
}

/// Waits for a free connection slot.
async fn place(places: &Arc<Semaphore>, crowding: &Notify) -> Option<OwnedSemaphorePermit> {
    let mut next = pin!(places.clone().acquire_owned());
    loop {
        tokio::select! {
            biased;
            // The semaphore is never closed.
            place = &mut next => return place.ok(),
            () = tokio::time::sleep(CROWDED_LOOK) => {}
        }
        crowding.notify_waiters();
    }
}

struct Connection<A> {
    from: SocketAddr,
    dispatch: A,
    tls: Option<TlsAcceptor>,
    /// Fires when it should end after its current request.
    ending: CancellationToken,
    /// Notified when other clients wait for a connection.
    crowding: Arc<Notify>,
    /// Its slot among all connections. A WebSocket keeps it too.
    place: Option<OwnedSemaphorePermit>,
}

impl<A: Answer> Connection<A> {
    async fn serve(self, stream: TcpStream) {
        let client = Client {
            address: Some(self.from.ip()),
            tls: self.tls.is_some(),
        };
        let dispatch = self.dispatch;
        let phase = ConnPhase::default();
        let answer = move |request| dispatch.clone().answer(request, client);
        let service = tracking_phase(phase.clone(), answer);
        let Some(acceptor) = self.tls else {
            let stream = HeadTimeout::new(stream, HEADER_TIMEOUT, phase.clone(), self.place);
            return serve_http(stream, phase, service, self.ending, &self.crowding).await;
        };
        match tokio::time::timeout(HANDSHAKE_TIMEOUT, acceptor.accept(stream)).await {
            Ok(Ok(stream)) => {
                let stream = HeadTimeout::new(stream, HEADER_TIMEOUT, phase.clone(), self.place);
                serve_http(stream, phase, service, self.ending, &self.crowding).await;
            }
            Ok(Err(error)) => tracing::debug!(%error, "a handshake failed"),
            Err(_) => tracing::debug!("a handshake took too long"),
        }
    }
}

/// Answers requests and tracks the phase of the connection.
fn tracking_phase<A, F>(
    phase: ConnPhase,
    answer: A,
) -> impl Service<
    Request<Incoming>,
    Response = Response<Body>,
    Error = Infallible,
    Future: Future<Output = Result<Response<Body>, Infallible>> + Send,
> + Send
where
    A: Fn(Request<DrainBody<Incoming>>) -> F + Send,
    F: Future<Output = Response<Body>> + Send,
{
    service_fn(move |request| {
        let guard = phase.answering(request.method());
        let answer = answer(drain_body::drain_on_drop(request, guard.clone()));
        async move { Ok(guard.until_sent(answer.await)) }
    })
}

async fn serve_http<T, S>(
    stream: HeadTimeout<T>,
    phase: ConnPhase,
    service: S,
    ending: CancellationToken,
    crowding: &Notify,
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
    let ended = loop {
        tokio::select! {
            biased;
            ended = connection.as_mut() => break ended,
            () = ending.cancelled() => {
                connection.as_mut().graceful_shutdown();
                break connection.await;
            }
            () = phase.idle_too_long(IDLE, crowding) => {}
        }
        // A request that has arrived by now is answered. The runtime looks at its sockets before it
        // resumes a task that yields.
        tokio::select! {
            biased;
            ended = connection.as_mut() => break ended,
            () = tokio::task::yield_now() => {}
        }
        if phase.is_idle() {
            connection.as_mut().graceful_shutdown();
            let farewell = tokio::time::timeout(FAREWELL, connection).await;
            break farewell.unwrap_or(Ok(()));
        }
    };
    // Broken connections are normal.
    if let Err(error) = ended {
        tracing::trace!(%error, "a connection broke");
    }
}

/// Binds the address of the listener.
///
/// # Errors
/// When the address cannot be bound; the message says what to do.
pub(crate) async fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let end = Instant::now() + BIND_TIMEOUT;
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
            format!("{address} is in use by another program: stop it, or choose another address with --listen"),
        ),
        io::ErrorKind::AddrNotAvailable => io::Error::new(
            error.kind(),
            format!("{address} is not an address of this machine: choose another with --listen"),
        ),
        io::ErrorKind::PermissionDenied => io::Error::new(
            error.kind(),
            format!("only root may listen on {address}: choose a port above 1023"),
        ),
        _ => error,
    })
}

#[cfg(test)]
mod tests;
