//! Builds over HTTP: the files that they copy, and who may see and change them.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use bytes::Bytes;
use futures_util::stream;
use http::{Request, StatusCode};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use shoal_api::{ApiConfig, router};
use shoal_engine::test_util::{self, FakeRegistry, ManualClock, admin_and_other};
use shoal_engine::{EngineParts, UPLOAD_MAX};
use tower::ServiceExt;

struct Fixture {
    directory: tempfile::TempDir,
    router: Router,
    clock: Arc<ManualClock>,
    me: String,
    other: String,
}

async fn fixture() -> Fixture {
    fixture_with(UPLOAD_MAX).await
}

async fn fixture_with(upload_max: u64) -> Fixture {
    let directory = tempfile::tempdir().unwrap();
    let clock = ManualClock::new();
    let mut parts = test_util::parts(directory.path());
    parts.config.upload_max = upload_max;
    let engine = test_util::open(EngineParts {
        images: Arc::new(FakeRegistry::default()),
        clock: clock.clone(),
        ..parts
    })
    .await;
    let (me, other) = admin_and_other(&engine).await;
    Fixture {
        directory,
        router: router(engine.ports(), ApiConfig::default()),
        clock,
        me,
        other,
    }
}

impl Fixture {
    async fn send(&self, request: Request<Body>) -> (StatusCode, Value) {
        let response = self.router.clone().oneshot(request).await.unwrap();
        let status = response.status();
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        (status, serde_json::from_slice(&bytes).unwrap_or_default())
    }

    async fn call(&self, key: &str, method: &str, path: &str, body: Value) -> (StatusCode, Value) {
        let request = Request::builder().method(method).uri(path);
        let request = request.header("X-API-Key", key).header("Host", "shoal");
        self.send(request.body(Body::from(body.to_string())).unwrap())
            .await
    }

    /// A build that is announced: the paths of its template and of itself.
    async fn announced(&self) -> (String, String) {
        let (status, build) = self
            .call(&self.me, "POST", "/v3/templates", json!({"name": "made"}))
            .await;
        assert_eq!(status, StatusCode::ACCEPTED, "{build}");
        let template = build["templateID"].as_str().unwrap();
        let id = build["buildID"].as_str().unwrap();
        let template = format!("/templates/{template}");
        let build = format!("{template}/builds/{id}");
        (template, build)
    }

    /// The answer to the announcement of a build of such a size.
    async fn announce(&self, size: Value) -> (StatusCode, String) {
        let mut body = json!({"name": "large"});
        let (Some(body_of), Some(size)) = (body.as_object_mut(), size.as_object()) else {
            unreachable!("both are objects")
        };
        body_of.extend(size.clone());
        let (status, answer) = self.call(&self.me, "POST", "/v3/templates", body).await;
        (status, answer.to_string())
    }

    async fn link(&self, template: &str, hash: &str) -> (bool, String) {
        let path = format!("{template}/files/{hash}");
        let (status, link) = self.call(&self.me, "GET", &path, Value::Null).await;
        assert_eq!(status, StatusCode::CREATED, "{link}");
        let url = link["url"].as_str().unwrap();
        let path = url.strip_prefix("http://shoal").unwrap();
        (link["present"] == true, path.to_owned())
    }

    async fn put(&self, path: &str, body: Body) -> StatusCode {
        let request = Request::builder().method("PUT").uri(path);
        self.send(request.body(body).unwrap()).await.0
    }
}

