//! The native routes of sandboxes over HTTP, with a driver and a guest that only remember.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use http::{Request, Response, StatusCode};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use shoal_api::{ApiConfig, router};
use shoal_core::ports::inside::{CommandExit, CommandOutput};
use shoal_engine::test_util::{self, FakeGuest, base_template};
use shoal_engine::{Defaults, EngineConfig, EngineParts};
use tower::ServiceExt;

struct Fixture {
    _directory: tempfile::TempDir,
    guest: FakeGuest,
    router: Router,
    admin: String,
    key: String,
}

async fn fixture() -> Fixture {
    let directory = tempfile::tempdir().unwrap();
    let guest = FakeGuest::default();
    let engine = test_util::open(EngineParts {
        config: EngineConfig {
            defaults: Defaults {
                template: Some("base".parse().unwrap()),
                image: None,
            },
            ..EngineConfig::new(directory.path())
        },
        guest: Arc::new(guest.clone()),
        ..test_util::parts(directory.path())
    })
    .await;
    engine.put_template(base_template()).await.unwrap();
    let admin = engine.mint_first_key(|_| Ok(())).await.unwrap().unwrap();
    let mut fixture = Fixture {
        _directory: directory,
        guest,
        router: router(engine.ports(), ApiConfig::default()),
        admin: admin.reveal().to_owned(),
        key: admin.reveal().to_owned(),
    };
    fixture.key = fixture.key_of("acme").await;
    fixture
}

impl Fixture {
    async fn send(&self, request: Request<Body>) -> Response<Body> {
        self.router.clone().oneshot(request).await.unwrap()
    }

    async fn call_as(&self, key: &str, method: &str, path: &str, body: Value) -> (u16, Value) {
        let body = if body.is_null() {
            Body::empty()
        } else {
            Body::from(body.to_string())
        };
        let request = Request::builder()
            .method(method)
            .uri(format!("/api/v1{path}"))
            .header("x-api-key", key)
            .body(body)
            .unwrap();
        let response = self.send(request).await;
        let status = response.status();
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        let answer: Value = serde_json::from_slice(&bytes).unwrap();
        if status.is_success() {
            assert_eq!(answer["code"], "0");
        } else {
            assert_eq!(answer["code"], status.as_u16().to_string(), "{answer}");
            assert_eq!(answer["error"], answer["message"]);
        }
        (status.as_u16(), answer)
    }

    async fn call(&self, method: &str, path: &str, body: Value) -> (u16, Value) {
        self.call_as(&self.key, method, path, body).await
    }

    async fn get(&self, path: &str) -> (u16, Value) {
        self.call("GET", path, Value::Null).await
    }

    async fn key_of(&self, team: &str) -> String {
        let body = json!({"name": "ci", "team": team});
        let (_, made) = self.call_as(&self.admin, "POST", "/keys", body).await;
        made["data"]["secret"].as_str().unwrap().to_owned()
    }

    async fn create(&self, body: Value) -> Value {
        let (status, made) = self.call("POST", "/sandbox", body).await;
        assert_eq!(status, 201, "{made}");
        made["data"].clone()
    }
}

#[tokio::test]
async fn a_sandbox_is_made_seen_by_its_name_and_removed() {
    let fixture = fixture().await;
    let made = fixture
        .create(json!({
            "name": "box", "template": "base", "envVars": {"A": "1"}, "metadata": {"k": "v"},
            "cpu": "500m", "memory_limit": 256, "port": 3000, "workdir": "/srv", "timeout": 60,
            "autoPause": false, "autoResume": true, "idle_timeout": -1, "user": "acme",
            "cmd": "sleep", "args": ["9"],
        }))
        .await;
    for (field, value) in [
        ("name", json!("box")),
        ("template", json!("base")),
        ("user", json!("acme")),
        ("status", json!("running")),
        ("cpu", json!("500m")),
        ("cpu_limit", json!("500m")),
        ("memory", json!("256Mi")),
        ("port", json!(3000)),
        ("workdir", json!("/srv")),
        ("timeout", json!(60)),
        ("idle_timeout", json!(-1)),
        ("autoResume", json!(true)),
        ("isPool", json!(false)),
        ("origin", json!("cold")),
        ("cmd", json!("sleep")),
        ("args", json!(["9"])),
        ("envVars", json!({"A": "1"})),
        ("metadata", json!({"k": "v"})),
    ] {
        assert_eq!(made[field], value, "{field}: {made}");
    }
    let command = fixture.guest.commands.lock()[0].1.clone();
    assert_eq!(
        (command.program.as_str(), command.args),
        ("sleep", vec!["9".to_owned()])
    );
    let id = made["id"].as_str().unwrap();
    for name in ["box", id] {
        assert_eq!(
            fixture.get(&format!("/sandbox/{name}")).await.1["data"],
            made
        );
    }
    let (status, _) = fixture.call("DELETE", "/sandbox/box", Value::Null).await;
    assert_eq!(status, 200);
    assert_eq!(fixture.get("/sandbox/box").await.0, 404);
}

