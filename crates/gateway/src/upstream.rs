//! Connections to servers in sandboxes.

mod connector;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use http::{Request, Response, StatusCode, Uri};
use http_body_util::combinators::UnsyncBoxBody;
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use parking_lot::Mutex;
use shoal_core::id::SandboxId;
use shoal_core::ports::sessions::preview::Forwarding;
use shoal_core::routes::Route;

use self::connector::{Connector, connect_http1, connect_http2};
use crate::places::{Full, Holder, Keep, Line, Place, Places};

/// A forwarded body.
pub(crate) type ForwardedBody = UnsyncBoxBody<Bytes, BoxError>;
/// The error of a body.
pub(crate) type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The connections into one run of a machine. They end with the run.
#[derive(Debug)]
pub(crate) struct Upstream {
    connector: Connector,
    holder: Holder,
    places: Arc<Places<Sender>>,
    /// Busy HTTP/2 connections, which other requests may share.
    shared: Mutex<HashMap<u16, Shared>>,
    ended: AtomicBool,
}

/// An HTTP/2 connection and its number of running requests.
#[derive(Debug)]
struct Shared {
    sender: http2::SendRequest<ForwardedBody>,
    place: Arc<Place<Sender>>,
    requests: usize,
}

/// Sends requests on a connection.
#[derive(Debug)]
pub(crate) enum Sender {
    Http1(http1::SendRequest<ForwardedBody>),
    Http2(http2::SendRequest<ForwardedBody>),
}

impl Keep for Sender {
    fn is_open(&self) -> bool {
        match self {
            Self::Http1(sender) => !sender.is_closed(),
            Self::Http2(sender) => !sender.is_closed(),
        }
    }
}

/// Why a request was not answered by the server in the sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NotSent {
    /// Nothing listens on the port.
    PortClosed,
    /// The pool has no place for another connection.
    Full(Full),
    /// The system is out of descriptors or memory.
    Exhausted,
    /// The connection broke before the answer.
    Broken,
}

impl From<Full> for NotSent {
    fn from(full: Full) -> Self {
        Self::Full(full)
    }
}

impl Upstream {
    /// The connections into a run of a sandbox.
    pub(crate) fn of_sandbox(route: &Route, places: Arc<Places<Sender>>) -> Self {
        let connector = Connector::Sandbox {
            address: route.address,
            token: route.guest_token.clone(),
        };
        let holder = Holder {
            team: route.team,
            sandbox: route.sandbox.clone(),
            execution: route.execution,
        };
        Self::new(connector, holder, places)
    }

    /// The connections into an external machine.
    pub(crate) fn of_external(
        machine: &SandboxId,
        forwarding: &Forwarding,
        places: Arc<Places<Sender>>,
    ) -> Self {
        let holder = Holder {
            team: forwarding.team,
            sandbox: machine.clone(),
            execution: forwarding.execution,
        };
        Self::new(Connector::Forward(forwarding.ports.clone()), holder, places)
    }

    fn new(connector: Connector, holder: Holder, places: Arc<Places<Sender>>) -> Self {
        Self {
            connector,
            holder,
            places,
            shared: Mutex::default(),
            ended: AtomicBool::new(false),
        }
    }

    /// Closes idle connections. Busy ones end with their requests.
    pub(crate) fn end(&self) {
        self.ended.store(true, Ordering::Release);
        self.places.forget(self.holder.execution);
    }

    /// Sends a request to `port` over HTTP/1.1.
    ///
    /// # Errors
    /// See [`NotSent`].
    pub(crate) async fn send(
        self: &Arc<Self>,
        port: u16,
        mut request: Request<ForwardedBody>,
    ) -> Result<Response<Incoming>, NotSent> {
        let line = Line { port, http2: false };
        loop {
            let kept = self.places.reuse(self.holder.execution, line);
            let again = kept.is_some();
            let (mut sender, place) = match kept {
                Some((Sender::Http1(sender), place)) => (sender, place),
                // Impossible: the line includes the HTTP version.
                Some((Sender::Http2(_), _)) => continue,
                // Boxed, because a future is moved with all that it may ever hold, and most requests find a connection.
                None => Box::pin(self.connect(port)).await?,
            };
            match sender.try_send_request(request).await {
                Ok(response) => {
                    match response.status() {
                        StatusCode::SWITCHING_PROTOCOLS => {}
                        // A short answer has been received completely.
                        _ if sender.is_ready() => self.keep(line, Sender::Http1(sender), place),
                        _ => self.keep_when_ready(line, sender, place),
                    }
                    return Ok(response);
                }
                // The server closed the connection before it saw the request.
                Err(mut error) => match error.take_message().filter(|_| again) {
                    Some(unsent) => request = unsent,
                    None => return Err(NotSent::Broken),
                },
            }
        }
    }

    async fn connect(
        &self,
        port: u16,
    ) -> Result<(http1::SendRequest<ForwardedBody>, Arc<Place<Sender>>), NotSent> {
        let place = self.places.take(&self.holder)?;
        let stream = self.connector.open(port, place.clone()).await?;
        Ok((connect_http1(stream).await?, place))
    }

