//! The number of connections that the gateway opens and keeps.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;
use crate::places::IDLE_OF_SANDBOX;

const BOUND: Duration = Duration::from_secs(60);

/// A server on many ports that counts its current and total connections.
struct ManyPorts {
    ports: Vec<u16>,
    open: Arc<AtomicUsize>,
    accepted: Arc<AtomicUsize>,
}

async fn many_ports(count: usize) -> ManyPorts {
    let (open, accepted) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
    let mut ports = Vec::new();
    for _ in 0..count {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        ports.push(listener.local_addr().unwrap().port());
        let (open, accepted) = (open.clone(), accepted.clone());
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                open.fetch_add(1, Ordering::SeqCst);
                accepted.fetch_add(1, Ordering::SeqCst);
                let open = open.clone();
                tokio::spawn(async move {
                    answer_each(stream).await;
                    open.fetch_sub(1, Ordering::SeqCst);
                });
            }
        });
    }
    ManyPorts {
        ports,
        open,
        accepted,
    }
}

/// Answers requests until the client closes.
async fn answer_each(mut stream: TcpStream) {
    let mut seen = Vec::new();
    while stream.read_buf(&mut seen).await.is_ok_and(|read| read > 0) {
        if seen.ends_with(b"\r\n\r\n") {
            seen.clear();
            let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";
            stream.write_all(answer).await.unwrap();
        }
    }
}

/// Sends a request on a kept-alive connection.
async fn ask_again(stream: &mut TcpStream, port: u16) {
    let asked = to(port, "/", "").replace("Connection: close\n", "");
    let asked = asked.replace('\n', "\r\n");
    stream.write_all(asked.as_bytes()).await.unwrap();
    let mut seen = Vec::new();
    while !seen.ends_with(b"hello") {
        assert_ne!(stream.read_buf(&mut seen).await.unwrap(), 0, "it closed");
    }
}

async fn eventually(what: impl Fn() -> bool) {
    let look = async {
        while !what() {
            tokio::task::yield_now().await;
        }
    };
    timeout(BOUND, look).await.unwrap();
}

#[tokio::test]
async fn a_connection_is_reused_and_closed_when_the_sandbox_ends() {
    let fixture = fixture(|_| {}).await;
    let server = many_ports(1).await;
    let mut client = TcpStream::connect(fixture.gateway).await.unwrap();
    for _ in 0..20 {
        ask_again(&mut client, server.ports[0]).await;
    }
    // The connection is kept slightly after the answer, so the next request may come first.
    assert!(server.accepted.load(Ordering::SeqCst) < 5);
    fixture.routes.route.send_replace(None);
    eventually(|| server.open.load(Ordering::SeqCst) == 0).await;
}

#[tokio::test]
async fn one_client_of_hundreds_of_ports_leaves_few_connections_open() {
    let fixture = fixture(|_| {}).await;
    let server = many_ports(200).await;
    let mut client = TcpStream::connect(fixture.gateway).await.unwrap();
    for port in &server.ports {
        ask_again(&mut client, *port).await;
    }
    assert_eq!(server.accepted.load(Ordering::SeqCst), 200);
    eventually(|| server.open.load(Ordering::SeqCst) <= IDLE_OF_SANDBOX).await;
}

#[tokio::test]
async fn a_sandbox_gets_half_of_the_places_and_then_429() {
    let config = GatewayConfig {
        upstreams: 8,
        ..GatewayConfig::default()
    };
    let fixture = fixture_with(config, |_| {}).await;
    let port = fixture.server.port();
    let mut held = Vec::new();
    for _ in 0..4 {
        let mut stream = send(&fixture, &to(port, "/forever", "")).await;
        let mut seen = Vec::new();
        while !seen.ends_with(b"first\r\n") {
            seen.push(stream.read_u8().await.unwrap());
        }
        held.push(stream);
    }
    let answer = ask(&fixture, &to(port, "/", "")).await;
    assert!(answer.starts_with("HTTP/1.1 429"), "{answer}");
    assert!(
        answer.contains("used up its share of connections"),
        "{answer}"
    );
    held.pop();
    let let_in = async { while !ask(&fixture, &to(port, "/", "")).await.ends_with("hello") {} };
    timeout(BOUND, let_in).await.unwrap();
}

#[tokio::test]
async fn grpc_requests_share_a_kept_connection() {
    let fixture = fixture(|_| {}).await;
    let port = fixture.server.port();
    let stream = TcpStream::connect(fixture.gateway).await.unwrap();
    let builder = hyper::client::conn::http2::Builder::new(TokioExecutor::new());
    let (client, connection) = builder.handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    for _ in 0..3 {
        let asked = |path| {
            Request::get(format!("http://{port}-iabc.x.y{path}"))
                .header("te", "trailers")
                .body(http_body_util::Empty::<Bytes>::new())
                .unwrap()
        };
        let answers = (0..5).map(|_| {
            let mut client = client.clone();
            let asked = asked("/");
            async move {
                let answer = client.send_request(asked).await.unwrap();
                assert_eq!(answer.status(), 200);
                answer.into_body().collect().await.unwrap().to_bytes()
            }
        });
        for answer in futures_util::future::join_all(answers).await {
            assert_eq!(answer, "hello");
        }
    }
}