#[tokio::test]
async fn what_is_not_said_has_a_default() {
    let fixture = fixture().await;
    let made = fixture.create(json!({})).await;
    let name = format!("sbx-base-{}", made["id"].as_str().unwrap());
    assert_eq!(made["name"], name);
    assert_eq!(
        (made["timeout"].clone(), made["port"].clone()),
        (json!(1800), json!(8080))
    );
    let longest = fixture.create(json!({"timeout": -1})).await;
    assert_eq!(longest["timeout"], 86400);
}

#[tokio::test]
async fn foolish_orders_are_refused_with_what_is_wrong() {
    let fixture = fixture().await;
    for (body, status, text) in [
        (json!({"nmae": "x"}), 400, "unknown field `nmae`"),
        (json!({"name": "../x"}), 400, "invalid sandbox name"),
        (json!({"name": "pause"}), 400, "invalid sandbox name"),
        (json!({"template": "nothing"}), 404, "'nothing' not found"),
        (json!({"image": "no such"}), 400, "`image`"),
        (
            json!({"image": "alpine"}),
            403,
            "only an admin key may name an image",
        ),
        (json!({"user": "other"}), 400, "`user`"),
        (json!({"timeout": 86401}), 400, "Timeout"),
        (json!({"timeout": -2}), 400, "`timeout`"),
        (json!({"timeout": 0}), 400, "Timeout"),
        (json!({"timeout": "soon"}), 400, "`timeout`: invalid type"),
        (json!({"idle_timeout": 60}), 400, "`idle_timeout`"),
        (json!({"cpu": "much"}), 400, "`cpu`"),
        (json!({"cpu": 2, "cpu_limit": 1}), 400, "`cpu`: is more"),
        (json!({"memory": -1}), 400, "`memory`"),
        (json!({"port": 0}), 400, "`port`"),
        (json!({"port": 65536}), 400, "`port`"),
        (json!({"args": ["x"]}), 400, "`args`: need a `cmd`"),
        (json!({"cmd": "a\0b"}), 400, "`cmd`"),
        (json!({"envVars": {"A=B": "x"}}), 400, "`envVars`"),
        (json!({"envVars": {"A": 1}}), 400, "`envVars"),
        (json!({"workdir": "/\0"}), 400, "`workdir`"),
        (json!([]), 400, "the body"),
    ] {
        let (told, answer) = fixture.call("POST", "/sandbox", body.clone()).await;
        let message = answer["error"].as_str().unwrap();
        assert_eq!(told, status, "{body}: {answer}");
        assert!(message.contains(text), "{body}: {message}");
    }
    fixture.create(json!({"name": "box"})).await;
    let taken = json!({"name": "box"});
    assert_eq!(fixture.call("POST", "/sandbox", taken).await.0, 409);
    assert_eq!(
        fixture.get("/sandbox").await.1["data"]
            .as_array()
            .unwrap()
            .len(),
        1
    );
}

