//! The gateway between a real client and a real server, over loopback.

mod bounds;
mod connections;
mod parked;
mod preview;
mod streams;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use http::StatusCode;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use shoal_core::BoxFuture;
use shoal_core::auth::{Token, TokenSeed};
use shoal_core::id::{KeyId, SandboxId, TeamId};
use shoal_core::routes::{
    Authorized, Credential, NotAuthorized, NotResumed, OpenConnection, WakeAuth,
};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;

use super::exchange::empty;
use super::*;
use crate::forward::ask_upgrade;

/// A key of the sandbox's team.
const KEY: &str = "e2b_abababababababababababababababab";

fn traffic_token() -> Token {
    TokenSeed::new([1; 32]).traffic_access_token(&"iabc".parse().unwrap())
}

/// A routing table with one sandbox, whose ports are this machine's.
struct OneSandbox {
    route: watch::Sender<Option<Arc<Route>>>,
    /// The result of waking it, while it is paused.
    asleep: Mutex<Option<Result<Arc<Route>, NotResumed>>>,
    /// Whether it is changing its state.
    busy: Mutex<bool>,
    /// Whether it is parked, not paused, while it is asleep.
    parked: Mutex<bool>,
    /// Whether visits by a route of an earlier run are refused.
    refuses_old: Mutex<bool>,
    /// How many visits are refused, because it is about to be parked.
    refuses_visits: Mutex<usize>,
    /// The requests under way.
    visits: Arc<()>,
    /// The connections that may be idle.
    connections: Arc<()>,
    /// Whether these have ended.
    disconnected: watch::Sender<bool>,
    key_deleted: watch::Sender<bool>,
}

impl OneSandbox {
    fn running(route: Route) -> Self {
        Self {
            route: watch::channel(Some(Arc::new(route))).0,
            asleep: Mutex::default(),
            busy: Mutex::default(),
            parked: Mutex::default(),
            refuses_old: Mutex::default(),
            refuses_visits: Mutex::default(),
            visits: Arc::default(),
            connections: Arc::default(),
            disconnected: watch::channel(false).0,
            key_deleted: watch::channel(false).0,
        }
    }

    /// Pauses it until it is woken with this result.
    fn rest(&self, woken: Result<(), NotResumed>) {
        let route = self.route.send_replace(None);
        *self.asleep.lock() = Some(woken.map(|()| route.expect("it ran")));
    }
}

impl RouteTable for OneSandbox {
    fn lookup(&self, id: &SandboxId) -> Lookup {
        match self
            .route
            .borrow()
            .as_ref()
            .filter(|route| route.sandbox == *id)
        {
            Some(route) => Lookup::Running(route.clone()),
            None => match &*self.asleep.lock() {
                Some(woken) => {
                    let route = woken.clone().unwrap_or_else(|_| Arc::new(sandbox()));
                    let auth = WakeAuth {
                        envd_access_token: route.envd_access_token.clone(),
                        traffic_access_token: route.traffic_access_token.clone(),
                    };
                    if *self.parked.lock() {
                        Lookup::Parked(auth)
                    } else {
                        Lookup::Resumable(auth)
                    }
                }
                None if *self.busy.lock() => Lookup::Busy,
                None => Lookup::Unknown,
            },
        }
    }

    fn visit(&self, route: &Route) -> Option<Visit> {
        let mut refuses = self.refuses_visits.lock();
        if *refuses > 0 {
            *refuses -= 1;
            self.rest(Ok(()));
            return None;
        }
        let refuses_old = *self.refuses_old.lock();
        let now = self.route.borrow().clone();
        let runs = now.filter(|now| !refuses_old || now.execution == route.execution);
        runs.map(|_| Visit::until_dropped(self.visits.clone()))
    }

    fn open_connection(&self, route: &Route) -> Option<OpenConnection> {
        let connections = self.connections.clone();
        route
            .keeps_connections
            .then(|| OpenConnection::until_dropped(connections))
    }

