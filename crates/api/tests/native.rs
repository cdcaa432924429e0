//! Shoal's own routes over HTTP, with a driver that only remembers and images that are made up.
#![expect(clippy::unwrap_used, reason = "tests")]
#![allow(clippy::too_many_lines, reason = "a scenario reads from top to bottom")]

use std::path::PathBuf;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use http::{Method, Request, StatusCode};
use http_body_util::BodyExt;
use parking_lot::Mutex;
use serde_json::{Value, json};
use shoal_api::{ApiConfig, router};
use shoal_core::BoxFuture;
use shoal_core::image::{
    Image, ImageError, ImageName, Images, Progress, ProgressSink, RegistryAuth,
};
use shoal_engine::EngineParts;
use shoal_engine::test_util;
use tokio::sync::Notify;
use tower::ServiceExt;

/// Has every image, except `missing`. A pull of `slow` never ends.
#[derive(Default)]
struct MadeUp {
    images: Mutex<Vec<Image>>,
    auth: Mutex<Option<RegistryAuth>>,
    given_up: Arc<Notify>,
}

struct Told(Arc<Notify>);

impl Drop for Told {
    fn drop(&mut self) {
        self.0.notify_one();
    }
}

fn image(name: ImageName) -> Image {
    Image {
        env: vec!["A=image".to_owned(), "B=image".to_owned()],
        ..test_util::image(name)
    }
}

impl Images for MadeUp {
    fn list(&self) -> BoxFuture<'_, Result<Vec<Image>, ImageError>> {
        Box::pin(async { Ok(self.images.lock().clone()) })
    }

    fn find(&self, name: &ImageName) -> BoxFuture<'_, Result<Option<Image>, ImageError>> {
        let name = name.clone();
        Box::pin(async move {
            let images = self.images.lock();
            Ok(images.iter().find(|image| image.name == name).cloned())
        })
    }

    fn pull(
        &self,
        name: ImageName,
        auth: Option<RegistryAuth>,
        progress: Arc<dyn ProgressSink>,
    ) -> BoxFuture<'_, Result<Image, ImageError>> {
        Box::pin(async move {
            *self.auth.lock() = auth;
            let _told = Told(self.given_up.clone());
            if name.as_str() == "missing" {
                return Err(ImageError::NotFound(name));
            }
            progress.report(Progress {
                step: "layer".to_owned(),
                done: 1,
                total: Some(2),
            });
            if name.as_str() == "slow" {
                std::future::pending::<()>().await;
            }
            let image = image(name);
            self.images.lock().push(image.clone());
            Ok(image)
        })
    }

    fn pull_public(
        &self,
        name: ImageName,
        auth: Option<RegistryAuth>,
        progress: Arc<dyn ProgressSink>,
    ) -> BoxFuture<'_, Result<Image, ImageError>> {
        self.pull(name, auth, progress)
    }

    fn import(
        &self,
        path: PathBuf,
        name: ImageName,
        progress: Arc<dyn ProgressSink>,
    ) -> BoxFuture<'_, Result<Image, ImageError>> {
        Box::pin(async move {
            if path.as_os_str() == "/no/such" {
                let source = std::io::ErrorKind::NotFound.into();
                let action = "read";
                return Err(ImageError::Io {
                    action,
                    path,
                    source,
                });
            }
            self.pull(name, None, progress).await
        })
    }

    fn remove(&self, name: &ImageName) -> BoxFuture<'_, Result<(), ImageError>> {
        self.images.lock().retain(|image| image.name != *name);
        Box::pin(async { Ok(()) })
    }
}

struct Fixture {
    _directory: tempfile::TempDir,
    router: Router,
    key: String,
    images: Arc<MadeUp>,
}

async fn fixture() -> Fixture {
    let directory = tempfile::tempdir().unwrap();
    let images = Arc::new(MadeUp::default());
    let engine = test_util::open(EngineParts {
        images: images.clone(),
        ..test_util::parts(directory.path())
    })
    .await;
    let key = engine.mint_first_key(|_| Ok(())).await.unwrap().unwrap();
    Fixture {
        _directory: directory,
        router: router(engine.ports(), ApiConfig::default()),
        key: key.reveal().to_owned(),
        images,
    }
}

