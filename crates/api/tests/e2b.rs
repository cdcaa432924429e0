//! The E2B routes over HTTP, with a driver that only remembers.
#![expect(clippy::unwrap_used, reason = "tests")]
#![allow(clippy::too_many_lines, reason = "a scenario reads from top to bottom")]

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use http::{Method, Request, Response, StatusCode};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use shoal_api::{ApiConfig, RateLimit, router};
use shoal_core::resources::MilliCpu;
use shoal_engine::test_util::{self, FakeDriver, base_template};
use shoal_engine::{Engine, EngineParts, Limits};
use tower::ServiceExt;

struct Fixture {
    _directory: tempfile::TempDir,
    engine: Engine,
    driver: FakeDriver,
    router: Router,
    key: String,
}

async fn fixture_with(config: ApiConfig) -> Fixture {
    fixture_of(config, |_| {}).await
}

async fn fixture_of(config: ApiConfig, limit: impl FnOnce(&mut Limits)) -> Fixture {
    let directory = tempfile::tempdir().unwrap();
    let driver = FakeDriver::new();
    let mut parts = EngineParts {
        drivers: vec![Arc::new(driver.clone())],
        ..test_util::parts(directory.path())
    };
    limit(&mut parts.config.limits);
    let engine = test_util::open(parts).await;
    engine.put_template(base_template()).await.unwrap();
    let key = engine
        .mint_first_key(|_| Ok(()))
        .await
        .unwrap()
        .unwrap()
        .reveal()
        .to_owned();
    let router = router(engine.ports(), config);
    Fixture {
        _directory: directory,
        engine,
        driver,
        router,
        key,
    }
}

async fn fixture() -> Fixture {
    fixture_with(ApiConfig::default()).await
}

impl Fixture {
    async fn send(&self, request: Request<Body>) -> Response<Body> {
        self.router.clone().oneshot(request).await.unwrap()
    }

    async fn call(&self, method: Method, path: &str, body: Value) -> (StatusCode, Value) {
        let body = if body.is_null() {
            Body::empty()
        } else {
            Body::from(body.to_string())
        };
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("X-API-KEY", &self.key)
            .header("content-type", "application/json")
            .body(body)
            .unwrap();
        let response = self.send(request).await;
        let status = response.status();
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        (
            status,
            serde_json::from_slice(&bytes).unwrap_or(Value::Null),
        )
    }

    async fn post(&self, path: &str, body: Value) -> (StatusCode, Value) {
        self.call(Method::POST, path, body).await
    }

    async fn get(&self, path: &str) -> (StatusCode, Value) {
        self.call(Method::GET, path, Value::Null).await
    }

    async fn create(&self, more: Value) -> Value {
        let mut body = json!({"templateID": "base"});
        body.as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        let (status, sandbox) = self.post("/v2/sandboxes", body).await;
        assert_eq!(status, 201, "{sandbox}");
        sandbox
    }
}

fn id(sandbox: &Value) -> &str {
    sandbox["sandboxID"].as_str().unwrap()
}

#[tokio::test]
async fn the_life_of_a_sandbox_in_both_dialects() {
    let fixture = fixture().await;
    for (prefix, create, secured) in [
        ("", "/v2/sandboxes", true),
        ("/e2b/v1", "/sandboxes", false),
    ] {
        let body = json!({"templateID": "base", "metadata": {"a": "b"}, "envVars": {}});
        let (status, made) = fixture.post(&format!("{prefix}{create}"), body).await;
        assert_eq!(status, 201, "{made}");
        assert_eq!(made["envdAccessToken"].is_string(), secured);
        assert_eq!(made["domain"], Value::Null);
        assert_eq!(made["envdVersion"], "0");
        assert_eq!(made["shoal"]["origin"], "cold");
        assert!(made["shoal"]["phases"]["ready"].is_number());
        let path = format!("{prefix}/sandboxes/{}", id(&made));
        let (status, seen) = fixture.get(&path).await;
        assert_eq!(status, 200);
        assert_eq!(seen["state"], "running");
        assert_eq!(seen["metadata"], json!({"a": "b"}));
        assert_eq!(seen["envdAccessToken"], made["envdAccessToken"]);
        assert_eq!(
            seen["lifecycle"],
            json!({"autoResume": false, "onTimeout": "kill"})
        );
        let with_client = format!("{path}-6532622b");
        assert_eq!(fixture.get(&with_client).await.0, 200);
        let (status, _) = fixture.call(Method::DELETE, &path, Value::Null).await;
        assert_eq!(status, 204);
        let (status, gone) = fixture.call(Method::DELETE, &path, Value::Null).await;
        assert_eq!((status.as_u16(), gone["code"].clone()), (404, json!(404)));
    }
}

#[tokio::test]
async fn the_dialects_differ_in_how_long_a_sandbox_lives() {
    let fixture = fixture().await;
    for (path, seconds) in [("/sandboxes", "15.0"), ("/v2/sandboxes", "300.0")] {
        let (_, made) = fixture.post(path, json!({"templateID": "base"})).await;
        let (_, seen) = fixture.get(&format!("/sandboxes/{}", id(&made))).await;
        let at = |name: &str| {
            let text = seen[name].as_str().unwrap();
            shoal_core::clock::Timestamp::parse_rfc3339(text).unwrap()
        };
        let lives = at("endAt").since(at("startedAt"));
        assert_eq!(format!("{:.1}", lives.as_secs_f64()), seconds);
    }
}

