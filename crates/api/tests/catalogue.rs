//! The catalogue over HTTP, and sandboxes of it.
#![expect(clippy::unwrap_used, reason = "tests")]
#![allow(clippy::too_many_lines, reason = "a scenario reads from top to bottom")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use http::{HeaderMap, Request};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use shoal_api::{ApiConfig, router};
use shoal_engine::test_util::{self, FakeRegistry, admin_and_other};
use shoal_engine::{Engine, EngineParts};
use tower::ServiceExt;

const TEMPLATES: &str = "/api/v1/config/templates";

struct Fixture {
    _directory: tempfile::TempDir,
    router: Router,
    engine: Engine,
    admin: String,
    user: String,
}

async fn fixture() -> Fixture {
    let directory = tempfile::tempdir().unwrap();
    let engine = test_util::open(EngineParts {
        images: Arc::new(FakeRegistry::default()),
        ..test_util::parts(directory.path())
    })
    .await;
    let (admin, user) = admin_and_other(&engine).await;
    Fixture {
        _directory: directory,
        router: router(engine.ports(), ApiConfig::default()),
        engine,
        admin,
        user,
    }
}

impl Fixture {
    async fn call(
        &self,
        key: &str,
        method: &str,
        path: &str,
        body: &Value,
        if_match: Option<&str>,
    ) -> (u16, HeaderMap, Value) {
        let mut request = Request::builder().method(method).uri(path);
        request = request.header("X-API-Key", key);
        if let Some(tag) = if_match {
            request = request.header("If-Match", tag);
        }
        let request = request.body(Body::from(body.to_string())).unwrap();
        let response = self.router.clone().oneshot(request).await.unwrap();
        let (parts, body) = response.into_parts();
        let bytes = body.collect().await.unwrap().to_bytes();
        let body = serde_json::from_slice(&bytes).unwrap();
        (parts.status.as_u16(), parts.headers, body)
    }

    async fn get(&self, key: &str, path: &str) -> (u16, Value) {
        let (status, _, body) = self.call(key, "GET", path, &Value::Null, None).await;
        (status, body)
    }

    async fn post(&self, key: &str, path: &str, body: Value) -> (u16, Value) {
        let (status, _, body) = self.call(key, "POST", path, &body, None).await;
        (status, body)
    }
}

impl Fixture {
    /// Waits, within bounds, until each pool has a ready member.
    async fn pools_are_ready(&self) {
        let end = Instant::now() + Duration::from_secs(60);
        loop {
            let pools = self.engine.pools();
            if pools.iter().all(|pool| pool.ready > 0) {
                return;
            }
            assert!(Instant::now() < end, "never ready: {pools:?}");
            tokio::task::yield_now().await;
        }
    }
}

fn entry(name: &str) -> Value {
    json!({"name": name, "image": "registry.test/i:1", "description": "d"})
}

#[tokio::test]
async fn every_key_reads_the_catalogue_and_an_admins_replaces_it() {
    let fixture = fixture().await;
    let (status, body) = fixture.get(&fixture.user, TEMPLATES).await;
    assert_eq!((status, &body["data"]["version"]), (200, &json!(0)));
    let (status, body) = fixture.post(&fixture.user, TEMPLATES, json!([])).await;
    assert_eq!((status, &body["code"]), (403, &json!("403")));
    // The seed's body: the list alone.
    let (status, body) = fixture
        .post(&fixture.admin, TEMPLATES, json!([entry("a")]))
        .await;
    assert_eq!((status, &body["data"]["version"]), (200, &json!(1)));
    let next = json!({"version": 1, "templates": [entry("a"), entry("B")]});
    let (status, body) = fixture.post(&fixture.admin, TEMPLATES, next.clone()).await;
    assert_eq!(status, 200, "{body}");
    assert_eq!(body["data"]["warnings"][0]["name"], "B");
    let (status, body) = fixture.post(&fixture.admin, TEMPLATES, next).await;
    assert_eq!(status, 409, "{body}");
    assert!(
        body["message"]
            .as_str()
            .unwrap()
            .contains("has version 2 and not 1")
    );
}

