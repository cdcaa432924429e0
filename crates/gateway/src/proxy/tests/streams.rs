//! WebSockets over HTTP/2.

use http::Method;
use http_body_util::Empty;
use hyper::client::conn::http2;
use hyper::ext::Protocol;

use super::*;

/// A client of HTTP/2 that knows what the gateway understands.
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
async fn a_server_that_agrees_to_no_websocket_opens_none() {
    let fixture = fixture(|_| {}).await;
    let mut client = client(&fixture).await;
    // It says 200, which on a stream would mean that it agreed.
    let asked = connect(&fixture, "/", "websocket");
    assert_eq!(client.send_request(asked).await.unwrap().status(), 502);
    let asked = connect(&fixture, "/nothing", "websocket");
    assert_eq!(client.send_request(asked).await.unwrap().status(), 404);
}

#[tokio::test]
async fn a_sandbox_is_no_proxy_to_elsewhere() {
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