    fn disconnected(&self, _: &Route) -> BoxFuture<'static, ()> {
        let mut disconnected = self.disconnected.subscribe();
        Box::pin(async move {
            let _ = disconnected.wait_for(|now| *now).await;
        })
    }

    fn wake(&self, _: &SandboxId) -> BoxFuture<'static, Result<Arc<Route>, NotResumed>> {
        let woken = self.asleep.lock().take().unwrap_or(Err(NotResumed::Gone));
        if let Ok(route) = &woken {
            self.route.send_replace(Some(route.clone()));
        }
        Box::pin(async move { woken })
    }

    fn admit(
        &self,
        name: &str,
        credential: Credential,
    ) -> BoxFuture<'static, Result<Authorized, NotAuthorized>> {
        let admitted = match credential {
            Credential::Key(key) if key.reveal() == KEY => match name {
                "box" | "iabc" => Ok(Authorized {
                    sandbox: sandbox().sandbox,
                    port: 1,
                    key: Some(KeyId::from_entropy([3; 16])),
                }),
                _ => Err(NotAuthorized::NotFound),
            },
            Credential::Traffic(token) if name == "iabc" && traffic_token().matches(&token) => {
                Ok(Authorized {
                    sandbox: sandbox().sandbox,
                    port: 1,
                    key: None,
                })
            }
            Credential::Key(_) | Credential::Traffic(_) => Err(NotAuthorized::Unproven),
        };
        Box::pin(async move { admitted })
    }

    fn find_by_token(&self, is_wanted: &dyn Fn(&Token) -> bool) -> Option<SandboxId> {
        let route = self.route.borrow().clone()?;
        let token = route.envd_access_token.as_ref()?;
        is_wanted(token).then(|| route.sandbox.clone())
    }

    fn key_deleted(&self, _: KeyId) -> BoxFuture<'static, ()> {
        let mut deleted = self.key_deleted.subscribe();
        Box::pin(async move {
            let _ = deleted.wait_for(|deleted| *deleted).await;
        })
    }

    fn ended(&self, _: &Route) -> BoxFuture<'static, ()> {
        let mut route = self.route.subscribe();
        Box::pin(async move {
            let _ = route.wait_for(Option::is_none).await;
        })
    }
}

struct Fixture {
    routes: Arc<OneSandbox>,
    gateway: SocketAddr,
    server: SocketAddr,
    /// The requests that the server in the sandbox received.
    asked: mpsc::UnboundedReceiver<http::request::Parts>,
}

fn sandbox() -> Route {
    let sandbox: SandboxId = "iabc".parse().unwrap();
    Route {
        team: TeamId::from_entropy([1; 16]),
        execution: ExecutionId::from_entropy([1; 16]),
        runtime: "runsc".parse().unwrap(),
        address: IpAddr::V4(Ipv4Addr::LOCALHOST),
        guest_token: TokenSeed::new([1; 32]).envd_access_token(&sandbox),
        envd_access_token: Some(TokenSeed::new([1; 32]).envd_access_token(&sandbox)),
        traffic_access_token: None,
        mask_request_host: None,
        is_parkable: false,
        keeps_connections: false,
        network: ExecutionId::from_entropy([1; 16]),
        sandbox,
    }
}

async fn fixture(change: impl FnOnce(&mut Route)) -> Fixture {
    fixture_with(GatewayConfig::default(), change).await
}