#[tokio::test]
async fn an_edit_may_name_its_version_as_other_systems_do() {
    let fixture = fixture().await;
    let put = async |tag: &str, body: Value| {
        let called = fixture.call(&fixture.admin, "POST", TEMPLATES, &body, Some(tag));
        called.await.0
    };
    assert_eq!(put("\"0\"", json!([entry("a")])).await, 200);
    assert_eq!(put("\"0\"", json!([entry("b")])).await, 409);
    assert_eq!(put("W/\"1\"", json!([entry("b")])).await, 200);
    assert_eq!(put("*", json!([entry("c")])).await, 200);
    assert_eq!(put("\"soon\"", json!([])).await, 400);
    assert_eq!(
        put("\"3\"", json!({"version": 2, "templates": []})).await,
        400
    );
    let got = fixture
        .call(&fixture.admin, "GET", TEMPLATES, &Value::Null, None)
        .await;
    assert_eq!(got.1["etag"], "\"3\"");
}

#[tokio::test]
async fn a_dry_run_says_what_an_edit_would_do_and_changes_nothing() {
    let fixture = fixture().await;
    let python = json!({"name": "python", "image": "python:3.13-slim", "description": "d"});
    let dry = format!("{TEMPLATES}?dryRun=true");
    let (status, answer) = fixture
        .post(&fixture.admin, &dry, json!([python.clone()]))
        .await;
    assert_eq!(status, 200, "{answer}");
    assert_eq!(answer["data"]["templates"][0]["name"], "python");
    assert_eq!(answer["data"]["version"], 0, "it is not in force");
    let (_, now) = fixture.get(&fixture.admin, TEMPLATES).await;
    assert_eq!(now["data"]["templates"], json!([]));

    let bad = json!([{"name": "python", "imge": "x"}]);
    let (status, answer) = fixture.post(&fixture.admin, &dry, bad).await;
    assert_eq!(status, 400);
    assert!(answer["message"].as_str().unwrap().contains("imge"));
    let body = json!([python]);
    let (status, _, _) = fixture
        .call(&fixture.admin, "POST", &dry, &body, Some("\"3\""))
        .await;
    assert_eq!(status, 409, "the edit is based on another version");
    assert_eq!(fixture.post(&fixture.user, &dry, body.clone()).await.0, 403);
    // A mistyped parameter must not replace the catalogue.
    let mistyped = format!("{TEMPLATES}?dryrun=true");
    assert_eq!(fixture.post(&fixture.admin, &mistyped, body).await.0, 400);
}

#[tokio::test]
async fn a_bad_catalogue_is_refused_as_a_whole_and_says_what_is_wrong() {
    let fixture = fixture().await;
    for (body, part) in [
        (
            json!([entry("a"), {"name": "b"}]),
            "entry 1 (\"b\"): missing field `description`",
        ),
        (json!({"templates": {}}), "no JSON list of entries"),
        (json!({"template": []}), "unknown field `template`"),
        (json!({}), "missing field `templates`"),
        (json!("x"), "the body"),
    ] {
        let (status, answer) = fixture.post(&fixture.admin, TEMPLATES, body).await;
        let message = answer["message"].as_str().unwrap();
        assert!(status == 400 && message.contains(part), "{part}: {answer}");
    }
    fixture.engine.note_refused_edit("a file", "it is no JSON");
    let (_, body) = fixture.get(&fixture.user, TEMPLATES).await;
    assert_eq!(body["data"]["version"], 0);
    assert_eq!(body["data"]["lastError"]["message"], "it is no JSON");
}

