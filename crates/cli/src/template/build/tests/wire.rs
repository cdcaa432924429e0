//! The whole flow with a small fake server.
#![allow(clippy::too_many_lines, reason = "a scenario reads from top to bottom")]

use std::collections::VecDeque;
use std::fs;
use std::sync::Arc;

use bytes::Bytes;
use clap::Parser;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::super::{BuildArgs, build};
use super::files::members;
use crate::connection::ConnectionArgs;
use crate::failure::Failure;

/// A received request: method, path with query, whether it had a key, body.
type Seen = (String, String, bool, Bytes);

/// The responses of the fake server.
#[derive(Default)]
struct Script {
    url: String,
    /// Whether it has the files.
    present: bool,
    /// The response to an upload.
    upload: StatusCode,
    /// Its templates, by id.
    templates: Vec<Value>,
    /// The responses to status requests, in order; the last one is repeated.
    statuses: VecDeque<(u16, Value)>,
    seen: Vec<Seen>,
}

struct Server {
    script: Arc<Mutex<Script>>,
}

impl Server {
    async fn start(statuses: impl IntoIterator<Item = (u16, Value)>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let script = Arc::new(Mutex::new(Script {
            url: format!("http://{}", listener.local_addr().unwrap()),
            statuses: statuses.into_iter().collect(),
            ..Script::default()
        }));
        let shared = Arc::clone(&script);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let shared = Arc::clone(&shared);
                let service = service_fn(move |request| answer(Arc::clone(&shared), request));
                let connection = hyper::server::conn::http1::Builder::new();
                tokio::spawn(connection.serve_connection(TokioIo::new(stream), service));
            }
        });
        Self { script }
    }

    async fn build(&self, directory: &std::path::Path, line: &[&str]) -> Result<String, Failure> {
        let url = self.script.lock().url.clone();
        let file = directory.join("Dockerfile").display().to_string();
        let start = ["build", "--url", &url, "--api-key", "e2b_00", "-f", &file];
        let line = Line::parse_from([&start, line].concat());
        let made = build(&line.connection.resolve().unwrap(), line.args).await?;
        Ok(format!("{}/{}", made.template_id, made.build_id))
    }

    /// The requests whose path contains `part`.
    fn seen(&self, part: &str) -> Vec<Seen> {
        let script = self.script.lock();
        script
            .seen
            .iter()
            .filter(|(_, path, ..)| path.contains(part))
            .cloned()
            .collect()
    }
}

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    connection: ConnectionArgs,
    #[command(flatten)]
    args: BuildArgs,
}