async fn fixture_with(config: GatewayConfig, change: impl FnOnce(&mut Route)) -> Fixture {
    let (saw, asked) = mpsc::unbounded_channel();
    let server = serve(move |request: Request<Incoming>| {
        let saw = saw.clone();
        async move {
            let (parts, body) = request.into_parts();
            let answer = respond(&parts, body).await;
            saw.send(parts).unwrap();
            answer
        }
    })
    .await;
    let mut route = sandbox();
    change(&mut route);
    let routes = Arc::new(OneSandbox::running(route));
    let gateway = Gateway::new(config, routes.clone());
    let gateway = serve(move |request: Request<Incoming>| {
        let gateway = gateway.clone();
        async move {
            match gateway.target(&request) {
                Ok(Some(target)) => gateway.proxy(request, target, Client::default()).await,
                Ok(None) => match gateway.path_route(&request) {
                    Ok(Some(path_route)) => {
                        gateway
                            .proxy_path(request, path_route, Client::default())
                            .await
                    }
                    Ok(None) => answer_of(Response::new(Bytes::from("the api"))),
                    Err(invalid) => gateway.refuse(invalid),
                },
                Err(invalid) => gateway.refuse(invalid),
            }
        }
    })
    .await;
    Fixture {
        routes,
        gateway,
        server,
        asked,
    }
}

/// The server in the sandbox.
async fn respond(parts: &http::request::Parts, body: Incoming) -> Response<ForwardedBody> {
    match parts.uri.path() {
        "/echo" => Response::new(body.map_err(Into::into).boxed_unsync()),
        "/forever" => {
            let (send, frames) = mpsc::unbounded_channel::<Result<Frame<Bytes>, BoxError>>();
            send.send(Ok(Frame::data(Bytes::from("first")))).unwrap();
            // The stream stays open as long as the server.
            std::mem::forget(send);
            let frames = futures_util::stream::unfold(frames, async |mut frames| {
                Some((frames.recv().await?, frames))
            });
            Response::new(StreamBody::new(Box::pin(frames)).boxed_unsync())
        }
        "/unasked" => {
            let mut response = Response::new(empty());
            *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
            ask_upgrade(response.headers_mut(), http::HeaderValue::from_static("x"));
            response
        }
        "/upgrade" => {
            let mut request = Request::from_parts(parts.clone(), ());
            tokio::spawn(async move {
                let upgraded = hyper::upgrade::on(&mut request).await.unwrap();
                let (mut read, mut write) = tokio::io::split(TokioIo::new(upgraded));
                let _ = tokio::io::copy(&mut read, &mut write).await;
            });
            let mut response = Response::new(empty());
            *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
            ask_upgrade(
                response.headers_mut(),
                http::HeaderValue::from_static("echo"),
            );
            response
        }
        "/nothing" => {
            let mut response = Response::new(empty());
            *response.status_mut() = StatusCode::NOT_FOUND;
            response
        }
        _ => answer_of(Response::new(Bytes::from("hello"))),
    }
}

async fn serve<F, R>(answer: F) -> SocketAddr
where
    F: Fn(Request<Incoming>) -> R + Clone + Send + Sync + 'static,
    R: Future<Output = Response<ForwardedBody>> + Send + 'static,
{
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    serve_on(listener, answer)
}

fn serve_on<F, R>(listener: TcpListener, answer: F) -> SocketAddr
where
    F: Fn(Request<Incoming>) -> R + Clone + Send + Sync + 'static,
    R: Future<Output = Response<ForwardedBody>> + Send + 'static,
{
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let answer = answer.clone();
            let service = service_fn(move |request| {
                let answered = answer(request);
                async move { Ok::<_, std::convert::Infallible>(answered.await) }
            });
            tokio::spawn(async move {
                let mut builder =
                    hyper_util::server::conn::auto::Builder::new(TokioExecutor::new());
                builder.http2().enable_connect_protocol();
                // Clients may disconnect at any time.
                let stream = TokioIo::new(stream);
                let _ = builder
                    .serve_connection_with_upgrades(stream, service)
                    .await;
            });
        }
    });
    address
}

/// A closed port. The bound socket, which does not listen, reserves its number.
fn closed_port(address: Ipv4Addr) -> (TcpSocket, u16) {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind((address, 0).into()).unwrap();
    let port = socket.local_addr().unwrap().port();
    (socket, port)
}