#[tokio::test]
async fn an_upload_needs_an_address_of_its_own_that_is_not_old() {
    let fixture = fixture().await;
    let (template, _) = fixture.announced().await;
    let hash = "0a".repeat(32);
    let (present, path) = fixture.link(&template, &hash).await;
    assert!(!present);
    let forbidden = [
        path.replace(&hash, &"0b".repeat(32)),
        path.replace("expires=", "expires=9"),
        path.replace("signature=", "signature=x"),
        path.split('?').next().unwrap().to_owned(),
    ];
    for path in forbidden {
        let status = fixture.put(&path, Body::from("archive")).await;
        assert_eq!(status, StatusCode::FORBIDDEN, "{path}");
    }
    fixture.clock.advance(Duration::from_secs(31 * 60));
    assert_eq!(
        fixture.put(&path, Body::from("archive")).await,
        StatusCode::FORBIDDEN
    );
    let (present, path) = fixture.link(&template, &hash).await;
    assert!(!present);
    fixture.clock.advance(Duration::from_secs(29 * 60));
    assert_eq!(
        fixture.put(&path, Body::from("archive")).await,
        StatusCode::OK
    );
    assert!(fixture.link(&template, &hash).await.0);
    // Another team has not sent it, and does not see the build.
    let path = format!("{template}/files/{hash}");
    let (status, _) = fixture
        .call(&fixture.other, "GET", &path, Value::Null)
        .await;
    assert_eq!(status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn an_upload_that_is_too_large_or_breaks_off_is_not_kept() {
    let fixture = fixture().await;
    let (template, _) = fixture.announced().await;
    let hash = "0a".repeat(32);
    let (_, path) = fixture.link(&template, &hash).await;
    let request = Request::builder().method("PUT").uri(&path);
    let request = request.header("Content-Length", UPLOAD_MAX + 1);
    let (status, _) = fixture.send(request.body(Body::from("a")).unwrap()).await;
    assert_eq!(status, StatusCode::PAYLOAD_TOO_LARGE);
    let pieces = [
        Ok(Bytes::from("half")),
        Err(std::io::Error::other("broken off")),
    ];
    let broken = Body::from_stream(stream::iter(pieces));
    assert_eq!(fixture.put(&path, broken).await, StatusCode::BAD_REQUEST);
    assert!(!fixture.link(&template, &hash).await.0);
}

#[tokio::test]
async fn what_is_coming_counts_before_it_has_come_and_the_same_comes_once_at_a_time() {
    let fixture = fixture_with(1 << 20).await;
    let (template, _) = fixture.announced().await;
    let uploads = fixture.directory.path().join("uploads");
    let on_disk = || -> u64 {
        let files = std::fs::read_dir(&uploads)
            .unwrap()
            .map(|file| file.unwrap());
        files
            .map(|file| file.metadata().unwrap())
            .filter(|about| about.is_file())
            .map(|about| about.len())
            .sum()
    };
    // Each has sent all but its end, to an address of its own or to the same one.
    let begin = async |number: u8| {
        let (_, path) = fixture.link(&template, &format!("{number:064x}")).await;
        let (ends, end) = tokio::sync::oneshot::channel::<()>();
        let (came, coming) = tokio::sync::oneshot::channel::<()>();
        let whole = stream::once(async { Ok(Bytes::from(vec![0; 1 << 20])) });
        let rest = stream::once(async {
            let _ = came.send(());
            let _ = end.await;
            Err(std::io::Error::other("broken off"))
        });
        let body = Body::from_stream(stream::StreamExt::chain(whole, rest));
        let request = Request::builder()
            .method("PUT")
            .uri(path)
            .body(body)
            .unwrap();
        let sent = tokio::spawn(fixture.router.clone().oneshot(request));
        (sent, coming, ends)
    };
    let mut open = Vec::new();
    for number in 1..=4 {
        let (sent, coming, ends) = begin(number).await;
        coming.await.unwrap();
        open.push((sent, ends));
    }
    let (_, path) = fixture.link(&template, &format!("{:064x}", 5)).await;
    let full = fixture.put(&path, Body::from("tar!")).await;
    assert_eq!(full, StatusCode::INSUFFICIENT_STORAGE);
    let (again, coming, ends) = begin(1).await;
    assert!(on_disk() <= 4 << 20);
    // One has ended: its result may be deleted, and the name used again.
    let (first, end) = open.remove(0);
    drop(end);
    assert_eq!(
        first.await.unwrap().unwrap().status(),
        StatusCode::BAD_REQUEST
    );
    coming.await.unwrap();
    assert!(on_disk() <= 4 << 20);
    drop(ends);
    again.await.unwrap().unwrap();
    assert_eq!(fixture.put(&path, Body::from("tar!")).await, StatusCode::OK);
}

#[tokio::test]
async fn an_upload_does_not_take_the_room_of_what_a_build_needs() {
    let fixture = fixture_with(4).await;
    let (template, build) = fixture.announced().await;
    let mut sent = Vec::new();
    for number in 1..=5 {
        let (_, path) = fixture.link(&template, &format!("{number:064x}")).await;
        sent.push(fixture.put(&path, Body::from("tar!")).await);
    }
    let full = StatusCode::INSUFFICIENT_STORAGE;
    let expected = [[StatusCode::OK; 4].as_slice(), &[full]].concat();
    assert_eq!(sent, expected);
    let first = format!("{:064x}", 1);
    assert!(fixture.link(&template, &first).await.0);
    let (_, path) = fixture.link(&template, &format!("{:064x}", 5)).await;
    let (status, _) = fixture
        .call(&fixture.me, "DELETE", &build, Value::Null)
        .await;
    assert_eq!(status, StatusCode::NO_CONTENT);
    assert_eq!(fixture.put(&path, Body::from("tar!")).await, StatusCode::OK);
}

#[tokio::test]
async fn a_build_is_seen_and_changed_by_its_team_under_its_template_alone() {
    let fixture = fixture().await;
    let (_, build) = fixture.announced().await;
    let status = format!("{build}/status");
    let (code, seen) = fixture.call(&fixture.me, "GET", &status, Value::Null).await;
    assert_eq!((code, &seen["status"]), (StatusCode::OK, &json!("waiting")));
    let id = build.rsplit('/').next().unwrap();
    let by_name = format!("/templates/made/builds/{id}/status");
    let (code, _) = fixture
        .call(&fixture.me, "GET", &by_name, Value::Null)
        .await;
    assert_eq!(code, StatusCode::OK);
    let elsewhere = format!("/templates/base/builds/{id}/status");
    for (key, method, path) in [
        (&fixture.other, "GET", &status),
        (&fixture.other, "DELETE", &build),
        (&fixture.me, "GET", &elsewhere),
    ] {
        let (code, _) = fixture.call(key, method, path, Value::Null).await;
        assert_eq!(code, StatusCode::NOT_FOUND, "{method} {path}");
    }
    let (code, _) = fixture
        .call(&fixture.me, "DELETE", &build, Value::Null)
        .await;
    assert_eq!(code, StatusCode::NO_CONTENT);
    let (_, seen) = fixture.call(&fixture.me, "GET", &status, Value::Null).await;
    assert_eq!(seen["status"], "error");
    assert_eq!(seen["reason"]["message"], "the build was cancelled");
    // Nothing came of the template: it goes with its builds.
    for expected in [StatusCode::NO_CONTENT, StatusCode::NOT_FOUND] {
        let gone = fixture.call(&fixture.me, "DELETE", "/templates/made", Value::Null);
        assert_eq!(gone.await.0, expected);
    }
}

#[tokio::test]
async fn older_clients_announce_a_build_that_is_begun_as_any_other() {
    let fixture = fixture().await;
    let asked = json!({"alias": "old", "dockerfile": "FROM x", "cpuCount": 4, "memoryMB": 512});
    for path in ["/templates", "/v2/templates", "/e2b/v1/templates"] {
        let (status, made) = fixture.call(&fixture.me, "POST", path, asked.clone()).await;
        assert_eq!(status, StatusCode::ACCEPTED, "{made}");
        assert_eq!(made["aliases"], json!(["old"]));
        assert_eq!(
            (&made["cpuCount"], &made["memoryMB"]),
            (&json!(4), &json!(512))
        );
        assert_eq!(made["buildStatus"], "waiting");
        let (template, build) = (made["templateID"].as_str(), made["buildID"].as_str());
        let build = format!("{}/builds/{}", template.unwrap(), build.unwrap());
        let pushed = format!("/templates/{build}");
        let (status, refused) = fixture.call(&fixture.me, "POST", &pushed, json!({})).await;
        assert_eq!(status, StatusCode::BAD_REQUEST);
        let message = refused["message"].as_str().unwrap();
        assert!(message.contains("/v2/templates/"), "{message}");
        let begin = format!("/v2/templates/{build}");
        let from = json!({"fromImage": "registry.test/app:1"});
        let (status, _) = fixture.call(&fixture.me, "POST", &begin, from).await;
        assert_eq!(status, StatusCode::ACCEPTED);
    }
    for (body, status) in [
        (json!({}), 400),
        (Value::Null, 400),
        (json!({"alias": "a b"}), 400),
        (json!({"alias": "odd", "cpuCount": 3}), 400),
        (json!({"alias": "other/x"}), 403),
        (
            json!({"alias": "x", "teamID": "00000000-0000-4000-8000-000000000009"}),
            403,
        ),
    ] {
        let (seen, _) = fixture
            .call(&fixture.me, "POST", "/templates", body.clone())
            .await;
        assert_eq!(seen.as_u16(), status, "{body}");
    }
    let (status, _) = fixture
        .call(&fixture.other, "POST", "/templates/old", json!({}))
        .await;
    assert_eq!(status, StatusCode::NOT_FOUND);
}

impl Fixture {
    /// Builds `made` and says which build it was.
    async fn built(&self) -> String {
        let (_, build) = self.announced().await;
        let begin = format!("/v2{build}");
        let from = json!({"fromImage": "registry.test/app:1"});
        let (status, _) = self.call(&self.me, "POST", &begin, from).await;
        assert_eq!(status, StatusCode::ACCEPTED);
        let end = std::time::Instant::now() + Duration::from_secs(60);
        while std::time::Instant::now() < end {
            let status = format!("{build}/status");
            let (_, seen) = self.call(&self.me, "GET", &status, Value::Null).await;
            match seen["status"].as_str() {
                Some("ready") => return seen["buildID"].as_str().unwrap().to_owned(),
                Some("error") => panic!("{seen}"),
                _ => tokio::task::yield_now().await,
            }
        }
        panic!("it is never ready");
    }
}

#[tokio::test]
async fn a_template_is_published_before_it_is_built() {
    let fixture = fixture().await;
    let (template, _) = fixture.announced().await;
    let publish = format!("/v2{template}");
    let public = json!({"public": true});
    let patched = fixture
        .call(&fixture.me, "PATCH", &publish, public.clone())
        .await;
    assert_eq!(patched.0, StatusCode::OK, "{}", patched.1);
    let names = patched.1["names"].as_array().unwrap();
    assert!(names[0].as_str().unwrap().ends_with("/made"), "{names:?}");
    let seen = fixture
        .call(&fixture.me, "GET", &template, Value::Null)
        .await
        .1;
    assert_eq!(seen["public"], true);
    // No other team's, and not without a body.
    let foreign = fixture
        .call(&fixture.other, "PATCH", &publish, public)
        .await;
    assert_eq!(foreign.0, StatusCode::NOT_FOUND);
    let blank = Request::builder().method("PATCH").uri(&publish);
    let blank = blank.header("X-API-Key", &fixture.me).body(Body::from(" "));
    assert_eq!(
        fixture.send(blank.unwrap()).await.0,
        StatusCode::BAD_REQUEST
    );
    // A build that is announced later is of the same template.
    fixture.built().await;
    let seen = fixture
        .call(&fixture.me, "GET", &template, Value::Null)
        .await
        .1;
    assert_eq!(seen["public"], true, "{seen}");
}

#[tokio::test]
async fn a_tag_is_given_to_a_build_by_its_id() {
    let fixture = fixture().await;
    let first = fixture.built().await;
    let assign = |key: &str, target: String, tag: &str| {
        let (fixture, key) = (&fixture, key.to_owned());
        let body = json!({"target": target, "tags": [tag]});
        async move { fixture.call(&key, "POST", "/templates/tags", body).await }
    };
    let (status, given) = assign(&fixture.me, "made:default".to_owned(), "first").await;
    assert_eq!((status.as_u16(), &given["buildID"]), (201, &json!(first)));
    let second = fixture.built().await;
    assert_ne!(first, second);
    for (target, tag) in [
        (first.clone(), "alone"),
        (format!("made:{first}"), "behind"),
    ] {
        let (status, given) = assign(&fixture.me, target, tag).await;
        assert_eq!(status, StatusCode::CREATED, "{given}");
        assert_eq!(given["buildID"], json!(first));
        let path = format!("/templates/made/tags/{tag}/assignments");
        let (_, seen) = fixture.call(&fixture.me, "GET", &path, Value::Null).await;
        assert_eq!(seen["data"][0]["buildId"], json!(first));
    }
    let unknown = "00000000-0000-4000-8000-000000000009";
    for (key, target, expected) in [
        (&fixture.other, first.clone(), 404),
        (&fixture.me, format!("nothing:{first}"), 404),
        (&fixture.me, unknown.to_owned(), 404),
        (&fixture.me, format!("made:{unknown}"), 404),
    ] {
        let (status, refused) = assign(key, target.clone(), "x").await;
        assert_eq!(status.as_u16(), expected, "{target}: {refused}");
    }
    // No tag looks like a build.
    let (status, _) = assign(&fixture.me, "made".to_owned(), &first).await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    // A build that has made nothing is nothing to tag.
    let (_, waiting) = fixture.announced().await;
    let waiting = waiting.rsplit_once('/').unwrap().1.to_owned();
    let (status, refused) = assign(&fixture.me, waiting, "x").await;
    assert_eq!(status, StatusCode::BAD_REQUEST, "{refused}");
}

#[tokio::test]
async fn a_template_that_says_more_than_the_machine_has_is_told_how_much_it_may() {
    let fixture = fixture().await;
    for (size, what) in [
        (json!({"memoryMB": 200_000}), "200000 MiB of memory"),
        (json!({"cpuCount": 32}), "32000m of cpu"),
    ] {
        let (status, said) = fixture.announce(size).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{said}");
        assert!(said.contains(what) && said.contains("at most"), "{said}");
    }
}

#[tokio::test]
async fn a_dockerfile_is_built_and_its_mistakes_are_named_by_line() {
    const BUILDS: &str = "/api/v1/builds";
    let fixture = fixture().await;
    let body = |dockerfile: &str| json!({"name": "made:v1", "dockerfile": dockerfile});
    let good = "FROM debian:12 AS base\nEXPOSE 80\nFROM base\nRUN cat > /a <<A\na\nA\nCOPY --from=base /etc/hosts /h\nCMD [\"sleep\", \"9\"]\n";
    let (status, answer) = fixture.call(&fixture.me, "POST", BUILDS, body(good)).await;
    assert_eq!(status, StatusCode::CREATED, "{answer}");
    let build = &answer["data"];
    assert_eq!(build["tags"], json!(["v1"]));
    let warning = build["warnings"][0].as_str().unwrap();
    assert!(warning.starts_with("line 2: EXPOSE"), "{warning}");
    let path = format!(
        "/templates/{}/builds/{}/status",
        build["templateID"].as_str().unwrap(),
        build["buildID"].as_str().unwrap()
    );
    let (status, _) = fixture.call(&fixture.me, "GET", &path, Value::Null).await;
    assert_eq!(status, StatusCode::OK);
    let (status, _) = fixture
        .call(&fixture.other, "GET", &path, Value::Null)
        .await;
    assert_eq!(status, StatusCode::NOT_FOUND);

    for (dockerfile, part) in [
        ("FROM debian\nRUM true\n", "line 2: RUM is no instruction"),
        (
            "FROM debian\nCOPY a /a\n",
            "line 2: COPY: a build of a Dockerfile alone has no files",
        ),
        ("FROM debian\nADD https://a/b /b\n", "line 2: ADD"),
        ("", "`dockerfile`"),
        (&"#".repeat(300_000), "256 KiB"),
    ] {
        let (status, answer) = fixture
            .call(&fixture.me, "POST", BUILDS, body(dockerfile))
            .await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{answer}");
        let message = answer["message"].as_str().unwrap();
        assert!(message.contains(part), "{part}: {message}");
    }
    let unnamed = json!({"name": "", "dockerfile": "FROM debian\n"});
    let (status, _) = fixture.call(&fixture.me, "POST", BUILDS, unnamed).await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    // No refused build is announced.
    let (_, templates) = fixture
        .call(&fixture.me, "GET", "/api/v1/templates", Value::Null)
        .await;
    assert_eq!(
        templates["data"].as_array().unwrap().len(),
        1,
        "{templates}"
    );
}