#[tokio::test]
async fn a_list_has_pages_labels_and_for_an_admin_all_teams() {
    let fixture = fixture().await;
    for n in 0..3 {
        let label = if n == 0 { "a" } else { "b" };
        fixture
            .create(json!({"name": format!("box-{n}"), "metadata": {"k": label}}))
            .await;
    }
    let listed = |answer: Value| answer["data"].as_array().unwrap().len();
    assert_eq!(listed(fixture.get("/sandbox?metadata=k%3Db").await.1), 2);
    let all = fixture
        .call_as(&fixture.admin, "GET", "/sandbox", Value::Null)
        .await;
    assert!(all.1["data"][0].get("envVars").is_none());
    assert_eq!(listed(all.1), 3);
    let other = fixture.key_of("other").await;
    let theirs = fixture
        .call_as(&other, "GET", "/sandbox", Value::Null)
        .await;
    assert_eq!(listed(theirs.1), 0);
    let page = |path: String| {
        let request = Request::get(path).header("x-api-key", &fixture.key);
        fixture.send(request.body(Body::empty()).unwrap())
    };
    let first = page("/api/v1/sandbox?limit=2".to_owned()).await;
    let next = first.headers()["x-next-token"].to_str().unwrap().to_owned();
    let second = page(format!("/api/v1/sandbox?limit=2&next={next}")).await;
    assert!(!second.headers().contains_key("x-next-token"));
    for bad in ["limit=0", "limit=101", "limit=x", "next=x", "metadata=k"] {
        assert_eq!(
            fixture.get(&format!("/sandbox?{bad}")).await.0,
            400,
            "{bad}"
        );
    }
}

#[tokio::test]
async fn what_is_anothers_is_not_there() {
    let fixture = fixture().await;
    let made = fixture.create(json!({"name": "box"})).await;
    let other = fixture.key_of("other").await;
    let id = made["id"].as_str().unwrap();
    for key in [&other, &fixture.admin] {
        for name in ["box", id] {
            for (method, path, body) in [
                ("GET", "/sandbox/{}", Value::Null),
                ("DELETE", "/sandbox/{}", Value::Null),
                ("POST", "/sandbox/pause/{}", Value::Null),
                ("POST", "/sandbox/resume/{}", Value::Null),
                ("PATCH", "/sandbox/{}/resources", json!({"cpu": 1})),
                ("GET", "/sandbox/files/{}?path=/", Value::Null),
                ("DELETE", "/sandbox/files/{}?path=/x", Value::Null),
                ("GET", "/sandbox/files/{}/download?path=/x", Value::Null),
                ("POST", "/sandbox/files/{}/upload?path=/x", Value::Null),
                ("POST", "/terminal/sandbox/{}", json!({"command": "id"})),
                ("GET", "/terminal/sandbox/{}/ws", Value::Null),
                ("GET", "/logs/sandbox/{}", Value::Null),
                ("GET", "/events?sandbox={}", Value::Null),
            ] {
                let path = path.replace("{}", name);
                let (status, answer) = fixture.call_as(key, method, &path, body).await;
                assert_eq!(status, 404, "{method} {path}: {answer}");
            }
            let asked = json!({"names": [name]});
            let (_, used) = fixture
                .call_as(key, "POST", "/sandbox/metrics", asked)
                .await;
            assert_eq!(used["data"]["items"], json!([]));
        }
    }
    assert_eq!(fixture.get("/sandbox/box").await.0, 200);
}

