//! The stream of events of sandboxes.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::time::Duration;

use axum::Router;
use axum::body::{Body, BodyDataStream};
use futures_util::StreamExt;
use http::header::CONTENT_TYPE;
use http::{Method, Request};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use shoal_api::{ApiConfig, router};
use shoal_engine::test_util::{self, base_template};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

const EVENTS: &str = "/api/v1/sandboxes/events";

/// Longer than any event takes.
const PATIENCE: Duration = Duration::from_secs(60);

struct Fixture {
    _directory: tempfile::TempDir,
    router: Router,
    admin: String,
    stopping: CancellationToken,
}

/// The events of a response.
struct Told {
    body: BodyDataStream,
    text: String,
}

#[derive(Debug, PartialEq)]
struct Event {
    id: String,
    name: String,
    data: Value,
}

impl Told {
    /// The next event; none at the end. An error is an end, too.
    async fn next(&mut self) -> Option<Event> {
        loop {
            if let Some((event, rest)) = self.text.split_once("\n\n") {
                let fields: Vec<_> = event.lines().filter_map(|l| l.split_once(": ")).collect();
                let field = |name| fields.iter().find(|field| field.0 == name).unwrap().1;
                let event = Event {
                    id: field("id").to_owned(),
                    name: field("event").to_owned(),
                    data: serde_json::from_str(field("data")).unwrap(),
                };
                self.text = rest.to_owned();
                return Some(event);
            }
            let data = tokio::time::timeout(PATIENCE, self.body.next()).await;
            let data = data.unwrap()?.ok()?;
            self.text.push_str(std::str::from_utf8(&data).unwrap());
        }
    }

    async fn expect(&mut self, name: &str) -> Value {
        let event = self.next().await.unwrap();
        assert_eq!(event.name, name, "{event:?}");
        event.data
    }
}

impl Fixture {
    async fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let engine = test_util::open(test_util::parts(directory.path())).await;
        engine.put_template(base_template()).await.unwrap();
        let key = engine.mint_first_key(|_| Ok(())).await.unwrap().unwrap();
        let stopping = CancellationToken::new();
        let config = ApiConfig {
            stopping: stopping.clone(),
            ..ApiConfig::default()
        };
        Self {
            _directory: directory,
            router: router(engine.ports(), config),
            admin: key.reveal().to_owned(),
            stopping,
        }
    }

    async fn send(
        &self,
        key: &str,
        request: http::request::Builder,
        body: &Value,
    ) -> http::Response<Body> {
        let body = if body.is_null() {
            Body::empty()
        } else {
            Body::from(body.to_string())
        };
        let request = request.header("x-api-key", key).body(body).unwrap();
        self.router.clone().oneshot(request).await.unwrap()
    }

    async fn call(&self, key: &str, method: Method, path: &str, body: Value) -> (u16, Value) {
        let request = Request::builder().method(method).uri(path);
        let response = self.send(key, request, &body).await;
        let status = response.status().as_u16();
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        (status, serde_json::from_slice(&bytes).unwrap_or_default())
    }

    async fn listen(&self, key: &str, request: http::request::Builder) -> Told {
        let response = self.send(key, request, &Value::Null).await;
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()[CONTENT_TYPE], "text/event-stream");
        let mut told = Told {
            body: response.into_body().into_data_stream(),
            text: String::new(),
        };
        told.expect("ready").await;
        told
    }

    async fn tenant(&self) -> (String, String) {
        let body = json!({"name": "ci", "team": "acme"});
        let (status, made) = self
            .call(&self.admin, Method::POST, "/api/v1/keys", body)
            .await;
        assert_eq!(status, 201);
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        (text(&made["data"]["id"]), text(&made["data"]["secret"]))
    }

    async fn create(&self, key: &str) -> String {
        let body = json!({"templateID": "base"});
        let (status, made) = self.call(key, Method::POST, "/sandboxes", body).await;
        assert_eq!(status, 201, "{made}");
        made["sandboxID"].as_str().unwrap().to_owned()
    }

    async fn kill(&self, key: &str, id: &str) {
        let path = format!("/sandboxes/{id}");
        let (status, _) = self.call(key, Method::DELETE, &path, Value::Null).await;
        assert_eq!(status, 204);
    }
}