fn request(key: &str, method: &str, path: &str, body: &Value) -> Request<Body> {
    let body = if body.is_null() {
        Body::empty()
    } else {
        Body::from(body.to_string())
    };
    Request::builder()
        .method(Method::from_bytes(method.as_bytes()).unwrap())
        .uri(path)
        .header("X-API-Key", key)
        .body(body)
        .unwrap()
}

impl Fixture {
    async fn text(&self, key: &str, method: &str, path: &str, body: Value) -> (StatusCode, String) {
        let request = request(key, method, path, &body);
        let response = self.router.clone().oneshot(request).await.unwrap();
        let status = response.status();
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        (status, String::from_utf8(bytes.to_vec()).unwrap())
    }

    async fn call_as(&self, key: &str, method: &str, path: &str, body: Value) -> (u16, Value) {
        let (status, text) = self.text(key, method, path, body).await;
        let value: Value = serde_json::from_str(&text).unwrap();
        let code = if status.is_success() {
            "0".to_owned()
        } else {
            status.as_u16().to_string()
        };
        assert_eq!(value["code"], code, "{value}");
        assert!(value["message"].is_string());
        (status.as_u16(), value)
    }

    async fn call(&self, method: &str, path: &str, body: Value) -> (u16, Value) {
        self.call_as(&self.key, method, path, body).await
    }

    async fn lines(&self, path: &str, body: Value) -> Vec<Value> {
        let (status, text) = self.text(&self.key, "POST", path, body).await;
        assert_eq!(status, 200, "{text}");
        text.lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }

    async fn tenant_key(&self) -> String {
        let body = json!({"name": "ci", "team": "acme"});
        let (status, made) = self.call("POST", "/api/v1/keys", body).await;
        assert_eq!(status, 201);
        made["data"]["secret"].as_str().unwrap().to_owned()
    }
}

#[tokio::test]
async fn a_key_is_made_told_once_listed_masked_used_and_removed() {
    let fixture = fixture().await;
    let secret = fixture.tenant_key().await;
    assert!(secret.starts_with("e2b_"));
    let (status, seen) = fixture
        .call_as(&secret, "GET", "/api/v1/status", Value::Null)
        .await;
    assert_eq!(status, 200);
    assert_eq!(seen["data"]["team"], "acme");
    assert_eq!(seen["data"]["admin"], false);
    assert_eq!(seen["data"]["runtimes"][0]["name"], "fake");
    let (_, keys) = fixture.call("GET", "/api/v1/keys", Value::Null).await;
    let keys = keys["data"].as_array().unwrap().clone();
    assert_eq!(keys.len(), 2);
    assert!(keys.iter().all(|key| key.get("secret").is_none()));
    let (own, other): (Vec<_>, Vec<_>) = keys.iter().partition(|key| key["own"] == true);
    let path = |key: &Value| format!("/api/v1/keys/{}", key["id"].as_str().unwrap());
    let (status, _) = fixture.call("DELETE", &path(own[0]), Value::Null).await;
    assert_eq!(status, 409, "a key cannot remove itself");
    let (status, _) = fixture.call("DELETE", &path(other[0]), Value::Null).await;
    assert_eq!(status, 200);
    let (status, _) = fixture.call("DELETE", &path(other[0]), Value::Null).await;
    assert_eq!(status, 404);
    let (status, _) = fixture
        .call_as(&secret, "GET", "/api/v1/status", Value::Null)
        .await;
    assert_eq!(status, 401);
}