/// A connection with one raw request sent.
async fn send(fixture: &Fixture, request: &str) -> TcpStream {
    let mut stream = TcpStream::connect(fixture.gateway).await.unwrap();
    stream
        .write_all(request.replace('\n', "\r\n").as_bytes())
        .await
        .unwrap();
    stream
}

/// All data until the connection closes.
async fn ask(fixture: &Fixture, request: &str) -> String {
    let mut stream = send(fixture, request).await;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

fn to(port: u16, path: &str, more: &str) -> String {
    format!(
        "GET {path} HTTP/1.1\nHost: localhost\nConnection: close\n\
         E2b-Sandbox-Id: iabc\nE2b-Sandbox-Port: {port}\n{more}\n"
    )
}

/// An echo until the sandbox ends.
async fn assert_echoes_until_the_end(
    fixture: &Fixture,
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
) {
    stream.write_all(b"ping").await.unwrap();
    let mut echoed = [0; 4];
    stream.read_exact(&mut echoed).await.unwrap();
    assert_eq!(&echoed, b"ping");
    fixture.routes.route.send_replace(None);
    assert!(matches!(stream.read(&mut echoed).await, Ok(0) | Err(_)));
}

#[tokio::test]
async fn a_request_reaches_the_server_by_headers_and_by_host() {
    let mut fixture = fixture(|_| {}).await;
    let port = fixture.server.port();
    let answer = ask(&fixture, &to(port, "/a?b=c", "X-Own: 1\n")).await;
    assert!(
        answer.starts_with("HTTP/1.1 200") && answer.ends_with("hello"),
        "{answer}"
    );
    let seen = fixture.asked.recv().await.unwrap();
    assert_eq!(seen.uri.to_string(), "/a?b=c");
    assert_eq!(seen.headers["x-own"], "1");
    assert_eq!(seen.headers["host"], "localhost");
    let by_host = format!("GET / HTTP/1.1\nHost: {port}-iabc.e2b.app\nConnection: close\n\n");
    assert!(ask(&fixture, &by_host).await.ends_with("hello"));
    let seen = fixture.asked.recv().await.unwrap();
    assert_eq!(
        seen.headers["x-forwarded-host"],
        format!("{port}-iabc.e2b.app")
    );
    let api = "GET / HTTP/1.1\nHost: localhost\nConnection: close\n\n";
    assert!(ask(&fixture, api).await.ends_with("the api"));
}

#[tokio::test]
async fn bodies_stream_in_both_directions_before_either_is_whole() {
    let fixture = fixture(|_| {}).await;
    let head = to(
        fixture.server.port(),
        "/echo",
        "Transfer-Encoding: chunked\n",
    );
    let mut stream = send(&fixture, &head.replace("GET", "POST")).await;
    let mut buffer = vec![0; 4096];
    let mut seen = String::new();
    for part in ["one", "two"] {
        stream
            .write_all(format!("3\r\n{part}\r\n").as_bytes())
            .await
            .unwrap();
        while !seen.contains(part) {
            let n = stream.read(&mut buffer).await.unwrap();
            seen.push_str(std::str::from_utf8(&buffer[..n]).unwrap());
        }
    }
    stream.write_all(b"0\r\n\r\n").await.unwrap();
    stream.read_to_string(&mut seen).await.unwrap();
    assert!(seen.ends_with("0\r\n\r\n"), "{seen}");
}

#[tokio::test]
async fn a_sandbox_that_does_not_run_is_not_found() {
    let fixture = fixture(|_| {}).await;
    let unknown = "GET / HTTP/1.1\nHost: 80-ixyz.e2b.app\nConnection: close\n\n";
    let answer = ask(&fixture, unknown).await;
    assert!(answer.starts_with("HTTP/1.1 502"));
    assert!(answer.contains("The sandbox was not found") && answer.contains("ixyz"));
    let half = "GET / HTTP/1.1\nHost: localhost\nConnection: close\nE2b-Sandbox-Id: iabc\n\n";
    assert!(ask(&fixture, half).await.ends_with("missing header"));
}

#[tokio::test(start_paused = true)]
async fn a_closed_port_is_retried_and_then_reported() {
    let fixture = fixture(|_| {}).await;
    let (_closed, port) = closed_port(Ipv4Addr::LOCALHOST);
    let begun = tokio::time::Instant::now();
    let answer = ask(&fixture, &to(port, "/", "")).await;
    assert!(answer.starts_with("HTTP/1.1 502"), "{answer}");
    assert!(
        answer.contains("The sandbox is running but port is not open"),
        "{answer}"
    );
    assert!(answer.contains(&format!("\"port\":{port}")));
    assert!(begun.elapsed().as_millis() >= 1000);
}

#[tokio::test]
async fn a_private_sandbox_requires_its_token_and_does_not_forward_it() {
    let seed = TokenSeed::new([1; 32]);
    let token = seed.traffic_access_token(&"iabc".parse().unwrap());
    let mut fixture = fixture(|route| route.traffic_access_token = Some(token.clone())).await;
    let port = fixture.server.port();
    let answer = ask(&fixture, &to(port, "/", "")).await;
    assert!(
        answer.starts_with("HTTP/1.1 403") && answer.contains("is missing"),
        "{answer}"
    );
    let answer = ask(
        &fixture,
        &to(port, "/", "e2b-traffic-access-token: wrong\n"),
    )
    .await;
    assert!(
        answer.starts_with("HTTP/1.1 403") && answer.contains("is invalid"),
        "{answer}"
    );
    let good = format!("e2b-traffic-access-token: {}\n", token.reveal());
    assert!(
        ask(&fixture, &to(port, "/", &good))
            .await
            .ends_with("hello")
    );
    let seen = fixture.asked.recv().await.unwrap();
    assert!(!seen.headers.contains_key("e2b-traffic-access-token"));
}

#[tokio::test]
async fn internal_routes_of_the_daemon_are_not_found() {
    let fixture = fixture(|_| {}).await;
    for path in ["/init", "//init", "/%69nit", "/tunnel/80", "/freeze"] {
        let answer = ask(&fixture, &to(ENVD_PORT, path, "")).await;
        assert!(answer.starts_with("HTTP/1.1 404"), "{path}: {answer}");
        assert!(answer.contains("\"code\":404"), "{answer}");
    }
}

#[tokio::test]
async fn a_stream_is_aborted_when_its_sandbox_ends() {
    let fixture = fixture(|_| {}).await;
    let mut stream = send(&fixture, &to(fixture.server.port(), "/forever", "")).await;
    let mut seen = Vec::new();
    while !seen.ends_with(b"first\r\n") {
        seen.push(stream.read_u8().await.unwrap());
    }
    fixture.routes.route.send_replace(None);
    let mut rest = Vec::new();
    // The client sees an end or a reset, depending on data in flight.
    let _ = stream.read_to_end(&mut rest).await;
    assert!(
        !rest.ends_with(b"0\r\n\r\n"),
        "half an answer must not look whole"
    );
}

/// An upgraded connection to a server that echoes.
async fn upgraded(fixture: &Fixture) -> TcpStream {
    let port = fixture.server.port();
    let head = format!(
        "GET /upgrade HTTP/1.1\nHost: {port}-iabc.x.y\nConnection: Upgrade\nUpgrade: echo\n\n"
    );
    let mut stream = send(fixture, &head).await;
    let mut seen = Vec::new();
    while !seen.ends_with(b"\r\n\r\n") {
        seen.push(stream.read_u8().await.unwrap());
    }
    assert!(seen.starts_with(b"HTTP/1.1 101"));
    stream
}

#[tokio::test]
async fn an_upgraded_connection_works_both_ways_until_the_sandbox_ends() {
    let fixture = fixture(|_| {}).await;
    let stream = upgraded(&fixture).await;
    assert_echoes_until_the_end(&fixture, stream).await;
}

#[tokio::test]
async fn an_unrequested_protocol_switch_is_refused() {
    let fixture = fixture(|_| ()).await;
    let answer = ask(&fixture, &to(fixture.server.port(), "/unasked", "")).await;
    assert!(answer.starts_with("HTTP/1.1 502"), "{answer}");
}

#[tokio::test]
async fn a_signed_url_finds_its_sandbox_by_the_signature() {
    let fixture = fixture(|_| {}).await;
    let token = TokenSeed::new([1; 32]).envd_access_token(&"iabc".parse().unwrap());
    let claim = shoal_protocol::signature::Claim {
        path: "a b",
        operation: shoal_protocol::signature::Operation::Read,
        username: "",
        expiration: None,
    };
    let signature = shoal_protocol::signature::sign(&claim, token.reveal()).replace('+', "%2B");
    let request = |signature: &str| {
        Request::get(format!("/files?path=a%20b&signature={signature}"))
            .body(())
            .unwrap()
    };
    let gateway = Gateway::new(GatewayConfig::default(), fixture.routes.clone());
    let found = gateway.target(&request(&signature)).unwrap().unwrap();
    assert_eq!((found.sandbox.as_str(), found.port), ("iabc", ENVD_PORT));
    assert_eq!(gateway.target(&request("v1_other")).unwrap(), None);
}

#[tokio::test]
async fn a_request_wakes_a_paused_sandbox_and_reaches_it() {
    let fixture = fixture(|_| {}).await;
    fixture.routes.rest(Ok(()));
    let answer = ask(&fixture, &to(fixture.server.port(), "/", "")).await;
    assert!(
        answer.starts_with("HTTP/1.1 200") && answer.ends_with("hello"),
        "{answer}"
    );
}

#[tokio::test]
async fn only_the_daemons_token_wakes_a_sandbox_for_its_port() {
    let fixture = fixture(|_| {}).await;
    for more in ["", "X-Access-Token: wrong\n"] {
        fixture.routes.rest(Ok(()));
        let answer = ask(&fixture, &to(ENVD_PORT, "/health", more)).await;
        assert!(answer.starts_with("HTTP/1.1 403"), "{answer}");
        assert!(answer.contains("only a valid access token resumes it"));
        // It was not woken.
        assert!(fixture.routes.asleep.lock().is_some());
        fixture.routes.wake(&sandbox().sandbox).await.unwrap();
    }
    fixture.routes.rest(Ok(()));
    let token = sandbox().envd_access_token.unwrap();
    let more = format!("X-Access-Token: {}\n", token.reveal());
    // Nothing listens there in this test, but it was woken.
    let answer = ask(&fixture, &to(ENVD_PORT, "/health", &more)).await;
    assert!(answer.starts_with("HTTP/1.1 502"), "{answer}");
    assert!(fixture.routes.asleep.lock().is_none());
}

#[tokio::test]
async fn a_failed_wake_reports_the_reason() {
    for (why, status) in [
        (NotResumed::Gone, "502"),
        (NotResumed::Full("full".to_owned()), "429"),
        (NotResumed::Failed("broken".to_owned()), "409"),
    ] {
        let fixture = fixture(|_| {}).await;
        fixture.routes.rest(Err(why));
        let answer = ask(&fixture, &to(fixture.server.port(), "/", "")).await;
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status}")),
            "{answer}"
        );
    }
}

