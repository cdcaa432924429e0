//! Traces and request ids, from the caller to the driver and to the server in a sandbox.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{TcpListener as BlockingListener, TcpStream as BlockingStream};

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::trace::v1::Span;
use parking_lot::Mutex;
use prost::Message;
use shoal_engine::test_util::Refusals;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::{EnvFilter, Layer, Registry, fmt};

use super::served::{API, DOMAIN, Served};
use super::*;
use crate::telemetry::{subscriber, trace_provider};

/// The trace of the caller, and its span.
const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const PARENT: &str = "b7ad6b7169203331";

/// A collector of OTLP over HTTP. It answers one request with each connection.
struct Collector {
    url: String,
    spans: Arc<Mutex<Vec<Span>>>,
}

impl Collector {
    fn start() -> Self {
        let listener = BlockingListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/v1/traces", listener.local_addr().unwrap());
        let spans = Arc::<Mutex<Vec<Span>>>::default();
        let received = spans.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                receive(stream.unwrap(), &received);
            }
        });
        Self { url, spans }
    }
}

/// Adds the spans of one request. They are there before the answer.
fn receive(mut stream: BlockingStream, received: &Mutex<Vec<Span>>) {
    let mut bytes = Vec::new();
    let mut piece = [0; 4096];
    let message = loop {
        let count = stream.read(&mut piece).unwrap();
        assert_ne!(count, 0, "half a request");
        bytes.extend_from_slice(&piece[..count]);
        let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") else {
            continue;
        };
        let head = String::from_utf8_lossy(&bytes[..end]).to_ascii_lowercase();
        assert!(head.starts_with("post /v1/traces http/1.1\r\n"), "{head}");
        assert!(head.contains("content-type: application/x-protobuf"));
        let mut lines = head.lines();
        let length = lines.find_map(|line| line.strip_prefix("content-length: "));
        let length: usize = length.unwrap().parse().unwrap();
        if let Some(body) = bytes.get(end + 4..end + 4 + length) {
            break ExportTraceServiceRequest::decode(body).unwrap();
        }
    };
    let resources = message.resource_spans.into_iter();
    let scopes = resources.flat_map(|resource| resource.scope_spans);
    received.lock().extend(scopes.flat_map(|scope| scope.spans));
    let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
    stream.write_all(answer).unwrap();
}

/// The lines of a log.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Write::write(&mut *self.0.lock(), bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Lines {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

impl Lines {
    fn layer(&self) -> Box<dyn Layer<Registry> + Send + Sync> {
        fmt::layer()
            .with_ansi(false)
            .with_writer(self.clone())
            .boxed()
    }

    fn text(&self) -> String {
        String::from_utf8(self.0.lock().clone()).unwrap()
    }
}

/// Runs `test` on this thread, with everything that it spawns.
fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.unwrap().block_on(test);
}

/// Creates a sandbox and returns its id.
async fn create(served: &Served, headers: &str) -> String {
    let body = r#"{"templateID": "base", "secure": false}"#;
    let request = served.request(API, "POST /v2/sandboxes", headers, body);
    let answer = served.ask(request).await;
    assert!(answer.starts_with("HTTP/1.1 201 "), "{answer}");
    let id = answer.split(r#""sandboxID":""#).nth(1).unwrap();
    id.split('"').next().unwrap().to_owned()
}

/// A second subscriber. With only one, `tracing` asks the thread that reaches a span first, which may be
/// another test's without a subscriber, and the span stays disabled for all threads.
fn another_subscriber() -> tracing::Dispatch {
    tracing::Dispatch::new(tracing_subscriber::registry())
}

#[test]
#[allow(clippy::too_many_lines, reason = "a scenario reads from top to bottom")]
fn one_trace_leads_from_the_caller_to_the_driver_and_into_the_sandbox() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let collector = Collector::start();
    let provider = trace_provider(Some(&collector.url)).unwrap();
    let log = subscriber(
        Lines::default().layer(),
        EnvFilter::new("info"),
        Some(&provider),
    );
    let _another = another_subscriber();
    let guard = tracing::subscriber::set_default(log);
    run(async {
        let served = Served::start().await;
        let parent = format!("traceparent: 00-{TRACE}-{PARENT}-01\r\n");
        let id = create(&served, &parent).await;
        // The server in the sandbox.
        let inside = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = inside.local_addr().unwrap().port();
        let host = format!("{port}-{id}.{DOMAIN}");
        let asked = tokio::spawn(served.ask(served.request(&host, "GET /", &parent, "")));
        let (mut stream, _) = inside.accept().await.unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            stream.read_buf(&mut head).await.unwrap();
        }
        let ok = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
        stream.write_all(ok).await.unwrap();
        let answer = asked.await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
        let head = String::from_utf8(head).unwrap().to_ascii_lowercase();
        assert!(
            head.contains(&format!("traceparent: 00-{TRACE}-")),
            "{head}"
        );
        assert!(!head.contains(PARENT), "{head}");
        served.stop();
        served.served.await.unwrap();
    });
    drop(guard);
    provider.shutdown().unwrap();

    let spans = collector.spans.lock();
    let trace = hex::decode(TRACE).unwrap();
    let of_trace = spans.iter().filter(|span| span.trace_id == trace);
    let by_id: BTreeMap<&[u8], &Span> = of_trace.map(|span| (&span.span_id[..], span)).collect();
    // From each of these up to the caller.
    for path in [
        &[
            "driver.create",
            "sandbox.start",
            "create",
            "request",
            "http.server",
        ][..],
        &[
            "guest.init",
            "sandbox.start",
            "create",
            "request",
            "http.server",
        ],
        &["resolve", "create", "request", "http.server"],
        &["gateway.connect", "gateway.proxy", "http.server"],
    ] {
        let mut span = *by_id.values().find(|span| span.name == path[0]).unwrap();
        for above in &path[1..] {
            span = by_id[&span.parent_span_id[..]];
            assert_eq!(span.name, *above, "in {path:?}");
        }
        assert_eq!(hex::encode(&span.parent_span_id), PARENT);
    }
}

#[test]
fn every_line_of_a_request_has_its_id_across_the_mailbox_too() {
    let lines = Lines::default();
    // A filter that would hide the spans of requests.
    let log = subscriber(lines.layer(), EnvFilter::new("shoal_engine=warn"), None);
    let _another = another_subscriber();
    let guard = tracing::subscriber::set_default(log);
    run(async {
        let served = Served::start().await;
        let id = create(&served, "").await;
        served.driver.refuse(Refusals {
            resume: true,
            ..Refusals::default()
        });
        let call = |line: String, request: &str| {
            let header = format!("X-Request-ID: {request}\r\n");
            served.ask(served.request(API, &line, &header, "{}"))
        };
        call(format!("POST /sandboxes/{id}/pause"), "the-pause").await;
        let answer = call(format!("POST /sandboxes/{id}/resume"), "the-resume").await;
        assert!(answer.starts_with("HTTP/1.1 5"), "{answer}");
    });
    drop(guard);
    let text = lines.text();
    let line = text
        .lines()
        .find(|line| line.contains("cannot thaw a sandbox"));
    let line = line.unwrap_or_else(|| panic!("no such line in {text}"));
    assert!(line.contains(r#"request.id="the-resume""#), "{line}");
    assert!(!text.contains("the-pause"), "{text}");
}