#[tokio::test]
async fn a_sandbox_of_the_catalogue_is_created_and_explained() {
    let fixture = fixture().await;
    let family = json!({
        "name": "faas-code", "type": "dynamic", "description": "d", "port": 49_999,
        "pattern": "faas-code-(?P<name>.+)\\.(?P<version>.+)$",
        "image": "registry.test/agent/<name>:<version>", "resources": {"cpuLimit": "1"}
    });
    fixture
        .post(&fixture.admin, TEMPLATES, json!([family]))
        .await;
    let path = format!("{TEMPLATES}/resolve?templateID=faas-code-python.3.11");
    let (status, body) = fixture.get(&fixture.user, &path).await;
    assert_eq!(status, 200, "{body}");
    let data = &body["data"];
    assert_eq!(
        data["captured"],
        json!({"name": "python", "version": "3.11"})
    );
    assert_eq!(
        (&data["kind"], &data["name"]),
        (&json!("dynamic"), &json!("faas-code"))
    );
    let values = data["values"].as_array().unwrap();
    let value = |field: &str| values.iter().find(|row| row["field"] == field).unwrap();
    assert_eq!(value("image")["value"], "registry.test/agent/python:3.11");
    assert_eq!(
        value("cpu"),
        &json!({"field": "cpu", "value": "1000m", "from": "template"})
    );
    assert_eq!(value("memory")["from"], "default");
    assert_eq!(value("port")["value"], 49_999);

    let body = json!({"templateID": "faas-code-python.3.11"});
    let (status, made) = fixture.post(&fixture.user, "/e2b/v1/sandboxes", body).await;
    assert_eq!(
        (status, &made["alias"]),
        (201, &json!("faas-code")),
        "{made}"
    );
    assert_eq!(made["templateID"], data["templateID"]);
    for (body, status, part) in [
        (
            json!({"templateID": "faas-code-missing.1"}),
            404,
            "template 'faas-code' cannot be started: image",
        ),
        (
            json!({"templateID": "faas-code-private.1"}),
            403,
            "refused the credentials",
        ),
        (
            json!({"templateID": "faas-code-foreign.1"}),
            422,
            "has no variant for",
        ),
        (
            json!({"templateID": "faas-code-a/b.1"}),
            400,
            "cannot stand in the name",
        ),
        (
            json!({"templateID": "faas.x"}),
            404,
            "template 'faas.x' not found",
        ),
        (
            json!({"image": "registry.test/x:1"}),
            403,
            "only an admin key may name an image",
        ),
    ] {
        let (got, answer) = fixture.post(&fixture.user, "/v2/sandboxes", body).await;
        let message = answer["message"].as_str().unwrap();
        assert!(got == status && message.contains(part), "{part}: {answer}");
    }
    let custom = json!({"image": "registry.test/x:1"});
    let (status, made) = fixture.post(&fixture.admin, "/v2/sandboxes", custom).await;
    assert_eq!((status, &made["alias"]), (201, &json!("custom")), "{made}");
    for (query, status) in [
        ("?templateID=no", 404),
        ("?templateID=a%20b", 400),
        ("", 400),
    ] {
        let path = format!("{TEMPLATES}/resolve{query}");
        assert_eq!(fixture.get(&fixture.user, &path).await.0, status, "{query}");
    }
}

#[tokio::test]
async fn pools_are_an_admins_to_see_and_to_make_anew() {
    let fixture = fixture().await;
    let running = fixture.engine.clone();
    tokio::spawn(async move { running.run().await });
    let mut pooled = entry("warm");
    pooled["pool"] = json!({"size": 1});
    let put = fixture
        .post(&fixture.admin, TEMPLATES, json!([entry("plain"), pooled]))
        .await;
    assert_eq!(put.0, 200);
    for (method, path) in [
        ("GET", "/api/v1/pool"),
        ("GET", "/api/v1/pool/sandbox/warm"),
        ("DELETE", "/api/v1/pool/warm"),
    ] {
        let refused = fixture
            .call(&fixture.user, method, path, &Value::Null, None)
            .await;
        assert_eq!(refused.0, 403, "{path}");
    }
    fixture.pools_are_ready().await;
    let (status, members) = fixture
        .get(&fixture.admin, "/api/v1/pool/sandbox/warm")
        .await;
    assert_eq!(
        (status, &members["data"][0]["status"]),
        (200, &json!("ready"))
    );
    let member = members["data"][0]["name"].as_str().unwrap().to_owned();
    let (_, pools) = fixture.get(&fixture.admin, "/api/v1/pool").await;
    let pools = &pools["data"];
    assert_eq!(pools.as_array().unwrap().len(), 1);
    assert_eq!(
        (&pools[0]["template"], &pools[0]["ready"]),
        (&json!("warm"), &json!(1))
    );
    let made = fixture
        .post(
            &fixture.user,
            "/v2/sandboxes",
            json!({"templateID": "warm"}),
        )
        .await;
    assert_eq!((made.0, &made.1["sandboxID"]), (201, &json!(member)));
    assert_eq!(made.1["shoal"]["origin"], "pooled");
    // Somebody has it now.
    for gone in [member.as_str(), "plain", "nothing"] {
        let path = format!("/api/v1/pool/{gone}");
        let (status, _, body) = fixture
            .call(&fixture.admin, "DELETE", &path, &Value::Null, None)
            .await;
        assert_eq!((status, &body["code"]), (404, &json!("404")), "{gone}");
    }
    let removed = fixture
        .call(
            &fixture.admin,
            "DELETE",
            "/api/v1/pool/warm",
            &Value::Null,
            None,
        )
        .await;
    assert_eq!(removed.0, 200);
}