#[tokio::test]
async fn a_sandbox_that_changes_state_is_busy_by_host_and_by_path() {
    let fixture = fixture(|_| {}).await;
    fixture.routes.route.send_replace(None);
    *fixture.routes.busy.lock() = true;
    let port = fixture.server.port();
    let path = by_path(
        &format!("/sandbox/box/?port={port}"),
        &format!("X-API-Key: {KEY}\n"),
    );
    for request in [to(port, "/", ""), path] {
        let answer = ask(&fixture, &request).await;
        assert!(answer.starts_with("HTTP/1.1 409"), "{answer}");
        assert!(answer.contains("changing its state: try again"), "{answer}");
    }
}

fn by_path(path: &str, more: &str) -> String {
    format!("GET {path} HTTP/1.1\nHost: localhost\nConnection: close\n{more}\n")
}

#[tokio::test]
async fn a_path_reaches_a_sandbox_with_a_key_of_its_team() {
    let mut fixture = fixture(|route| route.traffic_access_token = Some(traffic_token())).await;
    let port = fixture.server.port();
    let key = format!("X-API-Key: {KEY}\n");
    for path in [
        format!("/sandbox/box/a?port={port}&b=c"),
        format!("/sandboxes/router/iabc/{port}/a?b=c"),
    ] {
        let answer = ask(&fixture, &by_path(&path, &key)).await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        assert!(answer.ends_with("hello"), "{answer}");
        assert!(
            answer.contains("content-security-policy: sandbox"),
            "{answer}"
        );
        let seen = fixture.asked.recv().await.unwrap();
        assert_eq!(seen.uri.to_string(), "/a?b=c");
        assert!(!seen.headers.contains_key("x-api-key"));
    }
    let token = format!("e2b-traffic-access-token: {}\n", traffic_token().reveal());
    let path = format!("/sandboxes/router/iabc/{port}/");
    // An invalid key does not invalidate the token, and is not forwarded.
    for more in ["", "X-API-Key: \n", "X-API-Key: somebody's own\n"] {
        let answer = ask(&fixture, &by_path(&path, &format!("{more}{token}"))).await;
        assert!(answer.ends_with("hello"), "{more}: {answer}");
        let seen = fixture.asked.recv().await.unwrap();
        assert!(!seen.headers.contains_key("x-api-key"));
    }
    let stranger = format!("X-API-Key: e2b_{}\n{token}", "0".repeat(32));
    let answer = ask(&fixture, &by_path(&path, &stranger)).await;
    assert!(answer.starts_with("HTTP/1.1 401"), "{answer}");
}

