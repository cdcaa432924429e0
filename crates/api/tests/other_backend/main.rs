//! The API over a backend that is not the engine.
#![expect(clippy::unwrap_used, reason = "tests")]

mod memory;
mod openapi;
mod unused;

use axum::body::Body;
use axum::response::Response;
use http::{Method, Request};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use shoal_api::{ApiConfig, router};
use tower::ServiceExt;

use self::memory::{Memory, OTHER_KEY, OWN_KEY, envd_token};

struct Api(axum::Router);

impl Api {
    fn new() -> Self {
        Self(router(Memory::default().ports(), ApiConfig::default()))
    }

    async fn call(&self, key: &str, method: Method, path: &str, body: Value) -> (u16, Value) {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("x-api-key", key)
            .header("content-type", "application/json");
        let body = match body {
            Value::Null => Body::empty(),
            body => Body::from(body.to_string()),
        };
        let request = request.body(body).unwrap();
        let response: Response = self.0.clone().oneshot(request).await.unwrap();
        let status = response.status().as_u16();
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        (status, serde_json::from_slice(&bytes).unwrap_or_default())
    }
}

#[tokio::test]
async fn the_e2b_api_creates_lists_and_kills_on_any_backend() {
    let api = Api::new();
    let new = json!({"templateID": "base", "metadata": {"a": "b"}});
    let (status, created) = api.call(OWN_KEY, Method::POST, "/sandboxes", new).await;
    assert_eq!(status, 201, "{created}");
    let id = created["sandboxID"].as_str().unwrap();
    assert_eq!(created["envdAccessToken"], envd_token(id));

    let list = async |key| {
        let (status, list) = api
            .call(key, Method::GET, "/v2/sandboxes", Value::Null)
            .await;
        assert_eq!(status, 200, "{list}");
        list.as_array().unwrap().clone()
    };
    let listed = list(OWN_KEY).await;
    assert_eq!(listed.len(), 1);
    assert_eq!(listed[0]["sandboxID"], id);
    assert_eq!(listed[0]["metadata"], json!({"a": "b"}));
    assert!(list(OTHER_KEY).await.is_empty());

    let path = format!("/sandboxes/{id}");
    let kill = async |key| api.call(key, Method::DELETE, &path, Value::Null).await.0;
    assert_eq!(kill(OTHER_KEY).await, 404);
    assert_eq!(kill(OWN_KEY).await, 204);
    assert_eq!(kill(OWN_KEY).await, 404);
    assert!(list(OWN_KEY).await.is_empty());
}

#[tokio::test]
async fn the_native_api_shows_the_same_sandbox() {
    let api = Api::new();
    let new = json!({"templateID": "base"});
    let (_, created) = api.call(OWN_KEY, Method::POST, "/sandboxes", new).await;
    let id = created["sandboxID"].as_str().unwrap();
    let path = format!("/api/v1/sandbox/{id}");
    let (status, shown) = api.call(OWN_KEY, Method::GET, &path, Value::Null).await;
    assert_eq!(status, 200, "{shown}");
    assert_eq!(shown["data"]["id"], id);
    assert_eq!(shown["data"]["status"], "running");
    let (status, _) = api.call(OTHER_KEY, Method::GET, &path, Value::Null).await;
    assert_eq!(status, 404);
}

#[tokio::test]
async fn a_neutral_error_has_the_text_that_clients_look_for() {
    let api = Api::new();
    let new = json!({"templateID": "base", "timeout": 999_999});
    let (status, refused) = api.call(OWN_KEY, Method::POST, "/sandboxes", new).await;
    assert_eq!(status, 400);
    let message = refused["message"].as_str().unwrap();
    assert_eq!(message, "Timeout cannot be greater than 1 hours");
    let (status, _) = api
        .call("not-a-key", Method::GET, "/sandboxes", Value::Null)
        .await;
    assert_eq!(status, 401);
}