#[tokio::test]
async fn the_answer_says_whether_a_sandbox_came_from_a_pool() {
    let fixture = fixture().await;
    let running = fixture.engine.clone();
    let running = tokio::spawn(async move { running.run().await });
    let warm = json!([{"name": "warm", "image": "registry.test/warm:1", "description": "d",
        "pool": {"size": 1}}]);
    let (status, applied) = fixture.post(&fixture.admin, TEMPLATES, warm).await;
    assert_eq!(status, 200, "{applied}");
    fixture.pools_are_ready().await;
    let made = async || {
        let body = json!({"template": "warm"});
        let (status, made) = fixture.post(&fixture.user, "/api/v1/sandbox", body).await;
        assert_eq!(status, 201, "{made}");
        let data = &made["data"];
        (data["origin"].clone(), data["isPool"].clone())
    };
    assert_eq!(made().await, (json!("pooled"), json!(false)));
    running.abort();
    let none = json!([{"name": "warm", "image": "registry.test/warm:1", "description": "d"}]);
    fixture.post(&fixture.admin, TEMPLATES, none).await;
    assert_eq!(made().await, (json!("cold"), json!(false)));
}

#[tokio::test]
async fn the_template_of_an_entrys_sandbox_is_found_and_started_again() {
    let fixture = fixture().await;
    let entries = json!([
        entry("Tool.1"),
        {"name": "family", "type": "dynamic", "description": "d",
         "pattern": "family-(?P<name>.+)\\.(?P<version>.+)",
         "image": "registry.test/<name>:<version>"},
    ]);
    let (status, body) = fixture.post(&fixture.admin, TEMPLATES, entries).await;
    assert_eq!(status, 200, "{body}");
    for (asked, alias, image) in [
        ("Tool.1", "Tool.1", "registry.test/i:1"),
        ("family-go.1.21", "family", "registry.test/go:1.21"),
    ] {
        let body = json!({"templateID": asked});
        let (status, made) = fixture.post(&fixture.user, "/v2/sandboxes", body).await;
        assert_eq!((status, &made["alias"]), (201, &json!(alias)), "{made}");
        let template = made["templateID"].as_str().unwrap();
        let path = format!("/sandboxes/{}", made["sandboxID"].as_str().unwrap());
        let (_, seen) = fixture.get(&fixture.user, &path).await;
        assert_eq!(seen["templateID"], template);
        // It leads to what a create of it gets.
        let path = format!("/templates/{template}");
        let (status, found) = fixture.get(&fixture.user, &path).await;
        assert_eq!(
            (status, &found["templateID"]),
            (200, &json!(template)),
            "{found}"
        );
        assert_eq!(found["aliases"], json!([alias]));
        let build = &found["builds"][0];
        assert_eq!(
            (&build["status"], &build["cpuCount"]),
            (&json!("ready"), &json!(2))
        );
        assert_eq!(build["buildID"].as_str().unwrap().len(), 36, "it is a UUID");
        let body = json!({"templateID": template});
        let (status, again) = fixture.post(&fixture.user, "/v2/sandboxes", body).await;
        assert_eq!(
            (status, &again["templateID"]),
            (201, &json!(template)),
            "{again}"
        );
        let native = format!("/api/v1/sandbox/{}", again["sandboxID"].as_str().unwrap());
        let (_, native) = fixture.get(&fixture.user, &native).await;
        assert_eq!(native["data"]["image"], image, "{native}");
        let listed = format!("/v2/sandboxes?template={template}");
        let (status, listed) = fixture.get(&fixture.user, &listed).await;
        assert_eq!((status, listed.as_array().unwrap().len()), (200, 2));
    }
    for nothing in [
        "/templates/tool.2",
        "/templates/aaaaaaaaaaaaaaaaaaaa",
        "/templates/a%20b",
    ] {
        assert_eq!(
            fixture.get(&fixture.user, nothing).await.0,
            404,
            "{nothing}"
        );
    }
}
