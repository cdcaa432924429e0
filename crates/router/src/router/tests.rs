//! The router in front of a server on loopback.

use http::header::{AUTHORIZATION, HOST, HeaderName};
use http::{HeaderMap, HeaderValue, StatusCode};
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::mpsc;

use super::*;

const TOKEN: &str = "0123456789abcdef";

/// A sandbox `box` of the namespace `team`, whose server answers every request with `yes`.
struct Served {
    router: Router,
    port: u16,
    heads: mpsc::UnboundedReceiver<String>,
    _tokens: tempfile::TempDir,
}

impl Served {
    async fn start(open: bool) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (tx, heads) = mpsc::unbounded_channel();
        tokio::spawn(serve(listener, tx));
        let table = Arc::new(Table::new("cluster.local"));
        let key = ("team".to_owned(), "box".to_owned());
        table.put(&key, "uid", Some([127, 0, 0, 1].into()));
        let tokens = tempfile::tempdir().unwrap();
        let file = tokens.path().join("tokens");
        std::fs::write(&file, TOKEN).unwrap();
        let how = if open {
            Authentication::Open
        } else {
            Authentication::TokenFile(file)
        };
        let authenticator = match how {
            Authentication::Open => Authenticator::Open,
            other => Authenticator::new(other, nowhere()).await.unwrap(),
        };
        let timeout = Duration::from_secs(30);
        let router = Router::new(table, GatewayConfig::default(), authenticator, timeout);
        Self {
            router,
            port,
            heads,
            _tokens: tokens,
        }
    }

    async fn ask(&self, pairs: &[(&'static str, &str)]) -> (StatusCode, HeaderMap, String) {
        let mut request = Request::get("/some/path?a=b").header(HOST, "router.example");
        for (name, value) in pairs {
            request = request.header(HeaderName::from_static(name), *value);
        }
        let request = request.body(Full::new(Bytes::new())).unwrap();
        let answer = self.router.answer(request, Client::default()).await;
        let (parts, body) = answer.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        let body = String::from_utf8(body.to_vec()).unwrap();
        (parts.status, parts.headers, body)
    }
}

/// A client of a cluster that does not exist.
fn nowhere() -> KubeClient {
    KubeClient::try_from(Config::new("http://127.0.0.1:1".parse().unwrap())).unwrap()
}

/// Answers requests without bodies, and sends their heads. A path with `slow` is never answered.
async fn serve(listener: TcpListener, heads: mpsc::UnboundedSender<String>) {
    loop {
        let (mut stream, _) = listener.accept().await.unwrap();
        let heads = heads.clone();
        tokio::spawn(async move {
            let mut read = Vec::new();
            while stream.read_buf(&mut read).await.unwrap_or(0) > 0 {
                if read.ends_with(b"\r\n\r\n") {
                    let head = String::from_utf8(std::mem::take(&mut read)).unwrap();
                    let slow = head.to_ascii_lowercase().contains("\r\nx-slow:");
                    heads.send(head).unwrap();
                    if !slow {
                        let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nyes";
                        stream.write_all(answer).await.unwrap();
                    }
                }
            }
        });
    }
}

fn detail(body: &str) -> String {
    let body: Value = serde_json::from_str(body).unwrap();
    body["detail"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_request_reaches_its_sandbox_without_the_routers_headers() {
    let mut served = Served::start(false).await;
    let (port, bearer) = (served.port.to_string(), format!("Bearer {TOKEN}"));
    let (status, _, body) = served
        .ask(&[
            ("x-sandbox-id", "box"),
            ("x-sandbox-namespace", "team"),
            ("x-sandbox-port", &port),
            ("x-sandbox-pod-ip", "10.0.0.9"),
            ("x-sandbox-timeout", "20"),
            ("authorization", &bearer),
            ("x-own", "kept"),
        ])
        .await;
    assert_eq!((status, body.as_str()), (StatusCode::OK, "yes"));
    let head = served.heads.recv().await.unwrap().to_ascii_lowercase();
    assert!(
        head.starts_with("get /some/path?a=b http/1.1\r\n"),
        "{head}"
    );
    assert!(head.contains(&format!("\r\nhost: box.team.svc.cluster.local:{port}\r\n")));
    assert!(head.contains("\r\nx-own: kept\r\n"));
    assert!(
        !head.contains("x-sandbox-") && !head.contains(TOKEN),
        "{head}"
    );
}

#[tokio::test]
async fn a_request_without_a_valid_token_is_refused() {
    let served = Served::start(false).await;
    let port = served.port.to_string();
    let named = [
        ("x-sandbox-id", "box"),
        ("x-sandbox-namespace", "team"),
        ("x-sandbox-port", port.as_str()),
    ];
    for wrong in [
        None,
        Some(("authorization", "Bearer wrong")),
        Some(("authorization", TOKEN)),
        Some(("x-api-key", "wrong")),
    ] {
        let pairs: Vec<_> = named.into_iter().chain(wrong).collect();
        let (status, headers, body) = served.ask(&pairs).await;
        assert_eq!(status, StatusCode::UNAUTHORIZED, "{wrong:?}");
        assert_eq!(headers["www-authenticate"], "Bearer");
        assert!(!detail(&body).is_empty());
    }
    let pairs: Vec<_> = named.into_iter().chain([("x-api-key", TOKEN)]).collect();
    assert_eq!(served.ask(&pairs).await.0, StatusCode::OK);
}

#[tokio::test]
async fn an_open_router_passes_authorization_on() {
    let mut served = Served::start(true).await;
    let port = served.port.to_string();
    let (status, ..) = served
        .ask(&[
            ("x-sandbox-id", "box"),
            ("x-sandbox-namespace", "team"),
            ("x-sandbox-port", &port),
            ("authorization", "Bearer of-the-sandbox"),
        ])
        .await;
    assert_eq!(status, StatusCode::OK);
    let head = served.heads.recv().await.unwrap();
    assert!(head.contains("Bearer of-the-sandbox"), "{head}");
}

#[tokio::test]
async fn refusals_have_the_texts_that_clients_know() {
    let served = Served::start(true).await;
    let port = served.port.to_string();
    for (pairs, status, text) in [
        (&[][..], 400, "X-Sandbox-ID header is required."),
        (
            &[("x-sandbox-id", "a.b")],
            400,
            "Invalid sandbox ID format.",
        ),
        (
            &[("x-sandbox-id", "box"), ("x-sandbox-namespace", "team")],
            502,
            "Could not connect to the backend sandbox: box",
        ),
        // One of another namespace, and one that does not exist.
        (
            &[("x-sandbox-id", "box"), ("x-sandbox-port", &port)],
            502,
            "Could not connect to the backend sandbox: box",
        ),
        (
            &[("x-sandbox-id", "kubernetes"), ("x-sandbox-port", "443")],
            502,
            "Could not connect to the backend sandbox: kubernetes",
        ),
    ] {
        let (seen, headers, body) = served.ask(pairs).await;
        assert_eq!((seen.as_u16(), detail(&body)), (status, text.to_owned()));
        assert_eq!(headers["content-type"], "application/json");
    }
}

#[tokio::test]
async fn a_slow_server_is_given_up_at_the_clients_timeout() {
    let served = Served::start(true).await;
    let port = served.port.to_string();
    let begun = Instant::now();
    let (status, _, body) = served
        .ask(&[
            ("x-sandbox-id", "box"),
            ("x-sandbox-namespace", "team"),
            ("x-sandbox-port", &port),
            ("x-sandbox-timeout", "0.2"),
            ("x-slow", "1"),
        ])
        .await;
    assert_eq!(status, StatusCode::GATEWAY_TIMEOUT);
    assert_eq!(detail(&body), "The sandbox did not answer in time: box");
    assert!(begun.elapsed() < Duration::from_secs(20));
}

#[tokio::test]
async fn the_health_check_needs_no_header_and_no_token() {
    let served = Served::start(false).await;
    let request = || {
        Request::get("/healthz")
            .body(Full::new(Bytes::new()))
            .unwrap()
    };
    let answer = served.router.answer(request(), Client::default()).await;
    assert_eq!(answer.status(), StatusCode::OK);
    let body = answer.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(
        serde_json::from_slice::<Value>(&body).unwrap(),
        json!({"status": "ok"})
    );
    // A sandbox may have a path of this name.
    let mut named = request();
    named
        .headers_mut()
        .insert("x-sandbox-id", HeaderValue::from_static("box"));
    named
        .headers_mut()
        .insert(AUTHORIZATION, HeaderValue::from_static("Bearer wrong"));
    let answer = served.router.answer(named, Client::default()).await;
    assert_eq!(answer.status(), StatusCode::UNAUTHORIZED);
}