async fn answer(
    script: Arc<Mutex<Script>>,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, hyper::Error> {
    let (parts, body) = request.into_parts();
    let body = body.collect().await?.to_bytes();
    let path = parts.uri.to_string();
    let mut script = script.lock();
    let has_key = parts.headers.contains_key("x-api-key");
    script
        .seen
        .push((parts.method.to_string(), path.clone(), has_key, body));
    let (status, body) = if path.starts_with("/v3/") {
        let made = json!({"templateID": "tpl", "buildID": "b-1", "public": false,
                          "names": ["team/app"], "tags": [], "aliases": ["app"]});
        (202, made)
    } else if path.starts_with("/upload") {
        (script.upload.as_u16(), json!({"message": "too much"}))
    } else if path.contains("/files/") {
        let link = json!({"present": script.present, "url": format!("{}/upload?sign=1", script.url),
                          "headers": {"x-kind": "tar"}});
        (201, link)
    } else if let Some(name) = path.strip_prefix("/api/v1/templates/") {
        match script
            .templates
            .iter()
            .find(|known| known["templateID"] == name)
        {
            Some(known) => (200, json!({"code": "0", "message": "ok", "data": known})),
            None => (
                404,
                json!({"code": "404", "message": "not found", "data": null}),
            ),
        }
    } else if path.contains("/status") {
        let next = if script.statuses.len() > 1 {
            script.statuses.pop_front()
        } else {
            None
        };
        next.or_else(|| script.statuses.front().cloned()).unwrap()
    } else {
        (202, Value::Null)
    };
    let bytes = if body.is_null() {
        Bytes::new()
    } else {
        Bytes::from(body.to_string())
    };
    let response = Response::builder().status(status).body(Full::new(bytes));
    Ok(response.unwrap())
}

fn status(state: &str, lines: &[&str]) -> (u16, Value) {
    let entries: Vec<Value> = lines
        .iter()
        .map(|line| json!({"timestamp": "2026-01-01T00:00:00Z", "message": line, "level": "info"}))
        .collect();
    (
        200,
        json!({"templateID": "tpl", "buildID": "b-1", "status": state, "logs": [], "logEntries": entries}),
    )
}

fn project(dockerfile: &str) -> tempfile::TempDir {
    let project = tempfile::tempdir().unwrap();
    fs::write(project.path().join("Dockerfile"), dockerfile).unwrap();
    fs::create_dir(project.path().join("src")).unwrap();
    fs::write(project.path().join("src/main.c"), "int main;").unwrap();
    project
}

const TWO_STAGES: &str = "FROM gcc AS build\nCOPY src /src\nRUN make\n\nFROM reg.example/debian\n\
                          COPY --from=build /src/app /app\nCMD [\"/app\"]\n";

#[tokio::test]
async fn a_build_sends_what_is_missing_and_follows_the_log() {
    let project = project(TWO_STAGES);
    let statuses = [
        status("building", &["[builder 1/2] RUN make", "CACHED"]),
        status("building", &["more"]),
        status("ready", &["done"]),
        status("ready", &[]),
    ];
    let server = Server::start(statuses).await;
    let line = [
        "-t",
        "app:v1",
        "--cpu",
        "2",
        "--memory",
        "512M",
        "--no-cache",
        "--ready-cmd",
        "true",
    ];
    assert_eq!(
        server.build(project.path(), &line).await.unwrap(),
        "tpl/b-1"
    );

    let asked: Value = serde_json::from_slice(&server.seen("/v3/templates")[0].3).unwrap();
    assert_eq!(
        asked,
        json!({"name": "app", "tags": ["v1"], "cpuCount": 2, "memoryMB": 512})
    );

    let uploads = server.seen("/upload?sign=1");
    let (method, _, has_key, body) = &uploads[0];
    assert_eq!(
        (uploads.len(), method.as_str(), *has_key),
        (1, "PUT", false)
    );
    assert_eq!(members(&body[..])["main.c"].1, "int main;");

    let start: Value =
        serde_json::from_slice(&server.seen("/v2/templates/tpl/builds/b-1")[0].3).unwrap();
    let hash = start
        .pointer("/stages/0/steps/2/filesHash")
        .and_then(Value::as_str)
        .unwrap();
    assert_eq!(
        server.seen("/files/")[0].1,
        format!("/templates/tpl/files/{hash}")
    );
    assert_eq!(
        start,
        json!({
            "fromImage": "reg.example/debian",
            "force": true,
            "startCmd": "/app",
            "readyCmd": "true",
            "stages": [{"name": "build", "fromImage": "gcc", "steps": [
                {"type": "USER", "args": ["root"], "force": false, "line": 1},
                {"type": "WORKDIR", "args": ["/"], "force": false, "line": 1},
                {"type": "COPY", "args": [".", "/src", "root:root", ""], "filesHash": hash,
                 "force": false, "line": 2},
                {"type": "RUN", "args": ["make"], "force": false, "line": 3},
            ]}],
            "steps": [
                {"type": "USER", "args": ["root"], "force": false, "line": 5},
                {"type": "WORKDIR", "args": ["/"], "force": false, "line": 5},
                {"type": "COPY", "args": ["/src/app", "/app", "root:root", ""], "fromStage": 0,
                 "force": false, "line": 6},
                {"type": "USER", "args": ["user"], "force": false, "line": 5},
                {"type": "WORKDIR", "args": ["/home/user"], "force": false, "line": 5},
            ],
        })
    );
    let polls = server.seen("/status");
    let offsets: Vec<&str> = polls
        .iter()
        .map(|(_, path, ..)| path.split(['=', '&']).nth(1).unwrap())
        .collect();
    assert_eq!(offsets, ["0", "2", "3", "4"]);
}

#[tokio::test]
async fn from_means_a_template_if_there_is_one_of_the_name() {
    let template = |name: &str, state: &str, tags: Value| {
        json!({"templateID": name, "names": [name], "tags": tags, "state": state, "image": "i",
               "cpuMilli": 1000, "memoryMB": 512, "diskSizeMB": 512, "pids": 9, "user": "me",
               "env": {}, "public": false, "stock": false, "description": "",
               "createdAt": "", "updatedAt": ""})
    };
    for (from, state, tags, is_template) in [
        ("base", "ready", json!([]), true),
        ("base:v1", "ready", json!(["v1"]), true),
        ("base", "ready", json!(["v1"]), false),
        ("base", "error", json!([]), false),
        ("other", "ready", json!([]), false),
        ("docker.io/library/base", "ready", json!([]), false),
    ] {
        let project = project(&format!("FROM {from}\nRUN make\n"));
        let server = Server::start([status("ready", &[])]).await;
        let known = if from.starts_with("base") {
            from.replace(':', "%3A")
        } else {
            "base".into()
        };
        server.script.lock().templates = vec![template(&known, state, tags)];
        server.build(project.path(), &["-t", "app"]).await.unwrap();
        let start = server.seen("/v2/templates/tpl/builds/b-1")[0].3.clone();
        let start: Value = serde_json::from_slice(&start).unwrap();
        let base = if is_template {
            "fromTemplate"
        } else {
            "fromImage"
        };
        assert_eq!(start[base], from, "{start}");
        let last = start["steps"].as_array().unwrap().last().unwrap();
        let home = if is_template {
            "/home/me"
        } else {
            "/home/user"
        };
        assert_eq!(last["args"], json!([home]), "{start}");
    }
}

#[tokio::test]
async fn files_that_are_there_are_not_sent() {
    let project = project("FROM a\nCOPY src /a\nCOPY src /a\nCOPY src /b\n");
    let server = Server::start([status("ready", &[])]).await;
    server.script.lock().present = true;
    server
        .build(project.path(), &["-t", "app", "--start-cmd", ""])
        .await
        .unwrap();
    assert_eq!(server.seen("/files/").len(), 2);
    assert!(server.seen("/upload").is_empty());
}

#[tokio::test]
async fn a_failure_points_at_the_line() {
    let project = project(TWO_STAGES);
    for (step, expected) in [
        ("stages/0/4", "Dockerfile:3: RUN make: exit status 2"),
        (
            "base",
            "Dockerfile:5: FROM reg.example/debian: exit status 2",
        ),
        (
            "3",
            "Dockerfile:6: COPY --from=build /src/app /app: exit status 2",
        ),
        (
            "finalize",
            "after the last step (start command, ready command, snapshot): exit status 2",
        ),
        ("no step", "exit status 2"),
    ] {
        let mut failed = status("error", &[]);
        failed.1["reason"] = json!({"message": "exit status 2", "step": step});
        let server = Server::start([status("building", &["cc: no such file"]), failed]).await;
        let failure = server.build(project.path(), &["-q"]).await.unwrap_err();
        let message = failure.to_string();
        assert!(message.ends_with(expected), "{message}");
        // The log was not shown, so its end is printed with the failure.
        assert!(format!("{failure:?}").contains("cc: no such file"));
    }
}

#[tokio::test]
async fn a_failure_repeats_neither_the_log_nor_itself() {
    let project = project("FROM a\nRUN make\n");
    let mut failed = status("error", &["cc: no such file"]);
    let entry =
        json!({"timestamp": "2026-01-01T00:00:00Z", "message": "exit status 2", "level": "error"});
    failed.1["logEntries"] = json!([entry]);
    failed.1["reason"] = json!({"message": "exit status 2", "step": "3", "logEntries": [entry]});
    let mut ended = failed.clone();
    ended.1["logEntries"] = json!([]);
    let server = Server::start([failed, ended]).await;
    let failure = server.build(project.path(), &["-t", "app"]).await;
    let told = format!("{:?}", failure.unwrap_err());
    assert_eq!(told.matches("exit status 2").count(), 1, "{told}");
    assert!(!told.contains("end of the log"), "{told}");
}

#[tokio::test]
async fn what_is_wrong_here_is_told_before_the_server_is_asked() {
    for (dockerfile, line) in [
        (
            "FROM a\nCOPY nothing /x\n",
            ":2: COPY: nothing is not in the context",
        ),
        ("FROM a\nCPOY a b\n", ":2: CPOY is no instruction"),
        ("FROM a\nONBUILD RUN x\n", ":2: ONBUILD: "),
    ] {
        let project = project(dockerfile);
        let server = Server::start([status("ready", &[])]).await;
        let failure = server
            .build(project.path(), &["-t", "app"])
            .await
            .unwrap_err();
        assert!(failure.to_string().contains(line), "{failure}");
        assert!(server.seen("/").is_empty());
    }
}

#[tokio::test]
async fn an_upload_that_is_refused_ends_the_build_before_it_starts() {
    let project = project("FROM a\nCOPY src /a\n");
    let server = Server::start([status("ready", &[])]).await;
    server.script.lock().upload = StatusCode::PAYLOAD_TOO_LARGE;
    let failure = server
        .build(project.path(), &["-t", "app"])
        .await
        .unwrap_err();
    assert!(failure.to_string().contains("too much"), "{failure}");
    assert!(server.seen("/builds/").is_empty());
}

#[tokio::test]
async fn a_server_that_is_busy_is_asked_again() {
    let project = project("FROM a\n");
    let busy = (503, json!({"code": 503, "message": "busy"}));
    let server = Server::start([busy, status("ready", &[])]).await;
    server.build(project.path(), &["-t", "app"]).await.unwrap();
    assert_eq!(server.seen("/status").len(), 2);
}