    /// Keeps a connection after its answer was read completely; otherwise closes it.
    fn keep_when_ready(
        self: &Arc<Self>,
        line: Line,
        mut sender: http1::SendRequest<ForwardedBody>,
        place: Arc<Place<Sender>>,
    ) {
        let upstream = self.clone();
        tokio::spawn(async move {
            if sender.ready().await.is_ok() {
                upstream.keep(line, Sender::Http1(sender), place);
            }
        });
    }

    fn keep(&self, line: Line, sender: Sender, place: Arc<Place<Sender>>) {
        self.places.keep(line, sender, place);
        // The run may have ended meanwhile.
        if self.ended.load(Ordering::Acquire) {
            self.places.forget(self.holder.execution);
        }
    }

    /// Sends a request to `port` over HTTP/2, on a shared connection. It counts as running until the
    /// returned [`Stream2`] is dropped.
    ///
    /// # Errors
    /// See [`NotSent`].
    pub(crate) async fn send_http2(
        self: &Arc<Self>,
        port: u16,
        mut request: Request<ForwardedBody>,
    ) -> Result<(Response<Incoming>, Stream2), NotSent> {
        loop {
            let joined = self.join(port);
            let again = joined.is_some();
            let (mut sender, stream) = match joined {
                Some(joined) => joined,
                None => self.share(port).await?,
            };
            match sender.try_send_request(request).await {
                Ok(response) => return Ok((response, stream)),
                Err(mut error) => match error.take_message().filter(|_| again) {
                    Some(unsent) => request = unsent,
                    None => return Err(NotSent::Broken),
                },
            }
        }
    }

    /// Joins an existing HTTP/2 connection.
    fn join(self: &Arc<Self>, port: u16) -> Option<(http2::SendRequest<ForwardedBody>, Stream2)> {
        let mut shared = self.shared.lock();
        if let Some(known) = shared.get_mut(&port)
            && !known.sender.is_closed()
        {
            known.requests += 1;
            let stream = self.stream(port, &known.place);
            return Some((known.sender.clone(), stream));
        }
        let line = Line { port, http2: true };
        let (sender, place) = self.places.reuse(self.holder.execution, line)?;
        let Sender::Http2(sender) = sender else {
            return None;
        };
        let stream = self.stream(port, &place);
        shared.insert(port, Shared::of(sender.clone(), place));
        Some((sender, stream))
    }

    /// Opens an HTTP/2 connection that others may join.
    async fn share(
        self: &Arc<Self>,
        port: u16,
    ) -> Result<(http2::SendRequest<ForwardedBody>, Stream2), NotSent> {
        let place = self.places.take(&self.holder)?;
        let stream = self.connector.open(port, place.clone()).await?;
        let sender = connect_http2(stream).await?;
        let stream = self.stream(port, &place);
        // If two open at once, the later one is shared; the other ends with its request.
        let shared = Shared::of(sender.clone(), place);
        self.shared.lock().insert(port, shared);
        Ok((sender, stream))
    }

    fn stream(self: &Arc<Self>, port: u16, place: &Arc<Place<Sender>>) -> Stream2 {
        Stream2 {
            upstream: self.clone(),
            port,
            place: place.clone(),
        }
    }

    /// Ends a request on a shared connection, which becomes idle after the last one.
    fn leave(&self, port: u16, place: &Arc<Place<Sender>>) {
        let mut shared = self.shared.lock();
        let Some(known) = shared.get_mut(&port) else {
            return;
        };
        if !Arc::ptr_eq(&known.place, place) {
            return;
        }
        known.requests -= 1;
        if known.requests == 0
            && let Some(known) = shared.remove(&port)
        {
            drop(shared);
            let line = Line { port, http2: true };
            self.keep(line, Sender::Http2(known.sender), known.place);
        }
    }
}

impl Shared {
    fn of(sender: http2::SendRequest<ForwardedBody>, place: Arc<Place<Sender>>) -> Self {
        Self {
            sender,
            place,
            requests: 1,
        }
    }
}

/// A running request on an HTTP/2 connection.
#[derive(Debug)]
pub(crate) struct Stream2 {
    upstream: Arc<Upstream>,
    port: u16,
    place: Arc<Place<Sender>>,
}

impl Drop for Stream2 {
    fn drop(&mut self) {
        self.upstream.leave(self.port, &self.place);
    }
}

/// The URI for the server in the sandbox; on HTTP/1.1 only the path.
pub(crate) fn uri_for(port: u16, asked: &Uri, http2: bool) -> Result<Uri, http::Error> {
    let path = asked
        .path_and_query()
        .map_or("/", http::uri::PathAndQuery::as_str);
    let uri = Uri::builder().path_and_query(path);
    if http2 {
        uri.scheme("http")
            .authority(format!("sandbox:{port}"))
            .build()
    } else {
        uri.build()
    }
}