#[tokio::test]
async fn foolish_requests_are_answered_with_what_is_wrong() {
    let fixture = fixture().await;
    for (body, status, text) in [
        (json!({}), 400, "neither a template nor an image is named"),
        (json!([]), 400, "the body: must be an object"),
        (json!({"image": "a b"}), 400, "`image`: invalid image name"),
        (json!({"templateID": 7}), 400, "`templateID`: invalid type"),
        (
            json!({"templateID": "no such"}),
            400,
            "invalid template reference",
        ),
        (
            json!({"templateID": "nothing"}),
            404,
            "template 'nothing' not found",
        ),
        (
            json!({"templateID": "base:v9"}),
            404,
            "tag 'v9' does not exist for template 'base'",
        ),
        (
            json!({"templateID": "base", "timeout": 0}),
            400,
            "Timeout must be greater than 0",
        ),
        (
            json!({"templateID": "base", "timeout": -1}),
            400,
            "`timeout`: must not be negative",
        ),
        (
            json!({"templateID": "base", "timeout": 90_000}),
            400,
            "Timeout cannot be greater than 24 hours",
        ),
        (
            json!({"templateID": "base", "envVars": {"A=B": "1"}}),
            400,
            "cannot be set",
        ),
        (
            json!({"templateID": "base", "network": {"allowOut": ["300.1.1.1"]}}),
            400,
            "neither",
        ),
        (
            json!({"templateID": "base", "network": {"allowOut": ["a.example"]}}),
            400,
            "is a name",
        ),
        (
            json!({"templateID": "base", "network": {"maskRequestHost": "-https://abcd"}}),
            400,
            "is not a host",
        ),
        (
            json!({"templateID": "base", "network": {"rules": {"a": []}}}),
            400,
            "not supported",
        ),
        (
            json!({"templateID": "base", "volumeMounts": [{}]}),
            400,
            "not supported",
        ),
        (
            json!({"templateID": "base", "autoPauseMemory": false}),
            400,
            "needs `autoPause`",
        ),
        (
            json!({"templateID": "base",
                   "metadata": {"e2b.agents.kruise.io/cpu-scale-factor": "NaN"}}),
            400,
            "e2b.agents.kruise.io/cpu-scale-factor",
        ),
        (
            json!({"templateID": "base",
                   "metadata": {"e2b.agents.kruise.io/cpu-scale-factor": "20"}}),
            409,
            "than this machine has",
        ),
        (
            json!({"templateID": "base", "metadata": {"shoal/runtime": "warp"}}),
            400,
            "runtime warp is not available: use one of fake, second",
        ),
    ] {
        let (seen, answer) = fixture.post("/v2/sandboxes", body.clone()).await;
        let message = answer["message"].as_str().unwrap_or_default();
        assert_eq!(seen.as_u16(), status, "{body}: {answer}");
        assert!(message.contains(text), "{body}: {message}");
        assert_eq!(answer["code"], status, "the body repeats the status");
    }
    let private = json!({"templateID": "base", "network": {"allowPublicTraffic": false}});
    assert_eq!(
        fixture.post("/sandboxes", private).await.0,
        400,
        "it would not be secured"
    );
    let (_, listed) = fixture.get("/v2/sandboxes").await;
    assert_eq!(listed, json!([]));
}

#[tokio::test]
async fn only_a_good_key_opens_a_route() {
    let fixture = fixture().await;
    let id = id(&fixture.create(json!({})).await).to_owned();
    let zeros = format!("e2b_{}", "0".repeat(40));
    for route in [
        "/v2/sandboxes",
        "/templates",
        &format!("/sandboxes/{id}"),
        "/e2b/v1/sandboxes",
    ] {
        for key in [
            None,
            Some(""),
            Some("e2b_xyz"),
            Some(zeros.as_str()),
            Some("\u{7f}"),
        ] {
            let mut request = Request::get(route);
            if let Some(key) = key {
                request = request.header("x-api-key", key.as_bytes());
            }
            let Ok(request) = request.body(Body::empty()) else {
                continue;
            };
            assert_eq!(fixture.send(request).await.status(), 401, "{route} {key:?}");
        }
    }
    let other_team = Request::get("/v2/sandboxes")
        .header("x-api-key", &fixture.key)
        .header("x-team-id", "00000000-0000-4000-8000-000000000000")
        .body(Body::empty())
        .unwrap();
    assert_eq!(fixture.send(other_team).await.status(), 401);
    let health = Request::get("/health").body(Body::empty()).unwrap();
    assert_eq!(fixture.send(health).await.status(), 204);
}

