//! The audit log of API calls.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::sync::{Arc, mpsc};

use axum::Router;
use axum::body::Body;
use http::{Method, Request, StatusCode};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use shoal_api::{ApiConfig, ClientAddress, router};
use shoal_core::audit::{AuditEvent, AuditLog, AuditResult, AuditSource};
use shoal_engine::test_util::{self, base_template};
use tower::ServiceExt;

/// Hands every event to the test.
struct Told(mpsc::Sender<(AuditSource, AuditEvent)>);

impl AuditLog for Told {
    fn record(&self, source: AuditSource, event: AuditEvent) {
        // The test may have ended.
        let _ = self.0.send((source, event));
    }
}

struct Fixture {
    _directory: tempfile::TempDir,
    router: Router,
    key: String,
    told: mpsc::Receiver<(AuditSource, AuditEvent)>,
}

async fn fixture() -> Fixture {
    let directory = tempfile::tempdir().unwrap();
    let engine = test_util::open(test_util::parts(directory.path())).await;
    engine.put_template(base_template()).await.unwrap();
    let key = engine.mint_first_key(|_| Ok(())).await.unwrap().unwrap();
    let (sender, told) = mpsc::channel();
    let config = ApiConfig {
        audit: Arc::new(Told(sender)),
        ..ApiConfig::default()
    };
    Fixture {
        _directory: directory,
        router: router(engine.ports(), config),
        key: key.reveal().to_owned(),
        told,
    }
}

impl Fixture {
    async fn call(&self, method: Method, path: &str, key: &str, body: Value) -> (u16, Value) {
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header("x-api-key", key)
            .header("x-request-id", "of-the-test")
            .header("content-type", "application/json")
            .body(Body::from(body.to_string()))
            .unwrap();
        let address = ClientAddress([192, 0, 2, 7].into());
        request.extensions_mut().insert(address);
        let response = self.router.clone().oneshot(request).await.unwrap();
        let status = response.status().as_u16();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (status, serde_json::from_slice(&body).unwrap_or(Value::Null))
    }

    /// The only event since the last one that was asked for.
    fn event(&self) -> (AuditSource, AuditEvent) {
        let event = self.told.try_recv().unwrap();
        assert!(self.told.try_recv().is_err(), "more than one");
        event
    }
}

#[tokio::test]
async fn a_change_is_told_with_who_what_and_how_it_ended() {
    let fixture = fixture().await;
    let body = json!({"templateID": "base", "envVars": {"PASSWORD": "hunter2"}});
    let (status, made) = fixture
        .call(Method::POST, "/v2/sandboxes", &fixture.key, body)
        .await;
    assert_eq!(status, 201, "{made}");
    let id = made["sandboxID"].as_str().unwrap().to_owned();
    let (source, event) = fixture.event();
    assert_eq!(source, AuditSource::Team("default".parse().unwrap()));
    assert_eq!(
        (event.action, event.result),
        ("sandbox.create", AuditResult::Ok)
    );
    assert_eq!(event.target, std::slice::from_ref(&id));
    assert_eq!(event.address, Some([192, 0, 2, 7].into()));
    assert_eq!(event.request.as_deref(), Some("of-the-test"));
    assert!(event.key.is_some());
    let text = serde_json::to_string(&event).unwrap();
    assert!(
        !text.contains("hunter2") && !text.contains(&fixture.key),
        "{text}"
    );

    let path = format!("/e2b/v1/sandboxes/{id}");
    fixture
        .call(Method::GET, &path, &fixture.key, Value::Null)
        .await;
    assert!(fixture.told.try_recv().is_err(), "reading changes nothing");
    fixture
        .call(Method::DELETE, &path, &fixture.key, Value::Null)
        .await;
    let (_, event) = fixture.event();
    assert_eq!((event.action, event.target), ("sandbox.kill", vec![id]));
    assert_eq!(
        event.route.as_deref(),
        Some("DELETE /e2b/v1/sandboxes/{id}")
    );
    fixture
        .call(
            Method::POST,
            "/sandboxes/iabc/pause",
            &fixture.key,
            json!({}),
        )
        .await;
    let (_, event) = fixture.event();
    assert_eq!(
        (event.action, event.result),
        ("sandbox.pause", AuditResult::Refused)
    );
}

#[tokio::test]
async fn a_caller_without_a_key_is_told_of_as_a_stranger_and_its_key_is_not() {
    let fixture = fixture().await;
    let wrong = format!("e2b_{}", "0".repeat(40));
    for path in ["/sandboxes", "/api/v1/keys", &format!("/sandboxes/{wrong}")] {
        let (status, _) = fixture.call(Method::GET, path, &wrong, Value::Null).await;
        assert_eq!(status, StatusCode::UNAUTHORIZED);
        let (source, event) = fixture.event();
        assert_eq!(source, AuditSource::Stranger);
        assert_eq!(
            (event.result, event.status),
            (AuditResult::Denied, Some(401))
        );
        assert!(!serde_json::to_string(&event).unwrap().contains("e2b_00"));
    }
}

#[tokio::test]
async fn keys_are_told_of_by_their_ids() {
    let fixture = fixture().await;
    let body = json!({"name": "second", "team": "other"});
    let (status, made) = fixture
        .call(Method::POST, "/api/v1/keys", &fixture.key, body)
        .await;
    assert_eq!(status, 201);
    let (_, event) = fixture.event();
    assert_eq!(event.action, "key.create");
    let id = made["data"]["id"].as_str().unwrap();
    assert_eq!(event.target, [id, "other"]);
    let secret = made["data"]["secret"].as_str().unwrap();
    assert!(!serde_json::to_string(&event).unwrap().contains(secret));
    let (status, _) = fixture
        .call(Method::GET, "/api/v1/keys", secret, Value::Null)
        .await;
    assert_eq!(status, 403);
    let (source, event) = fixture.event();
    assert_eq!(source, AuditSource::Team("other".parse().unwrap()));
    assert_eq!(
        (event.action, event.result),
        ("api.read", AuditResult::Denied)
    );
}

#[tokio::test]
async fn what_is_no_route_is_answered_as_before() {
    let fixture = fixture().await;
    let (status, _) = fixture
        .call(Method::POST, "/nothing/there", &fixture.key, Value::Null)
        .await;
    assert_eq!(status, 404);
    assert!(fixture.told.try_recv().is_err());
}