#[tokio::test]
async fn what_is_the_admins_is_closed_to_other_keys() {
    let fixture = fixture().await;
    let secret = fixture.tenant_key().await;
    for (method, path, body) in [
        ("GET", "/api/v1/keys", Value::Null),
        ("POST", "/api/v1/keys", json!({"name": "x"})),
        ("DELETE", "/api/v1/keys/x", Value::Null),
        ("GET", "/api/v1/images", Value::Null),
        ("POST", "/api/v1/images/pull", json!({"name": "a"})),
        (
            "POST",
            "/api/v1/images/import",
            json!({"name": "a", "path": "/a"}),
        ),
        ("DELETE", "/api/v1/images?name=a", Value::Null),
        (
            "POST",
            "/api/v1/templates",
            json!({"name": "a", "image": "a"}),
        ),
        ("DELETE", "/api/v1/templates/a", Value::Null),
    ] {
        let (status, _) = fixture.call_as(&secret, method, path, body).await;
        assert_eq!(status, 403, "{method} {path}");
    }
    let (status, _) = fixture
        .call_as("e2b_00", "GET", "/api/v1/keys", Value::Null)
        .await;
    assert_eq!(status, 401);
}

#[tokio::test]
async fn foolish_calls_are_answered_in_the_envelope() {
    let fixture = fixture().await;
    let big = json!({"name": "x".repeat(17 << 20)});
    for (method, path, body, status, text) in [
        ("GET", "/api/v1/nothing", Value::Null, 404, "no such route"),
        ("PUT", "/api/v1/keys", Value::Null, 405, "method"),
        (
            "POST",
            "/api/v1/keys",
            json!({}),
            400,
            "missing field `name`",
        ),
        ("POST", "/api/v1/keys", json!({"name": ""}), 400, "1 to 128"),
        (
            "POST",
            "/api/v1/keys",
            json!({"name": "a", "teem": "b"}),
            400,
            "teem",
        ),
        (
            "POST",
            "/api/v1/keys",
            json!({"name": "a", "team": "B b"}),
            400,
            "invalid team",
        ),
        ("POST", "/api/v1/keys", big, 413, "limit"),
        ("DELETE", "/api/v1/keys/none", Value::Null, 404, "not found"),
        (
            "POST",
            "/api/v1/images/pull",
            json!({"name": "../x"}),
            400,
            "image name",
        ),
        (
            "POST",
            "/api/v1/images/pull",
            json!({"name": "x", "username": "u"}),
            400,
            "password",
        ),
        (
            "POST",
            "/api/v1/images/import",
            json!({"name": "x", "path": "x.tar"}),
            400,
            "absolute",
        ),
        ("DELETE", "/api/v1/images", Value::Null, 400, "`name`"),
        (
            "DELETE",
            "/api/v1/images?name=none",
            Value::Null,
            404,
            "not found",
        ),
        (
            "GET",
            "/api/v1/templates/none",
            Value::Null,
            404,
            "not found",
        ),
        (
            "DELETE",
            "/api/v1/templates/none",
            Value::Null,
            404,
            "not found",
        ),
        (
            "POST",
            "/api/v1/templates",
            json!({"name": "a", "image": "none"}),
            404,
            "pull or import it first",
        ),
        (
            "POST",
            "/api/v1/templates",
            json!({"name": "A!", "image": "a"}),
            400,
            "`name`",
        ),
        (
            "POST",
            "/api/v1/templates",
            json!({"name": "a", "image": "a", "memoryMB": 1}),
            400,
            "memory (MiB) must be between",
        ),
        (
            "POST",
            "/api/v1/templates",
            json!({"name": "a", "image": "a", "runtime": "qemu"}),
            400,
            "there are: fake",
        ),
        (
            "POST",
            "/api/v1/templates",
            json!({"name": "a", "image": "a", "workdir": "x"}),
            400,
            "`workdir`",
        ),
        (
            "POST",
            "/api/v1/templates",
            json!({"name": "a", "image": "a", "env": {"A=": "x"}}),
            400,
            "`env`",
        ),
    ] {
        let (seen, answer) = fixture.call(method, path, body).await;
        let message = answer["message"].as_str().unwrap();
        assert_eq!(seen, status, "{method} {path}: {message}");
        assert!(message.contains(text), "{method} {path}: {message}");
        assert_eq!(answer["data"], Value::Null);
    }
}

