//! Limits of concurrent requests, and retries while a server starts.

use super::*;

/// The timeout of these tests.
const BOUND: Duration = Duration::from_secs(60);

#[tokio::test]
async fn connections_above_the_limit_are_refused_until_one_ends() {
    let config = GatewayConfig {
        connections: 1,
        ..GatewayConfig::default()
    };
    let fixture = fixture_with(config, |_| {}).await;
    let port = fixture.server.port();
    let mut first = send(&fixture, &to(port, "/forever", "")).await;
    let mut seen = Vec::new();
    while !seen.ends_with(b"first\r\n") {
        seen.push(first.read_u8().await.unwrap());
    }
    let answer = ask(&fixture, &to(port, "/", "")).await;
    assert!(answer.starts_with("HTTP/1.1 429"), "{answer}");
    let (_, body) = answer.split_once("\r\n\r\n").unwrap();
    let body: serde_json::Value = serde_json::from_str(body).unwrap();
    assert_eq!(body["connectionLimit"], 1);
    assert_eq!(body["sandboxId"], "iabc");
    drop(first);
    let let_in = async { while !ask(&fixture, &to(port, "/", "")).await.ends_with("hello") {} };
    timeout(BOUND, let_in).await.unwrap();
}

#[tokio::test]
async fn a_request_waits_for_a_server_that_opens_its_port_a_moment_later() {
    // A loopback address of its own, with a daemon that reports requests.
    let own = std::process::id().to_be_bytes();
    let address = Ipv4Addr::new(127, 88, own[2], own[3] | 1);
    let daemon = TcpListener::bind((address, ENVD_PORT)).await.unwrap();
    let (closed, port) = closed_port(address);
    let fixture = fixture(|route| route.address = address.into()).await;
    let request = to(port, "/", "");
    let answer = ask(&fixture, &request);
    let open = async {
        // The port was closed; now the gateway tries the sandbox's loopback.
        let (asked, _) = daemon.accept().await.unwrap();
        let server = closed.listen(16).unwrap();
        serve_on(server, |_| async {
            answer_of(Response::new(Bytes::from("at last")))
        });
        drop((asked, daemon));
    };
    let both = async { tokio::join!(answer, open) };
    let (answer, ()) = timeout(BOUND, both).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert!(answer.ends_with("at last"), "{answer}");
}