#[tokio::test]
async fn it_is_paused_and_goes_on() {
    let fixture = fixture().await;
    fixture.create(json!({"name": "box"})).await;
    let (status, paused) = fixture
        .call("POST", "/sandbox/pause/box", Value::Null)
        .await;
    assert_eq!((status, &paused["data"]["status"]), (200, &json!("paused")));
    let (status, answer) = fixture.get("/sandbox/files/box?path=/").await;
    assert_eq!(status, 409, "{answer}");
    assert!(
        answer["error"]
            .as_str()
            .unwrap()
            .contains("resume it first")
    );
    for bad in [
        json!({"timeout": 0}),
        json!({"timeout": 86401}),
        json!({"soon": 1}),
    ] {
        assert_eq!(
            fixture.call("POST", "/sandbox/resume/box", bad).await.0,
            400
        );
    }
    let (status, resumed) = fixture
        .call("POST", "/sandbox/resume/box", Value::Null)
        .await;
    assert_eq!(
        (status, &resumed["data"]["status"]),
        (200, &json!("running"))
    );
    let (_, events) = fixture.get("/events?sandbox=box").await;
    let kinds: Vec<&str> = events["data"]["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|event| event["kind"].as_str().unwrap())
        .collect();
    assert_eq!(kinds, ["resumed", "paused", "created"]);
}

fn form(parts: &[(&str, &[u8])]) -> Vec<u8> {
    let mut body = Vec::new();
    for (name, contents) in parts {
        let head = format!(
            "--frontier\r\nContent-Disposition: form-data; name=\"{name}\"; \
             filename=\"x\"\r\n\r\n"
        );
        body.extend_from_slice(head.as_bytes());
        body.extend_from_slice(contents);
        body.extend_from_slice(b"\r\n");
    }
    body.extend_from_slice(b"--frontier--\r\n");
    body
}

impl Fixture {
    async fn upload(&self, path: &str, body: Vec<u8>) -> StatusCode {
        let request = Request::post(format!("/api/v1{path}"))
            .header("x-api-key", &self.key)
            .header("content-type", "multipart/form-data; boundary=frontier");
        self.send(request.body(body.into()).unwrap()).await.status()
    }
}

#[tokio::test]
async fn files_go_in_and_come_out_and_are_removed() {
    let fixture = fixture().await;
    fixture.create(json!({"name": "box"})).await;
    // More than other bodies may have.
    let large = vec![b'x'; 20 << 20];
    let body = form(&[("other", b"no"), ("file", &large)]);
    let to = "/sandbox/files/box/upload?path=/tmp/a%20b";
    assert_eq!(fixture.upload(to, body).await, 201);
    let (_, listed) = fixture.get("/sandbox/files/box?path=/tmp").await;
    let entry = json!({"name": "a b", "path": "/tmp/a b", "isDir": false, "size": 20 << 20});
    assert_eq!(listed["data"], json!([entry]));
    let request = Request::get("/api/v1/sandbox/files/box/download?path=/tmp/a%20b")
        .header("x-api-key", &fixture.key);
    let response = fixture.send(request.body(Body::empty()).unwrap()).await;
    assert_eq!(
        response.headers()["content-type"],
        "application/octet-stream"
    );
    let disposition = response.headers()["content-disposition"].to_str().unwrap();
    assert_eq!(disposition, "attachment; filename*=UTF-8''a%20b");
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(bytes.len(), 20 << 20);
    let path = "/sandbox/files/box?path=/tmp/a%20b";
    assert_eq!(fixture.call("DELETE", path, Value::Null).await.0, 200);
    assert_eq!(fixture.call("DELETE", path, Value::Null).await.0, 404);
}

#[tokio::test]
async fn foolish_uploads_are_refused() {
    let fixture = fixture().await;
    fixture.create(json!({"name": "box"})).await;
    let to = "/sandbox/files/box/upload?path=/x";
    let much = vec![b'x'; (100 << 20) + 1];
    assert_eq!(fixture.upload(to, form(&[("file", &much)])).await, 413);
    assert!(fixture.guest.files.lock().is_empty(), "half a file is none");
    assert_eq!(fixture.upload(to, form(&[("other", b"x")])).await, 400);
    assert_eq!(fixture.upload(to, b"nonsense".to_vec()).await, 400);
    let broken = form(&[("file", b"x")]);
    assert_eq!(
        fixture
            .upload(to, broken[..broken.len() - 16].to_vec())
            .await,
        400
    );
    let nowhere = "/sandbox/files/box/upload";
    assert_eq!(fixture.upload(nowhere, form(&[("file", b"x")])).await, 400);
    for path in ["", "?path=", "?path=%00", "?path=/a%00b"] {
        let path = format!("/sandbox/files/box/download{path}");
        assert_eq!(fixture.get(&path).await.0, 400, "{path}");
    }
    assert_eq!(fixture.get("/sandbox/files/box/upload").await.0, 405);
}

#[tokio::test]
async fn a_line_is_run_in_a_login_shell() {
    let fixture = fixture().await;
    fixture.create(json!({"name": "box"})).await;
    let exit = CommandExit {
        code: 2,
        error: None,
    };
    *fixture.guest.output.lock() = vec![
        CommandOutput::Stdout("out".into()),
        CommandOutput::Stderr("err".into()),
        CommandOutput::Exit(exit),
    ];
    let body = json!({"command": "-x; id", "user": "root"});
    let (status, ran) = fixture.call("POST", "/terminal/sandbox/box", body).await;
    assert_eq!(status, 200, "{ran}");
    let ran = &ran["data"];
    assert_eq!(
        (&ran["output"], &ran["errorOutput"]),
        (&json!("out"), &json!("err"))
    );
    assert_eq!(
        (&ran["exitCode"], &ran["truncated"]),
        (&json!(2), &json!(false))
    );
    let (target, command) = fixture.guest.commands.lock()[0].clone();
    assert_eq!(target.user.as_deref(), Some("root"));
    assert_eq!(command.args.last().unwrap(), "-x; id");
    for bad in [
        json!({}),
        json!({"command": ""}),
        json!({"command": "a\0"}),
        json!({"command": "a", "timeout": 61}),
        json!({"command": "a", "timeout": 0}),
        json!({"command": ["a"]}),
        json!({"command": "a", "tty": true}),
    ] {
        let (status, answer) = fixture
            .call("POST", "/terminal/sandbox/box", bad.clone())
            .await;
        assert_eq!(status, 400, "{bad}: {answer}");
    }
}

#[tokio::test]
async fn a_terminal_needs_a_key_an_upgrade_and_a_page_of_ours() {
    let fixture = fixture().await;
    fixture.create(json!({"name": "box"})).await;
    let path = "/api/v1/terminal/sandbox/box/ws";
    let ask = |pairs: Vec<(&'static str, String)>| {
        let mut request = Request::get(path).header("host", "shoal.example");
        for (name, value) in pairs {
            request = request.header(name, value);
        }
        fixture.send(request.body(Body::empty()).unwrap())
    };
    let key = || ("x-api-key", fixture.key.clone());
    assert_eq!(ask(vec![]).await.status(), 401);
    assert_eq!(ask(vec![key()]).await.status(), 400);
    let origin = ("origin", "https://evil.example".to_owned());
    assert_eq!(ask(vec![key(), origin]).await.status(), 403);
    for (name, value) in [
        (
            "sec-websocket-protocol",
            format!("shoal-terminal, shoal-key.{}", fixture.key),
        ),
        ("authorization", format!("Bearer {}", fixture.key)),
    ] {
        assert_eq!(ask(vec![(name, value)]).await.status(), 400, "{name}");
    }
    let wrong = format!("shoal-key.e2b_{}", "0".repeat(40));
    assert_eq!(
        ask(vec![("sec-websocket-protocol", wrong)]).await.status(),
        401
    );
    let in_address = format!("{path}?token={}", fixture.key);
    let request = Request::get(in_address).body(Body::empty()).unwrap();
    assert_eq!(fixture.send(request).await.status(), 401);
}

#[tokio::test]
async fn limits_and_totals_are_told() {
    let fixture = fixture().await;
    fixture.create(json!({"name": "box"})).await;
    let (_, limits) = fixture.get("/ratelimit").await;
    assert_eq!(
        limits["data"]["sandboxes"],
        json!({"used": 1, "limit": 1000})
    );
    assert_eq!(limits["data"]["calls"], Value::Null);
    let (_, own) = fixture.get("/status").await;
    assert_eq!(own["data"]["states"], json!({"running": 1}));
    assert!(own["data"].get("totals").is_none());
    let (_, all) = fixture
        .call_as(&fixture.admin, "GET", "/status", Value::Null)
        .await;
    assert_eq!(all["data"]["states"], json!({}));
    assert_eq!(all["data"]["totals"]["sandboxes"]["used"], 1);
    for path in [
        "/logs/sandbox/box?tailLines=0",
        "/logs/sandbox/box?tailLines=2001",
        "/events?limit=501",
        "/events?limit=0",
    ] {
        assert_eq!(fixture.get(path).await.0, 400, "{path}");
    }
    let (status, logs) = fixture.get("/logs/sandbox/box").await;
    assert_eq!((status, &logs["data"]["sandbox"]), (200, &json!("box")));
}