#[tokio::test]
async fn a_pull_is_told_in_lines_that_end_in_the_image_or_in_what_failed() {
    let fixture = fixture().await;
    let body = json!({"name": "ghcr.io/a/b:1", "username": "u", "password": "p"});
    let lines = fixture.lines("/api/v1/images/pull", body).await;
    assert_eq!(
        lines[0],
        json!({"type": "progress", "step": "layer", "done": 1, "total": 2})
    );
    assert_eq!(lines[1]["type"], "done");
    assert_eq!(lines[1]["image"]["sizeBytes"], 7);
    assert_eq!(fixture.images.auth.lock().as_ref().unwrap().password, "p");
    let (_, all) = fixture.call("GET", "/api/v1/images", Value::Null).await;
    assert_eq!(all["data"][0]["name"], "ghcr.io/a/b:1");

    let lines = fixture
        .lines("/api/v1/images/pull", json!({"name": "missing"}))
        .await;
    assert_eq!(
        lines,
        [json!({"type": "error", "code": "404", "message": "image missing was not found"})]
    );
    let body = json!({"name": "x", "path": "/no/such"});
    let lines = fixture.lines("/api/v1/images/import", body).await;
    assert_eq!(lines[0]["code"], "404");
    assert!(lines[0]["message"].as_str().unwrap().contains("/no/such"));

    let path = "/api/v1/images?name=ghcr.io%2Fa%2Fb%3A1";
    assert_eq!(fixture.call("DELETE", path, Value::Null).await.0, 200);
    assert_eq!(fixture.call("DELETE", path, Value::Null).await.0, 404);
}

#[tokio::test]
async fn who_hangs_up_gives_a_pull_up() {
    let fixture = fixture().await;
    let asked = request(
        &fixture.key,
        "POST",
        "/api/v1/images/pull",
        &json!({"name": "slow"}),
    );
    let response = fixture.router.clone().oneshot(asked).await.unwrap();
    let mut body = response.into_body();
    body.frame().await.unwrap().unwrap();
    drop(body);
    fixture.images.given_up.notified().await;
}

#[tokio::test]
async fn a_template_takes_from_its_image_what_it_does_not_say() {
    let fixture = fixture().await;
    fixture
        .lines("/api/v1/images/pull", json!({"name": "app:1"}))
        .await;
    let body = json!({
        "name": "web", "image": "app:1", "memoryMB": 256, "cpuMilli": 500, "env": {"B": "own"},
    });
    let (status, made) = fixture
        .call("POST", "/api/v1/templates", body.clone())
        .await;
    assert_eq!(status, 201, "{made}");
    let made = &made["data"];
    assert_eq!(made["user"], "node");
    assert_eq!(made["workdir"], "/app");
    assert_eq!(made["env"], json!({"A": "image", "B": "own"}));
    assert_eq!(
        (&made["memoryMB"], &made["pids"]),
        (&json!(256), &json!(4096))
    );
    let (status, twice) = fixture.call("POST", "/api/v1/templates", body).await;
    assert_eq!(status, 409, "{twice}");
    let (status, used) = fixture
        .call("DELETE", "/api/v1/images?name=app:1", Value::Null)
        .await;
    assert_eq!(status, 409, "{used}");
    assert!(
        used["message"]
            .as_str()
            .unwrap()
            .contains("the template web")
    );

    let other = fixture.tenant_key().await;
    let hidden = fixture
        .call_as(&other, "GET", "/api/v1/templates/web", Value::Null)
        .await;
    assert_eq!(hidden.0, 404, "another team's");
    let (_, all) = fixture.call("GET", "/api/v1/templates", Value::Null).await;
    assert_eq!(all["data"].as_array().unwrap().len(), 1);
    assert_eq!(
        fixture
            .call("DELETE", "/api/v1/templates/web", Value::Null)
            .await
            .0,
        200
    );
    assert_eq!(
        fixture
            .call("GET", "/api/v1/templates/web", Value::Null)
            .await
            .0,
        404
    );
}