#[tokio::test]
async fn no_path_is_open_without_a_credential() {
    let fixture = fixture(|_| {}).await;
    let port = fixture.server.port();
    let other = format!("X-API-Key: e2b_{}\n", "0".repeat(32));
    let by_token = "X-API-Key: x\ne2b-traffic-access-token: x\n";
    let more = ["", "X-API-Key: \n", &other, "e2b-traffic-access-token: x\n"];
    for more in more.into_iter().chain([by_token]) {
        for path in [
            format!("/sandbox/box/?port={port}"),
            format!("/sandbox/nothing/?port={port}"),
            format!("/sandboxes/router/iabc/{port}/"),
        ] {
            let answer = ask(&fixture, &by_path(&path, more)).await;
            assert!(
                answer.starts_with("HTTP/1.1 401"),
                "{path} {more}: {answer}"
            );
        }
    }
    let key = format!("X-API-Key: {KEY}\n");
    let answer = ask(&fixture, &by_path("/sandbox/nothing/", &key)).await;
    assert!(answer.starts_with("HTTP/1.1 502"), "{answer}");
    let path = format!("/sandbox/box//init?port={ENVD_PORT}");
    let answer = ask(&fixture, &by_path(&path, &key)).await;
    assert!(answer.starts_with("HTTP/1.1 404"), "{answer}");
}

#[tokio::test]
async fn a_key_wakes_a_paused_sandbox_and_a_stranger_does_not() {
    let fixture = fixture(|_| {}).await;
    fixture.routes.rest(Ok(()));
    let path = format!("/sandbox/box/?port={}", fixture.server.port());
    let answer = ask(&fixture, &by_path(&path, "")).await;
    assert!(answer.starts_with("HTTP/1.1 401"), "{answer}");
    assert!(fixture.routes.asleep.lock().is_some(), "it still rests");
    let key = format!("X-API-Key: {KEY}\n");
    assert!(
        ask(&fixture, &by_path(&path, &key))
            .await
            .ends_with("hello")
    );
}