#[tokio::test]
async fn a_foreign_id_is_not_found_on_every_route() {
    let fixture = fixture().await;
    let made = fixture.create(json!({})).await;
    let key = shoal_core::auth::ApiKey::parse(&fixture.key).unwrap();
    let admin = fixture.engine.authenticate(&key).await.unwrap().unwrap();
    let other = "other".parse().unwrap();
    let (secret, _) = fixture
        .engine
        .create_key(&admin, &other, "k", false)
        .await
        .unwrap();
    let foreign = Fixture {
        key: secret.reveal().to_owned(),
        ..fixture
    };
    let path = format!("/sandboxes/{}", id(&made));
    for (method, suffix, body) in [
        (Method::GET, "", Value::Null),
        (Method::DELETE, "", Value::Null),
        (Method::POST, "/connect", json!({"timeout": 10})),
        (Method::POST, "/timeout", json!({"timeout": 10})),
        (Method::POST, "/refreshes", json!({"duration": 10})),
        (Method::PUT, "/network", json!({})),
        (Method::GET, "/metrics", Value::Null),
        (Method::GET, "/logs", Value::Null),
    ] {
        let (status, answer) = foreign
            .call(method.clone(), &format!("{path}{suffix}"), body)
            .await;
        assert_eq!(status, 404, "{method} {suffix}: {answer}");
    }
    for path in [format!("/v2{path}/connect"), format!("/v2{path}/logs")] {
        let method = if path.ends_with("logs") {
            Method::GET
        } else {
            Method::POST
        };
        assert_eq!(
            foreign.call(method, &path, Value::Null).await.0,
            404,
            "{path}"
        );
    }
    let (_, listed) = foreign.get("/v2/sandboxes").await;
    assert_eq!(listed, json!([]));
    let (_, latest) = foreign
        .get(&format!("/sandboxes/metrics?sandbox_ids={}", id(&made)))
        .await;
    assert_eq!(latest, json!({"sandboxes": {}}));
}

#[tokio::test]
async fn a_list_is_paged_by_a_header_and_filtered_by_labels() {
    let fixture = fixture().await;
    for n in 0..3 {
        fixture
            .create(json!({"metadata": {"n": n.to_string(), "k 1": "v&1"}}))
            .await;
    }
    let mut path = "/v2/sandboxes?limit=2".to_owned();
    let mut seen = 0;
    loop {
        let request = Request::get(&path).header("x-api-key", &fixture.key);
        let response = fixture.send(request.body(Body::empty()).unwrap()).await;
        assert_eq!(response.headers()["x-total-running"], "3");
        let next = response.headers().get("x-next-token").cloned();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        seen += serde_json::from_slice::<Vec<Value>>(&body).unwrap().len();
        match next {
            Some(token) => {
                path = format!(
                    "/v2/sandboxes?limit=2&nextToken={}",
                    token.to_str().unwrap()
                );
            }
            None => break,
        }
    }
    assert_eq!(seen, 3);
    let (_, one) = fixture.get("/v2/sandboxes?metadata=n%3D1").await;
    assert_eq!(one.as_array().unwrap().len(), 1);
    let (_, all) = fixture
        .get("/v2/sandboxes?metadata=k%2525201%3Dv%2525261")
        .await;
    assert_eq!(all.as_array().unwrap().len(), 3);
    let (_, old) = fixture.get("/sandboxes?metadata=n%3D2").await;
    assert_eq!(old.as_array().unwrap().len(), 1);
    for bad in [
        "metadata=x",
        "state=asleep",
        "order=up",
        "limit=0",
        "limit=101",
        "nextToken=zzz",
        "startedAfter=noon",
        "template=base:v1",
    ] {
        assert_eq!(
            fixture.get(&format!("/v2/sandboxes?{bad}")).await.0,
            400,
            "{bad}"
        );
    }
}

#[tokio::test]
async fn time_and_network_are_changed_while_it_runs() {
    let fixture = fixture().await;
    let made = fixture
        .create(json!({"allow_internet_access": false}))
        .await;
    let path = format!("/sandboxes/{}", id(&made));
    let (_, seen) = fixture.get(&path).await;
    assert_eq!(seen["allowInternetAccess"], false);
    assert_eq!(seen["network"]["denyOut"], json!(["0.0.0.0/0"]));
    let rules = json!({"allowOut": ["1.1.1.1"], "denyOut": ["0.0.0.0/0"]});
    let (status, _) = fixture
        .call(Method::PUT, &format!("{path}/network"), rules)
        .await;
    assert_eq!(status, 204);
    let (_, seen) = fixture.get(&path).await;
    assert_eq!(seen["network"]["allowOut"], json!(["1.1.1.1"]));
    assert_eq!(
        seen["allowInternetAccess"],
        Value::Null,
        "what is not said is cleared"
    );
    for (suffix, body, status) in [
        ("/timeout", json!({"timeout": 60}), 204),
        ("/timeout", json!({}), 400),
        ("/timeout", json!({"timeout": -5}), 400),
        ("/timeout", json!({"timeout": i64::MAX}), 400),
        ("/connect", json!({"timeout": 86_401}), 400),
        ("/fork", json!({"timeout": 86_401}), 400),
        ("/refreshes", json!({"duration": 3601}), 400),
        ("/refreshes", json!({}), 204),
        ("/connect", json!({}), 400),
        ("/connect", json!({"timeout": 5}), 200),
        ("/snapshots", json!({"name": "a b"}), 400),
        ("/snapshots", json!({"name": "base"}), 409),
        ("/snapshots", json!({"name": "other/x"}), 403),
        ("/fork", json!({"count": 0}), 400),
        ("/fork", json!({"count": 101}), 400),
        ("/fork", json!({"timeout": 0}), 400),
        ("/resume", json!({}), 409),
        ("/pause", json!({"memory": "yes"}), 400),
        ("/pause", json!({}), 204),
        ("/pause", json!({}), 409),
        ("/snapshots", json!({}), 400),
        ("/fork", json!({}), 409),
        ("/resume", json!({"timeout": -1}), 400),
        ("/resume", json!({"timeout": 86_401}), 400),
        ("/connect", json!({"timeout": 86_401}), 400),
        ("/resume", json!({}), 201),
        ("/pause", json!({"memory": false}), 204),
        ("/connect", json!({"timeout": 5}), 201),
        ("/connect", json!({"timeout": 5}), 200),
    ] {
        let (seen, answer) = fixture.post(&format!("{path}{suffix}"), body).await;
        assert_eq!(seen.as_u16(), status, "{suffix}: {answer}");
    }
    assert_eq!(
        fixture
            .post(&format!("/v2{path}/connect"), Value::Null)
            .await
            .0,
        200
    );
    let (status, _) = fixture.get(&format!("{path}/metrics?start=2&end=1")).await;
    assert_eq!(status, 400);
}

