//! WebSockets over HTTP/2.

use http::Method;
use http_body_util::Empty;
use hyper::client::conn::http2;
use hyper::ext::Protocol;

use super::*;

/// An HTTP/2 client that has received the gateway's settings.
async fn client(fixture: &Fixture) -> http2::SendRequest<Empty<Bytes>> {
    let stream = TcpStream::connect(fixture.gateway).await.unwrap();
    let builder = http2::Builder::new(TokioExecutor::new());
    let (mut client, connection) = builder.handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    let port = fixture.server.port();
    let first = Request::get(format!("http://{port}-iabc.x.y/"));
    let answer = client.send_request(first.body(Empty::new()).unwrap()).await;
    assert_eq!(answer.unwrap().status(), 200);
    client
}

fn connect(fixture: &Fixture, path: &str, protocol: &'static str) -> Request<Empty<Bytes>> {
    let port = fixture.server.port();
    Request::builder()
        .method(Method::CONNECT)
        .uri(format!("https://{port}-iabc.x.y{path}"))
        .header("sec-websocket-version", "13")
        .header("sec-websocket-protocol", "chat")
        .extension(Protocol::from_static(protocol))
        .body(Empty::new())
        .unwrap()
}

#[tokio::test]
async fn a_websocket_over_http2_is_one_of_http1_to_the_server() {
    let mut fixture = fixture(|_| {}).await;
    let mut client = client(&fixture).await;
    fixture.asked.recv().await.unwrap();
    let asked = connect(&fixture, "/upgrade?a=b", "websocket");
    let answer = client.send_request(asked).await.unwrap();
    assert_eq!(answer.status(), 200);
    assert!(!answer.headers().contains_key("upgrade"));
    assert!(!answer.headers().contains_key("sec-websocket-accept"));

    let seen = fixture.asked.recv().await.unwrap();
    assert_eq!(
        (seen.method, seen.version),
        (Method::GET, http::Version::HTTP_11)
    );
    assert_eq!(seen.uri.to_string(), "/upgrade?a=b");
    for (name, value) in [
        ("connection", "upgrade"),
        ("upgrade", "websocket"),
        ("sec-websocket-version", "13"),
        ("sec-websocket-protocol", "chat"),
        ("host", &format!("{}-iabc.x.y", fixture.server.port())),
    ] {
        assert_eq!(seen.headers[name], value, "{name}");
    }
    assert_eq!(seen.headers["sec-websocket-key"].len(), 24);

    let stream = TokioIo::new(hyper::upgrade::on(answer).await.unwrap());
    assert_echoes_until_the_end(&fixture, stream).await;
}

#[tokio::test]
async fn a_server_that_refuses_a_websocket_opens_none() {
    let fixture = fixture(|_| {}).await;
    let mut client = client(&fixture).await;
    // It answers 200, which on a stream would mean acceptance.
    let asked = connect(&fixture, "/", "websocket");
    assert_eq!(client.send_request(asked).await.unwrap().status(), 502);
    let asked = connect(&fixture, "/nothing", "websocket");
    assert_eq!(client.send_request(asked).await.unwrap().status(), 404);
}

#[tokio::test]
async fn a_sandbox_is_no_proxy_to_other_hosts() {
    let fixture = fixture(|_| {}).await;
    let mut client = client(&fixture).await;
    let asked = connect(&fixture, "/", "connect-udp");
    assert_eq!(client.send_request(asked).await.unwrap().status(), 501);
    let port = fixture.server.port();
    let plain = format!("CONNECT {port}-iabc.x.y:80 HTTP/1.1\nHost: {port}-iabc.x.y:80\n\n");
    let mut stream = send(&fixture, &plain).await;
    let mut status = [0; 12];
    stream.read_exact(&mut status).await.unwrap();
    assert_eq!(&status, b"HTTP/1.1 501");
}

#[tokio::test]
async fn a_stream_ends_when_its_key_is_deleted() {
    let fixture = fixture(|_| {}).await;
    let port = fixture.server.port();
    let path = format!("/sandbox/box/forever?port={port}");
    let request = by_path(&path, &format!("X-API-Key: {KEY}\n"));
    let mut stream = send(&fixture, &request).await;
    let mut seen = Vec::new();
    while !seen.ends_with(b"first\r\n") {
        seen.push(stream.read_u8().await.unwrap());
    }
    fixture.routes.key_deleted.send_replace(true);
    let mut rest = Vec::new();
    // The client sees an end or a reset, depending on data in flight.
    let _ = stream.read_to_end(&mut rest).await;
    assert!(!rest.ends_with(b"0\r\n\r\n"), "a cut must not look whole");
}

#[tokio::test]
async fn an_upgraded_connection_ends_when_its_key_is_deleted() {
    let fixture = fixture(|_| {}).await;
    let port = fixture.server.port();
    let head = format!(
        "GET /sandbox/box/upgrade?port={port} HTTP/1.1\nHost: localhost\nX-API-Key: {KEY}\n\
         Connection: Upgrade\nUpgrade: echo\n\n"
    );
    let mut stream = send(&fixture, &head).await;
    let mut seen = Vec::new();
    while !seen.ends_with(b"\r\n\r\n") {
        seen.push(stream.read_u8().await.unwrap());
    }
    assert!(seen.starts_with(b"HTTP/1.1 101"));
    fixture.routes.key_deleted.send_replace(true);
    assert!(stream.read_u8().await.is_err());
}