fn own() -> http::request::Builder {
    Request::get(EVENTS)
}

#[tokio::test]
async fn a_reader_is_told_what_happens_to_its_teams_sandboxes_in_order() {
    let fixture = Fixture::new().await;
    let (_, tenant) = fixture.tenant().await;
    let mut told = fixture.listen(&tenant, own()).await;
    let foreign = fixture.create(&fixture.admin).await;
    let id = fixture.create(&tenant).await;
    for action in ["pause", "resume"] {
        let path = format!("/api/v1/sandbox/{action}/{id}");
        let (status, _) = fixture.call(&tenant, Method::POST, &path, json!({})).await;
        assert_eq!(status, 200);
    }
    fixture.kill(&fixture.admin, &foreign).await;
    fixture.kill(&tenant, &id).await;
    for (number, kind) in ["created", "paused", "resumed", "killed"]
        .iter()
        .enumerate()
    {
        let event = told.next().await.unwrap();
        assert_eq!(
            (event.name.as_str(), event.id),
            ("sandbox", (number + 1).to_string())
        );
        assert_eq!(event.data["type"], *kind);
        assert_eq!(event.data["sandboxId"], id);
        assert_eq!(event.data["user"], "acme");
        assert!(event.data["at"].is_string() && event.data["template"].is_string());
    }
}

#[tokio::test]
async fn an_admin_is_told_of_all_teams_when_it_asks() {
    let fixture = Fixture::new().await;
    let (_, tenant) = fixture.tenant().await;
    let all = || Request::get(format!("{EVENTS}?all=true"));
    let mut of_all = fixture.listen(&fixture.admin, all()).await;
    let mut of_own = fixture.listen(&fixture.admin, own()).await;
    let foreign = fixture.create(&tenant).await;
    let id = fixture.create(&fixture.admin).await;
    assert_eq!(of_all.expect("sandbox").await["sandboxId"], foreign);
    assert_eq!(of_all.expect("sandbox").await["sandboxId"], id);
    assert_eq!(of_own.expect("sandbox").await["sandboxId"], id);
    let refused = fixture.send(&tenant, all(), &Value::Null).await;
    assert_eq!(refused.status(), 403);
}

#[tokio::test]
async fn a_reader_that_returns_or_is_too_slow_is_told_to_read_the_list_again() {
    let fixture = Fixture::new().await;
    let key = &fixture.admin;
    let mut returned = fixture
        .listen(key, own().header("last-event-id", "7"))
        .await;
    returned.expect("lagged").await;
    // It reads nothing more until all of this has happened, which is more than is kept for it.
    let id = fixture.create(key).await;
    let path = format!("/sandboxes/{id}/timeout");
    for timeout in 1000..2100 {
        let body = json!({"timeout": timeout});
        assert_eq!(fixture.call(key, Method::POST, &path, body).await.0, 204);
    }
    fixture.kill(key, &id).await;
    returned.expect("lagged").await;
    assert_eq!(returned.expect("sandbox").await["type"], "updated");
    while returned.expect("sandbox").await["type"] != "killed" {}
}

#[tokio::test]
async fn the_stream_ends_with_the_key_and_with_the_server() {
    let fixture = Fixture::new().await;
    let (id, tenant) = fixture.tenant().await;
    let mut of_tenant = fixture.listen(&tenant, own()).await;
    let mut of_admin = fixture.listen(&fixture.admin, own()).await;
    let path = format!("/api/v1/keys/{id}");
    let (status, _) = fixture
        .call(&fixture.admin, Method::DELETE, &path, Value::Null)
        .await;
    assert_eq!(status, 200);
    assert_eq!(of_tenant.next().await, None);
    fixture.stopping.cancel();
    assert_eq!(of_admin.next().await, None);
}