#[tokio::test]
async fn labels_of_openkruise_are_taken_for_what_they_say() {
    let fixture = fixture().await;
    let made = fixture
        .create(json!({"metadata": {
            "label:team": "red",
            "own": "x",
            "e2b.agents.kruise.io/never-timeout": "true",
            "e2b.agents.kruise.io/return-sandbox-ip": "true",
        }}))
        .await;
    let path = format!("/sandboxes/{}", id(&made));
    let address = made["metadata"]["e2b.agents.kruise.io/sandbox-ip"]
        .as_str()
        .unwrap();
    assert!(address.parse::<std::net::IpAddr>().is_ok(), "{address}");
    let shown = json!({
        "team": "red", "own": "x", "e2b.agents.kruise.io/sandbox-ip": address,
    });
    assert_eq!(made["metadata"], shown);
    let (_, seen) = fixture.get(&path).await;
    assert_eq!(seen["metadata"], shown);
    assert_eq!(seen["endAt"], "0001-01-01T00:00:00Z");
    let (_, listed) = fixture.get("/v2/sandboxes?metadata=team%3Dred").await;
    assert_eq!(listed[0]["metadata"], shown);
    // A sandbox that does not run has no address.
    let (status, _) = fixture.post(&format!("{path}/pause"), Value::Null).await;
    assert_eq!(status, 204);
    let (_, seen) = fixture.get(&path).await;
    assert_eq!(seen["metadata"], json!({"team": "red", "own": "x"}));
    let plain = fixture.create(json!({"metadata": {"own": "x"}})).await;
    assert_eq!(plain.get("metadata"), None);
    let bad = json!({"templateID": "base", "metadata": {"label:a b": "c"}});
    let (status, refused) = fixture.post("/v2/sandboxes", bad).await;
    assert_eq!(status, 400, "{refused}");
    assert!(refused["message"].as_str().unwrap().contains("label:a b"));
}

#[tokio::test]
async fn a_body_of_blanks_clears_no_rules() {
    let fixture = fixture().await;
    let rules = json!({"network": {"denyOut": ["0.0.0.0/0"], "allowOut": ["1.1.1.1"]}});
    let path = format!("/sandboxes/{}", id(&fixture.create(rules).await));
    let before = fixture.get(&path).await.1["network"].clone();
    for body in ["", " ", "\r\n\t ", "null", "[]", "\"\""] {
        let request = Request::put(format!("{path}/network"))
            .header("X-API-KEY", &fixture.key)
            .body(Body::from(body))
            .unwrap();
        let response = fixture.send(request).await;
        assert_eq!(response.status(), 400, "{body:?}");
    }
    assert_eq!(fixture.get(&path).await.1["network"], before);
    let (status, _) = fixture
        .call(Method::PUT, &format!("{path}/network"), json!({}))
        .await;
    assert_eq!(status, 204, "an object that says nothing clears them");
    assert_eq!(
        fixture.get(&path).await.1["network"],
        json!({"allowPublicTraffic": true})
    );
}

#[tokio::test]
async fn templates_are_shown_and_named() {
    let fixture = fixture().await;
    let (_, listed) = fixture.get("/templates").await;
    let template = listed[0]["templateID"].as_str().unwrap().to_owned();
    assert_eq!(listed[0]["aliases"], json!(["base"]));
    assert_eq!(listed[0]["buildStatus"], "ready");
    for name in ["base", &template, "BASE", "base:default"] {
        let (status, one) = fixture.get(&format!("/templates/{name}")).await;
        assert_eq!(
            (status.as_u16(), one["templateID"].as_str()),
            (200, Some(template.as_str()))
        );
    }
    assert_eq!(fixture.get("/templates/aliases/base").await.0, 200);
    assert_eq!(fixture.get("/templates/aliases/free").await.0, 404);
    assert_eq!(fixture.get("/templates/a%2Fb%3Ac").await.0, 404);
    assert_eq!(fixture.get("/v2/templates?limit=1").await.0, 200);
    let made = fixture.create(json!({})).await;
    assert_eq!(made["templateID"], json!(template));
    let (status, answer) = fixture
        .call(Method::DELETE, "/templates/base", Value::Null)
        .await;
    assert_eq!(status, 400, "{answer}");
}

