//! Routing, tunnels, and both HTTP versions.

use std::net::{Ipv4Addr, Ipv6Addr};

use bytes::Bytes;
use http::{Method, Request};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::json;
use shoal_protocol::client::ClientError;
use shoal_protocol::token::AccessToken;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};

use crate::daemon::daemon;

#[tokio::test]
async fn health_and_metrics_are_served() {
    let daemon = daemon!();
    daemon.client().health().await.unwrap();
    let answer = daemon.get("/health").await;
    assert_eq!(
        (answer.status.as_u16(), answer.header("cache-control")),
        (204, "no-store")
    );
    assert_eq!(answer.header("content-type"), "");
    let metrics = daemon.client().metrics().await.unwrap();
    assert!(metrics.cpu_count > 0 && metrics.mem_total > metrics.mem_used);
    assert!(metrics.disk_total >= metrics.disk_used && metrics.disk_used > 0);
    let fields = daemon.get("/metrics").await.json();
    for field in [
        "ts",
        "cpu_used_pct",
        "mem_cache",
        "mem_total_mib",
        "mem_used_mib",
    ] {
        assert!(fields[field].is_number(), "{field}");
    }
}

#[tokio::test]
async fn unknown_routes_are_not_found() {
    let daemon = daemon!();
    for path in [
        "/",
        "/fsfreeze",
        "/files/x",
        "/process.Process",
        "//health",
        "/tunnel",
    ] {
        assert_eq!(daemon.get(path).await.error().0, 404, "{path}");
    }
    for path in ["/init", "/freeze", "/unfreeze"] {
        assert_eq!(daemon.get(path).await.error().0, 405, "{path}");
    }
    let answer = daemon.call("/process.Process/NoSuch", json!({})).await;
    assert_eq!(answer.status, 404);
    assert_eq!(answer.json()["code"], "unimplemented");
}

#[tokio::test]
async fn pages_of_any_origin_may_call() {
    let daemon = daemon!();
    daemon.post_json("/init", json!({"accessToken": "t"})).await;
    let answer = daemon
        .ask(Method::OPTIONS, "/process.Process/Start")
        .header("origin", "https://example.com")
        .header("access-control-request-method", "POST")
        .header(
            "access-control-request-headers",
            "x-access-token, connect-protocol-version",
        )
        .send("")
        .await;
    assert_eq!(answer.status, 204);
    assert_eq!(answer.header("access-control-allow-origin"), "*");
    assert!(
        answer
            .header("access-control-allow-methods")
            .contains("POST")
    );
    assert!(
        answer
            .header("access-control-allow-headers")
            .contains("x-access-token")
    );
    let answer = daemon
        .ask(Method::GET, "/files?path=x")
        .header("origin", "https://example.com")
        .send("")
        .await;
    assert_eq!(answer.status, 401);
    assert_eq!(answer.header("access-control-allow-origin"), "*");
    assert_eq!(answer.header("access-control-expose-headers"), "*");
    assert_eq!(
        daemon
            .get("/health")
            .await
            .header("access-control-allow-origin"),
        ""
    );
}

#[tokio::test]
async fn both_http_versions_share_a_port() {
    let daemon = daemon!();
    std::fs::write(daemon.path("f"), vec![7; 3 << 20]).unwrap();
    let stream = TcpStream::connect(daemon.address).await.unwrap();
    let io = TokioIo::new(stream);
    let (mut sender, connection) = http2::handshake(TokioExecutor::new(), io).await.unwrap();
    tokio::spawn(connection);
    let mut send = async |method: Method, path: &str, body: Vec<u8>| {
        let request = Request::builder()
            .method(method)
            .uri(format!("http://sandbox{path}"))
            .header("content-type", "application/octet-stream")
            .body(Full::new(Bytes::from(body)))
            .unwrap();
        let response = sender.send_request(request).await.unwrap();
        let status = response.status().as_u16();
        (
            status,
            response.into_body().collect().await.unwrap().to_bytes(),
        )
    };
    let (status, body) = send(Method::GET, "/files?path=f", Vec::new()).await;
    assert_eq!((status, body.len()), (200, 3 << 20));
    let (status, _) = send(Method::POST, "/files?path=g", vec![8; 3 << 20]).await;
    assert_eq!(status, 200);
    assert_eq!(std::fs::metadata(daemon.path("g")).unwrap().len(), 3 << 20);
}

#[tokio::test]
async fn a_tunnel_reaches_loopback_listeners() {
    let daemon = daemon!();
    daemon.post_json("/init", json!({"accessToken": "t"})).await;
    let client = daemon
        .client()
        .with_token(&AccessToken::parse("t").unwrap());
    let inside = [
        TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await,
        TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).await,
    ];
    for listener in inside {
        let Ok(listener) = listener else {
            eprintln!("skipped: no IPv6");
            continue;
        };
        let port = listener.local_addr().unwrap().port();
        let mut outside = client.tunnel(port).await.unwrap();
        let (mut inside, _) = listener.accept().await.unwrap();
        outside.write_all(b"ping").await.unwrap();
        let mut buffer = [0; 4];
        inside.read_exact(&mut buffer).await.unwrap();
        assert_eq!(&buffer, b"ping");
        // Each direction closes independently.
        outside.shutdown().await.unwrap();
        assert_eq!(inside.read(&mut buffer).await.unwrap(), 0);
        inside.write_all(b"pong").await.unwrap();
        drop(inside);
        let mut rest = Vec::new();
        outside.read_to_end(&mut rest).await.unwrap();
        assert_eq!(rest, b"pong");
    }
}

#[tokio::test]
async fn a_tunnel_needs_the_token_and_a_listening_port() {
    let daemon = daemon!();
    // It holds a port, so that no other program gets it, and does not listen.
    let closed = TcpSocket::new_v4().unwrap();
    closed.bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
    let port = closed.local_addr().unwrap().port();
    match daemon.client().tunnel(port).await.err() {
        Some(ClientError::Refused { status, .. }) => assert_eq!(status, 502),
        other => panic!("{other:?}"),
    }
    let upgrade = [("connection", "upgrade"), ("upgrade", "shoal-tunnel")];
    for (path, headers, status) in [
        ("/tunnel/0", &upgrade[..], 400),
        ("/tunnel/65536", &upgrade[..], 400),
        ("/tunnel/x", &upgrade[..], 400),
        ("/tunnel/80", &[][..], 426),
    ] {
        let mut ask = daemon.ask(Method::GET, path);
        for (name, value) in headers {
            ask = ask.header(name, value);
        }
        assert_eq!(ask.send("").await.error().0, status, "{path}");
    }
    daemon.post_json("/init", json!({"accessToken": "t"})).await;
    match daemon.client().tunnel(port).await.err() {
        Some(ClientError::Refused { status, .. }) => assert_eq!(status, 401),
        other => panic!("{other:?}"),
    }
}
