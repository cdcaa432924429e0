//! The events service.

use std::net::{Ipv4Addr, SocketAddr};

use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::daemon::{DEADLINE, Options, daemon};

async fn ask(service: SocketAddr, request: &str) -> String {
    let deadline = tokio::time::Instant::now() + DEADLINE;
    let mut stream = loop {
        // The daemon reports readiness before this service listens.
        match TcpStream::connect(service).await {
            Ok(stream) => break stream,
            Err(_) => assert!(tokio::time::Instant::now() < deadline),
        }
    };
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

#[tokio::test]
async fn a_process_can_query_its_id_and_send_log_lines() {
    // A loopback address of this process: others may get any free port of 127.0.0.1.
    let [_, _, high, low] = std::process::id().to_be_bytes();
    let service = SocketAddr::from((Ipv4Addr::new(127, 89, high, low | 1), 4000));
    let daemon = daemon!(Options {
        arguments: vec!["--events".into(), service.to_string()],
        ..Options::default()
    });
    daemon
        .post_json("/init", json!({"envVars": {"E2B_SANDBOX_ID": "i1"}}))
        .await;
    let head = "HTTP/1.1\r\nhost: events.e2b.local\r\nconnection: close\r\n";
    let answer = ask(service, &format!("GET /me {head}\r\n")).await;
    assert!(answer.ends_with(r#"{"sandboxID":"i1"}"#), "{answer}");
    let body = r#"{"message":"hello"}"#;
    let length = body.len();
    let answer = ask(
        service,
        &format!("POST /logs {head}content-length: {length}\r\n\r\n{body}"),
    )
    .await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    let entry = daemon.logged(|entry| entry["logger"] == "events");
    assert_eq!(entry["line"], "hello");
    let large = "x".repeat(70 << 10);
    let length = large.len();
    let answer = ask(
        service,
        &format!("POST /logs {head}content-length: {length}\r\n\r\n{large}"),
    )
    .await;
    assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
}

#[tokio::test]
async fn a_missing_events_address_is_ignored() {
    let mut daemon = daemon!(Options {
        arguments: vec!["--events".into(), "203.0.113.77:80".into()],
        ..Options::default()
    });
    assert_eq!(daemon.get("/health").await.status, 204);
    // Users read this log and cannot make the address exist.
    let entries = daemon.end();
    let told = entries.iter().find(|entry| entry["logger"] == "events");
    assert_eq!(told, None);
}