#[tokio::test]
async fn the_same_key_and_request_make_one_sandbox() {
    let fixture = fixture().await;
    let send = async |key: &str, body: &str| {
        let request = Request::post("/v2/sandboxes")
            .header("x-api-key", &fixture.key)
            .header("idempotency-key", key)
            .body(Body::from(body.to_owned()))
            .unwrap();
        let response = fixture.send(request).await;
        let status = response.status().as_u16();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (status, serde_json::from_slice::<Value>(&body).unwrap())
    };
    let (_, first) = send("k-1", r#"{"templateID":"base"}"#).await;
    let (status, again) = send("k-1", r#"{"templateID":"base"}"#).await;
    assert_eq!((status, id(&first)), (201, id(&again)));
    let (status, other) = send("k-1", r#"{"templateID":"base","timeout":9}"#).await;
    assert_eq!(
        (status, other["error_code"].as_str()),
        (422, Some("idempotency_request_mismatch"))
    );
    assert_eq!(send("Not Valid", r#"{"templateID":"base"}"#).await.0, 400);
}

#[tokio::test]
async fn a_request_says_processors_and_memory_over_its_template() {
    let fixture = fixture().await;
    let limits = |made: &Value| (made["cpuCount"].clone(), made["memoryMB"].clone());
    for path in ["/sandboxes", "/v2/sandboxes", "/e2b/v1/sandboxes"] {
        let asked = json!({"templateID": "base", "cpu": "3000m", "memory": "256Mi"});
        let (status, made) = fixture.post(path, asked).await;
        assert_eq!(status, StatusCode::CREATED, "{path}: {made}");
        let id = made["sandboxID"].as_str().unwrap();
        let (_, shown) = fixture.get(&format!("/sandboxes/{id}")).await;
        assert_eq!(limits(&shown), (json!(3), json!(256)), "{path}");
        for (field, value) in [
            ("cpu", json!("lots")),
            ("memory", json!(-1)),
            ("memoryLimit", json!("0")),
        ] {
            let (status, refused) = fixture
                .post(path, json!({"templateID": "base", field: value}))
                .await;
            assert_eq!(status, StatusCode::BAD_REQUEST, "{path} {field}: {refused}");
        }
    }
    // The limits count, in whichever words.
    for (limit, memory) in [("cpu_limit", "memory_limit"), ("cpuLimit", "memoryLimit")] {
        let asked = json!({"templateID": "base", "cpu": "0.5", limit: "2", "memory": "64Mi", memory: "512Mi"});
        let (_, made) = fixture.post("/sandboxes", asked).await;
        let id = made["sandboxID"].as_str().unwrap();
        let (_, shown) = fixture.get(&format!("/sandboxes/{id}")).await;
        assert_eq!(limits(&shown), (json!(2), json!(512)));
    }
}

#[tokio::test]
async fn a_route_may_be_called_so_often() {
    let calls = NonZeroU32::new(2).unwrap();
    let rate_limit = Some(RateLimit {
        calls,
        per: Duration::from_secs(60),
    });
    let fixture = fixture_with(ApiConfig {
        rate_limit,
        ..ApiConfig::default()
    })
    .await;
    let ask = async || {
        let request = Request::get("/templates").header("x-api-key", &fixture.key);
        fixture.send(request.body(Body::empty()).unwrap()).await
    };
    let first = ask().await;
    assert_eq!(first.headers()["ratelimit-limit"], "2");
    assert_eq!(first.headers()["ratelimit-remaining"], "1");
    ask().await;
    let refused = ask().await;
    assert_eq!(refused.status(), 429);
    assert!(refused.headers().contains_key("retry-after"));
    assert_eq!(
        fixture.get("/v2/templates").await.0,
        200,
        "another route is counted apart"
    );
}

#[tokio::test]
async fn browsers_may_ask_first_and_requests_have_ids() {
    let fixture = fixture().await;
    let preflight = Request::options("/v2/sandboxes")
        .header("origin", "https://app.example")
        .header("access-control-request-method", "POST")
        .header("access-control-request-headers", "x-api-key,lang")
        .body(Body::empty())
        .unwrap();
    let answer = fixture.send(preflight).await;
    assert_eq!(answer.headers()["access-control-allow-origin"], "*");
    assert!(
        answer.headers()["access-control-allow-methods"]
            .to_str()
            .unwrap()
            .contains("PATCH")
    );
    let with_id = Request::get("/health")
        .header("x-request-id", "mine-1")
        .body(Body::empty());
    assert_eq!(
        fixture.send(with_id.unwrap()).await.headers()["x-request-id"],
        "mine-1"
    );
    let without = Request::get("/nowhere").body(Body::empty()).unwrap();
    let answer = fixture.send(without).await;
    assert_eq!(answer.status(), 404);
    assert_eq!(answer.headers()["x-request-id"].len(), 32);
}

#[tokio::test]
async fn a_body_above_the_limit_is_refused() {
    let fixture = fixture().await;
    let huge = json!({"templateID": "base", "metadata": {"k": "x".repeat(17 << 20)}});
    assert_eq!(fixture.post("/v2/sandboxes", huge).await.0, 413);
    let large = json!({"templateID": "base", "metadata": {"k": "x".repeat(1 << 20)}});
    assert_eq!(fixture.post("/v2/sandboxes", large).await.0, 400);
}

#[tokio::test]
async fn a_paused_sandbox_is_shown_as_one_and_listed() {
    let fixture = fixture().await;
    let made = fixture
        .create(json!({"autoPause": true, "autoResume": {"enabled": true}}))
        .await;
    let id = made["sandboxID"].as_str().unwrap();
    let path = format!("/sandboxes/{id}");
    let (_, seen) = fixture.get(&path).await;
    assert_eq!(
        seen["lifecycle"],
        json!({"autoResume": true, "onTimeout": "pause"})
    );
    for (body, mode) in [
        (json!({}), "full"),
        (json!({"memory": false}), "filesystem"),
    ] {
        let (status, _) = fixture.post(&format!("{path}/pause"), body).await;
        assert_eq!(status, 204);
        let (_, seen) = fixture.get(&path).await;
        assert_eq!(seen["state"], "paused");
        assert_eq!(seen["pauseMode"], mode);
        let (_, paused) = fixture.get("/v2/sandboxes?state=paused").await;
        assert_eq!(paused[0]["sandboxID"], id);
        let (_, running) = fixture.get("/v2/sandboxes?state=running").await;
        assert_eq!(running, json!([]));
        let (status, after) = fixture
            .post(&format!("{path}/connect"), json!({"timeout": 9}))
            .await;
        assert_eq!(status, 201);
        assert_eq!(after["envdAccessToken"], made["envdAccessToken"]);
    }
    let (_, seen) = fixture.get(&path).await;
    assert_eq!(seen["pauseMode"], Value::Null);
    fixture.post(&format!("{path}/pause"), json!({})).await;
    assert_eq!(
        fixture.call(Method::DELETE, &path, Value::Null).await.0,
        204
    );
    assert_eq!(fixture.get(&path).await.0, 404);
}

#[tokio::test]
async fn snapshots_are_taken_listed_started_and_removed() {
    let fixture = fixture().await;
    let made = fixture.create(json!({})).await;
    let path = format!(
        "/sandboxes/{}/snapshots",
        made["sandboxID"].as_str().unwrap()
    );
    let (status, unnamed) = fixture.post(&path, json!({})).await;
    assert_eq!(status, 201);
    assert_eq!(unnamed["names"], json!([]));
    assert_eq!(unnamed["shoal"]["contents"], "memory,filesystem");
    let id = unnamed["snapshotID"].as_str().unwrap().to_owned();
    assert!(id.len() == 28 && id.ends_with(":default"), "{id}");
    let (_, named) = fixture
        .post(&path, json!({"name": "work:v1", "memory": false}))
        .await;
    assert_eq!(named["shoal"]["contents"], "filesystem");
    let full = named["snapshotID"].as_str().unwrap().to_owned();
    assert!(full.ends_with("/work:v1"), "{full}");
    assert_eq!(named["names"][0], full.trim_end_matches(":v1"));
    let (_, all) = fixture.get("/snapshots").await;
    assert_eq!(all.as_array().unwrap().len(), 2);
    for (query, expected) in [
        ("name=work", vec![&full]),
        ("name=work:v1", vec![&full]),
        ("name=work:v2", vec![]),
    ] {
        let (status, found) = fixture.get(&format!("/snapshots?{query}")).await;
        assert_eq!(status, 200, "{query}");
        let found = found.as_array().unwrap().iter();
        let ids: Vec<&str> = found.map(|s| s["snapshotID"].as_str().unwrap()).collect();
        assert_eq!(ids, expected, "{query}");
    }
    for reference in [&id, &full] {
        let body = json!({"templateID": reference});
        let (status, clone) = fixture.post("/v2/sandboxes", body).await;
        assert_eq!(status, 201, "{clone}");
        let encoded = reference.replace('/', "%2F").replace(':', "%3A");
        let path = format!("/templates/{encoded}");
        assert_eq!(
            fixture.call(Method::DELETE, &path, Value::Null).await.0,
            204
        );
        assert_eq!(
            fixture.call(Method::DELETE, &path, Value::Null).await.0,
            404
        );
    }
    assert_eq!(fixture.get("/snapshots").await.1, json!([]));
    // A name alone means all its tags, whichever they are.
    for tag in ["work:v1", "work:v2"] {
        let (status, taken) = fixture.post(&path, json!({"name": tag})).await;
        assert_eq!(status, 201, "{taken}");
    }
    let remove = || fixture.call(Method::DELETE, "/templates/work", Value::Null);
    assert_eq!(remove().await.0, 204);
    assert_eq!(fixture.get("/snapshots").await.1, json!([]));
    assert_eq!(remove().await.0, 404);
}

#[tokio::test]
async fn a_snapshot_is_shown_as_the_template_that_its_clones_have() {
    let fixture = fixture().await;
    let source = fixture.create(json!({})).await;
    let snapshots = format!("/sandboxes/{}/snapshots", id(&source));
    let mut taken = Vec::new();
    for name in ["work:v1", "work:v2", "work", "work:v1"] {
        let (status, one) = fixture.post(&snapshots, json!({"name": name})).await;
        assert_eq!(status, 201, "{one}");
        taken.push(one["snapshotID"].as_str().unwrap().to_owned());
    }
    let clone = json!({"templateID": taken[3]});
    let (_, clone) = fixture.post("/v2/sandboxes", clone).await;
    let template = clone["templateID"].as_str().unwrap();
    for name in [template, "work", "default%2Fwork"] {
        let (status, found) = fixture.get(&format!("/templates/{name}")).await;
        assert_eq!(
            (status.as_u16(), &found["templateID"]),
            (200, &json!(template)),
            "{found}"
        );
        assert_eq!(found["builds"].as_array().unwrap().len(), 3);
        let (status, tags) = fixture.get(&format!("/templates/{name}/tags")).await;
        let tags = tags.as_array().unwrap();
        let mut names: Vec<_> = tags
            .iter()
            .map(|tag| tag["tag"].as_str().unwrap())
            .collect();
        names.sort_unstable();
        assert_eq!((status.as_u16(), names), (200, vec!["default", "v1", "v2"]));
        assert!(
            tags.iter()
                .all(|tag| tag["buildID"].as_str().unwrap().len() == 36)
        );
    }
    for (path, field, value) in [
        ("tags/count", "/total", json!(3)),
        ("tags/exists?tag=v2", "/exists", json!(true)),
        ("tags/exists?tag=v3", "/exists", json!(false)),
        ("tags/groups?search=v", "/tags/0/tag", json!("v1")),
        (
            "tags/v2/assignments",
            "/data/0/buildFinishedAt",
            Value::Null,
        ),
    ] {
        let (status, seen) = fixture.get(&format!("/templates/work/{path}")).await;
        assert_eq!(status, 200, "{path}: {seen}");
        match value {
            Value::Null => assert!(seen.pointer(field).unwrap().is_string()),
            value => assert_eq!(seen.pointer(field), Some(&value), "{path}: {seen}"),
        }
    }
    let remove = async |name: &str, tag: &str| {
        let body = json!({"name": name, "tags": [tag]});
        let removed = fixture.call(Method::DELETE, "/templates/tags", body);
        removed.await.0.as_u16()
    };
    assert_eq!(remove("work", "default").await, 400, "as of a template");
    assert_eq!(remove("nothing", "v2").await, 404);
    // A name alone is one snapshot, however many takings it has.
    for asked in ["work", "work:v2", template] {
        let (_, listed) = fixture.get(&format!("/snapshots?name={asked}")).await;
        assert_eq!(listed.as_array().unwrap().len(), 1, "{asked}: {listed}");
    }
    let (_, listed) = fixture.get("/snapshots?name=work:v2").await;
    assert_eq!(listed[0]["snapshotID"], json!(taken[1]));
    assert_eq!(remove("work", "v2").await, 204);
    let (_, gone) = fixture.get("/snapshots?name=work:v2").await;
    assert_eq!(gone, json!([]));
    assert_eq!(
        fixture.get("/templates/work/tags/count").await.1["total"],
        2
    );
}

#[tokio::test]
async fn a_snapshot_gets_more_tags_and_loses_them() {
    let fixture = fixture().await;
    let source = fixture.create(json!({})).await;
    let snapshots = format!("/sandboxes/{}/snapshots", id(&source));
    let take = async |name: &str| {
        let (status, one) = fixture.post(&snapshots, json!({"name": name})).await;
        assert_eq!(status, 201, "{one}");
    };
    let assign = async |target: &str, tags: Value| {
        let body = json!({"target": target, "tags": tags});
        let (status, answer) = fixture.post("/templates/tags", body).await;
        (status.as_u16(), answer)
    };
    let builds = async || {
        let (_, tags) = fixture.get("/templates/work/tags").await;
        let tags = tags.as_array().unwrap().iter();
        let build = |tag: &Value| tag["buildID"].as_str().unwrap().to_owned();
        let named = tags.map(|tag| (tag["tag"].as_str().unwrap().to_owned(), build(tag)));
        named.collect::<BTreeMap<_, _>>()
    };
    take("work").await;
    take("work:v1").await;
    let (status, added) = assign("work", json!(["stable", "latest"])).await;
    assert_eq!(status, 201, "{added}");
    let before = builds().await;
    assert_eq!(
        before.keys().collect::<Vec<_>>(),
        ["default", "latest", "stable", "v1"]
    );
    assert_eq!(added["buildID"], json!(before["default"]));
    assert_eq!(before["stable"], before["latest"]);
    // A tag moves, unless it is the only one of what it means.
    assert_eq!(assign("work:v1", json!(["latest"])).await.0, 201);
    assert_eq!(builds().await["latest"], before["v1"]);
    let (status, refused) = assign("work:v1", json!(["default", "stable"])).await;
    assert_eq!(status, 409, "{refused}");
    assert_eq!(builds().await["stable"], before["stable"]);
    let clone = json!({"templateID": "work:stable"});
    assert_eq!(fixture.post("/v2/sandboxes", clone).await.0, 201);
    // Another taking of the first tag leaves the snapshot its other tag.
    take("work").await;
    let after = builds().await;
    assert_eq!(after["stable"], before["stable"]);
    assert_ne!(after["default"], before["default"]);
    let body = json!({"name": "work", "tags": ["v1", "stable"]});
    let removed = fixture.call(Method::DELETE, "/templates/tags", body).await;
    assert_eq!(removed.0, 204, "{}", removed.1);
    let last = builds().await;
    assert_eq!(last.keys().collect::<Vec<_>>(), ["default", "latest"]);
    assert_eq!(last["latest"], before["v1"]);
    assert_eq!(assign("work:never", json!(["x"])).await.0, 404);
}

#[tokio::test]
async fn a_fork_answers_for_each_member() {
    let fixture = fixture().await;
    let made = fixture.create(json!({})).await;
    let path = format!("/sandboxes/{}/fork", made["sandboxID"].as_str().unwrap());
    let (status, forked) = fixture
        .post(&path, json!({"count": 3, "timeout": 60}))
        .await;
    assert_eq!(status, 201);
    let members = forked.as_array().unwrap();
    assert_eq!(members.len(), 3);
    for member in members {
        assert!(member["sandbox"]["sandboxID"].is_string(), "{member}");
    }
}

#[tokio::test]
async fn what_a_team_may_not_have_is_refused_by_the_kind_of_limit() {
    let limits = |limits: &mut Limits| {
        limits.sandboxes_per_team = 3;
        limits.cpu_per_team = Some(MilliCpu(4000));
    };
    let fixture = fixture_of(ApiConfig::default(), limits).await;
    let made = fixture.create(json!({})).await;
    let path = format!("/sandboxes/{}/fork", made["sandboxID"].as_str().unwrap());
    // No later try would do.
    let (status, refused) = fixture.post(&path, json!({"count": 4})).await;
    assert_eq!(status, 400, "{refused}");
    let (status, forked) = fixture.post(&path, json!({"count": 2})).await;
    assert_eq!(status, 201, "{forked}");
    let members = forked.as_array().unwrap().iter();
    let failed: Vec<_> = members.filter_map(|one| one["error"].as_object()).collect();
    assert_eq!(failed.len(), 1, "{forked}");
    assert_eq!(failed[0]["code"], 429);
    let body = json!({"templateID": "base"});
    let (status, refused) = fixture.post("/v2/sandboxes", body).await;
    assert_eq!(status, 429, "{refused}");
    let said = refused["message"].as_str().unwrap();
    assert!(said.contains("your team has 0m left"), "{said}");
}

#[tokio::test]
async fn the_resize_of_a_new_sandbox_is_shown() {
    let fixture = fixture().await;
    let asked = json!({"metadata": {"e2b.agents.kruise.io/cpu-scale-factor": "2"}});
    let made = fixture.create(asked).await;
    assert_eq!(made["shoal"]["resize"], "completed");
    let path = format!("/sandboxes/{}", made["sandboxID"].as_str().unwrap());
    assert_eq!(fixture.get(&path).await.1["cpuCount"], 4);
    let native = format!(
        "/api/v1/sandbox/{}/resources",
        made["sandboxID"].as_str().unwrap()
    );
    let body = json!({"cpu": "500m", "memory": 512});
    let (status, now) = fixture.call(Method::PATCH, &native, body).await;
    assert_eq!(status, 200, "{now}");
    assert_eq!(now["data"]["cpuMilli"], 500);
    assert_eq!(now["data"]["memoryMB"], 512);
    for (body, status) in [
        (json!({}), 400),
        (json!({"cpu": "x"}), 400),
        (json!({"cpu": 0}), 400),
        (json!({"cpu": 64}), 409),
        (json!({"memory": "1e9"}), 400),
    ] {
        let (seen, answer) = fixture.call(Method::PATCH, &native, body.clone()).await;
        assert_eq!(seen.as_u16(), status, "{body}: {answer}");
    }
}

/// Asks until the answer is the expected one.
async fn until(fixture: &Fixture, path: &str, so: impl Fn(&Value) -> bool) {
    let end = std::time::Instant::now() + Duration::from_secs(60);
    loop {
        let (_, seen) = fixture.get(path).await;
        if so(&seen) {
            return;
        }
        assert!(std::time::Instant::now() < end, "never so: {seen}");
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn who_asks_for_an_early_answer_sees_that_the_resize_is_under_way() {
    let fixture = fixture().await;
    fixture.driver.resizes().shut();
    let asked = json!({"metadata": {
        "e2b.agents.kruise.io/cpu-scale-factor": "2",
        "e2b.agents.kruise.io/cpu-resize-early-return": "true",
    }});
    let made = fixture.create(asked).await;
    assert_eq!(made["shoal"]["resize"], "in_progress");
    let path = format!("/sandboxes/{}", id(&made));
    let (_, before) = fixture.get(&path).await;
    assert_eq!(before["shoal"]["resize"], "in_progress");
    assert_eq!(before["cpuCount"], 2);
    fixture.driver.resizes().open();
    until(&fixture, &path, |seen| {
        seen["shoal"]["resize"] == "completed"
    })
    .await;
    assert_eq!(fixture.get(&path).await.1["cpuCount"], 4);
}

#[tokio::test]
async fn who_says_how_long_to_wait_for_a_snapshot_is_not_kept_longer() {
    let fixture = fixture().await;
    let made = fixture.create(json!({})).await;
    fixture.driver.saves().shut();
    let request = Request::post(format!("/sandboxes/{}/snapshots", id(&made)))
        .header("X-API-KEY", &fixture.key)
        .header("content-type", "application/json")
        .header("x-e2b-kruise-snapshot-wait-success-seconds", "1")
        .body(Body::from("{}"))
        .unwrap();
    let begun = std::time::Instant::now();
    let late = fixture.send(request).await;
    assert_eq!(late.status(), 504);
    // Without the header it would have been a minute.
    assert!(begun.elapsed() < Duration::from_secs(30));
    let bytes = late.into_body().collect().await.unwrap().to_bytes();
    let text = String::from_utf8_lossy(&bytes).into_owned();
    assert!(text.contains("not finished after 1 s"), "{text}");
    fixture.driver.saves().open();
    until(&fixture, "/snapshots", |seen| {
        seen.as_array().is_some_and(|all| all.len() == 1)
    })
    .await;
}
