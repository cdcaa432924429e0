//! The runtime API of `agents.x-k8s.io`.

use std::net::SocketAddr;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::PathBuf;
use std::time::Duration;

use http::Method;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::daemon::{DEADLINE, Daemon, Options, UID};
use crate::http::{Answer, HttpRequest};

const FORM: (&str, &str) = ("content-type", "multipart/form-data; boundary=BOUND");

struct Runtime {
    daemon: Daemon,
    address: SocketAddr,
}

/// Starts a daemon with the API or returns from the test.
macro_rules! runtime {
    () => {
        match Runtime::start("300") {
            Some(runtime) => runtime,
            None => return,
        }
    };
    ($seconds:expr) => {
        match Runtime::start($seconds) {
            Some(runtime) => runtime,
            None => return,
        }
    };
}

impl Runtime {
    fn start(seconds: &'static str) -> Option<Self> {
        let daemon = Daemon::start_with(Options {
            arguments: ["--runtime-port", "0"].map(str::to_owned).to_vec(),
            environment: vec![
                ("SANDBOX_BASE_DIR", "{root}/work/dir"),
                ("SANDBOX_EXEC_TIMEOUT_SECONDS", seconds),
                ("OF_THE_CONTAINER", "a b"),
            ],
            ..Options::default()
        })?;
        let entry =
            daemon.logged(|entry| entry["logger"] == "runtime" && entry["message"] == "listening");
        let port = u16::try_from(entry["port"].as_u64().unwrap()).unwrap();
        let address = ([127, 0, 0, 1], port).into();
        Some(Self { daemon, address })
    }

    /// A path in the directory of the API.
    fn path(&self, name: &str) -> PathBuf {
        let directory = self.daemon.root.path().join("work/dir");
        directory.canonicalize().unwrap().join(name)
    }

    fn ask(&self, method: Method, path: &str) -> HttpRequest {
        HttpRequest::new(self.address, method, path)
    }

    async fn get(&self, path: &str) -> Answer {
        self.ask(Method::GET, path).send("").await
    }

    async fn execute(&self, body: Value) -> Value {
        let answer = self
            .ask(Method::POST, "/execute")
            .send(body.to_string())
            .await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        answer.json()
    }

    async fn run(&self, command: &str) -> Value {
        self.execute(json!({"command": command})).await
    }

    async fn upload(&self, name: &str, contents: &str) -> Answer {
        let body = format!(
            "--BOUND\r\nContent-Disposition: form-data; name=\"file\"; filename=\"{name}\"\r\n\r\n\
             {contents}\r\n--BOUND--\r\n"
        );
        let ask = self.ask(Method::POST, "/upload").header(FORM.0, FORM.1);
        ask.send(body).await
    }
}

fn outcome(answer: &Answer) -> (u16, Value) {
    (answer.status.as_u16(), answer.json())
}

#[tokio::test]
async fn the_health_check_answers_and_the_daemons_own_port_is_locked() {
    let runtime = runtime!();
    let state = json!({"status": "ok", "message": "Sandbox Runtime is active."});
    assert_eq!(outcome(&runtime.get("/").await), (200, state));
    assert_eq!(runtime.daemon.get("/metrics").await.status, 401);
    let init = runtime
        .daemon
        .post_json("/init", json!({"accessToken": "mine"}))
        .await;
    assert_eq!(init.status, 401);
}

#[tokio::test]
async fn a_command_is_split_into_words_and_runs_in_the_directory() {
    let runtime = runtime!();
    let result = runtime
        .run("sh -c 'pwd; echo \"$OF_THE_CONTAINER\"; echo bad >&2; exit 3'")
        .await;
    let stdout = format!(
        "{}\na b\n",
        runtime.path("").to_str().unwrap().trim_end_matches('/')
    );
    assert_eq!(
        result,
        json!({"stdout": stdout, "stderr": "bad\n", "exit_code": 3})
    );
    let result = runtime.run("printf '%s\\n' 'a b' c;d $HOME").await;
    assert_eq!(result["stdout"], "a b\nc;d\n$HOME\n");
    let result = runtime.run("id -u").await;
    assert_eq!(result["stdout"], format!("{UID}\n"));
    let result = runtime.run("sh -c 'kill -9 $$'").await;
    assert_eq!(result["exit_code"], -9);
}

#[tokio::test]
async fn a_command_that_cannot_start_has_exit_code_1() {
    let runtime = runtime!();
    for command in ["", "no-such-program", "echo 'open"] {
        let result = runtime.run(command).await;
        assert_eq!(result["exit_code"], 1, "{command}");
        let text = result["stderr"].as_str().unwrap();
        assert!(text.starts_with("Failed to execute command: "), "{text}");
    }
    let result = runtime
        .execute(json!({"command": "true", "timeout_seconds": -1}))
        .await;
    assert_eq!(result["exit_code"], 1);
}

#[tokio::test]
async fn a_command_is_killed_with_its_children_at_its_time_limit() {
    // Long enough for a shell to start on a busy machine.
    let runtime = runtime!("4");
    for (number, limit) in [
        (1, json!(2.5)),
        // The runtime's own limit is shorter.
        (2, json!(1000)),
        (3, Value::Null),
    ] {
        let pid = runtime.path(&format!("pid{number}"));
        let line = format!(
            "sh -c 'echo begun; sleep 1000 & echo $! >{}; wait'",
            pid.display()
        );
        let body = match limit {
            Value::Null => json!({"command": line}),
            limit => json!({"command": line, "timeout_seconds": limit}),
        };
        let result = runtime.execute(body).await;
        assert_eq!(
            (&result["exit_code"], &result["timed_out"]),
            (&json!(1), &json!(true))
        );
        assert_eq!(result["stdout"], "begun\n");
        assert!(
            result["stderr"]
                .as_str()
                .unwrap()
                .contains("timed out after"),
            "{result}"
        );
        assert_ended(&pid).await;
    }
}

#[tokio::test]
async fn a_command_is_killed_when_its_client_disconnects() {
    let runtime = runtime!();
    let pid = runtime.path("pid");
    let line = format!(
        "sh -c 'echo $$ >{}.new; mv {0}.new {0}; exec sleep 1000'",
        pid.display()
    );
    let body = json!({"command": line}).to_string();
    let length = body.len();
    let request =
        format!("POST /execute HTTP/1.1\r\nhost: a\r\ncontent-length: {length}\r\n\r\n{body}");
    let mut client = TcpStream::connect(runtime.address).await.unwrap();
    client.write_all(request.as_bytes()).await.unwrap();
    until(|| pid.exists()).await;
    drop(client);
    assert_ended(&pid).await;
}

/// Waits for the end of the process whose id is in a file.
async fn assert_ended(file: &PathBuf) {
    let pid = std::fs::read_to_string(file).unwrap();
    let process = PathBuf::from("/proc").join(pid.trim());
    until(|| !process.exists()).await;
}

async fn until(condition: impl Fn() -> bool) {
    let wait = async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(DEADLINE, wait).await.unwrap();
}

#[tokio::test]
async fn a_process_in_the_background_does_not_delay_the_result_and_keeps_running() {
    let runtime = runtime!();
    let go = runtime.path("go");
    let line = format!(
        "sh -c '(while [ ! -e {0} ]; do sleep 0.05; done; echo late && mv {0} {0}ne) & echo begun'",
        go.display()
    );
    assert_eq!(runtime.run(&line).await["stdout"], "begun\n");
    std::fs::write(&go, "").unwrap();
    // Its pipe is still read.
    until(|| runtime.path("gone").exists()).await;
}

#[tokio::test]
async fn output_is_cut_at_its_bound() {
    let runtime = runtime!();
    let result = runtime
        .run("sh -c 'head -c 6000000 /dev/zero | tr \"\\\\0\" x'")
        .await;
    assert_eq!(result["exit_code"], 0, "{}", result["stderr"]);
    assert_eq!(result["stdout"].as_str().unwrap().len(), 4 << 20);
    assert_eq!(
        result["stderr"],
        "shoal: the output was cut after 4194304 bytes\n"
    );
}

#[tokio::test]
async fn malformed_requests_are_refused() {
    let runtime = runtime!();
    for (method, path, body, status) in [
        (Method::POST, "/execute", "{", 422),
        (Method::POST, "/execute", "{}", 422),
        (Method::POST, "/execute", r#"{"command": 1}"#, 422),
        (Method::GET, "/execute", "", 405),
        (Method::POST, "/list/", "", 405),
        (Method::POST, "/upload", "x", 422),
        (Method::GET, "/no/such/route", "", 404),
    ] {
        let answer = runtime.ask(method.clone(), path).send(body).await;
        assert_eq!(answer.status, status, "{method} {path} {body}");
        assert!(answer.json()["detail"].is_string());
    }
    let long = json!({"command": "x".repeat(2 << 20)}).to_string();
    let answer = runtime.ask(Method::POST, "/execute").send(long).await;
    assert_eq!(answer.status, 413);
    let mut client = TcpStream::connect(runtime.address).await.unwrap();
    let head = format!(
        "POST /upload HTTP/1.1\r\nhost: a\r\n{}: {}\r\ncontent-length: 9999999999\r\n\r\n",
        FORM.0, FORM.1
    );
    client.write_all(head.as_bytes()).await.unwrap();
    let mut answer = [0; 12];
    client.read_exact(&mut answer).await.unwrap();
    assert_eq!(&answer, b"HTTP/1.1 413");
}

#[tokio::test]
async fn a_file_is_uploaded_downloaded_listed_and_found() {
    let runtime = runtime!();
    let answer = runtime.upload("data/in put.txt", "hello").await;
    let text = "File 'data/in put.txt' uploaded successfully.";
    assert_eq!(outcome(&answer), (200, json!({"message": text})));
    assert_eq!(std::fs::metadata(runtime.path("data")).unwrap().uid(), UID);
    // Clients encode the slashes too.
    for path in [
        "/download/data%2Fin%20put.txt",
        "/download//data/in%20put.txt",
    ] {
        let answer = runtime.get(path).await;
        assert_eq!(
            (answer.status.as_u16(), answer.text()),
            (200, "hello"),
            "{path}"
        );
        assert_eq!(answer.header("content-type"), "application/octet-stream");
    }
    symlink("nowhere", runtime.path("data/link")).unwrap();
    let listed = runtime.get("/list/data").await.json();
    assert_eq!(listed[0]["name"], "in put.txt");
    assert_eq!(
        (&listed[0]["size"], &listed[0]["type"]),
        (&json!(5), &json!("file"))
    );
    assert!(listed[0]["mod_time"].as_f64().unwrap() > 1e9, "{listed}");
    assert_eq!(
        (&listed[1]["name"], &listed[1]["type"]),
        (&json!("link"), &json!("file"))
    );
    let root = runtime.get("/list/").await.json();
    assert_eq!(
        (&root[0]["name"], &root[0]["type"]),
        (&json!("data"), &json!("directory"))
    );
    for (path, exists) in [
        ("data", true),
        ("data%2Fin%20put.txt", true),
        ("other", false),
    ] {
        let answer = runtime.get(&format!("/exists/{path}")).await.json();
        assert_eq!(answer["exists"], exists, "{path}");
    }
    for (path, text) in [
        ("/download/other", "File not found"),
        ("/download/data", "File not found"),
        ("/list/other", "Path is not a directory"),
        ("/list/data%2Fin%20put.txt", "Path is not a directory"),
    ] {
        let answer = runtime.get(path).await;
        assert_eq!(outcome(&answer), (404, json!({"message": text})), "{path}");
    }
}

#[tokio::test]
async fn no_path_leaves_the_directory() {
    let runtime = runtime!();
    let outside = runtime.daemon.root.path().join("secret");
    std::fs::write(&outside, "secret").unwrap();
    symlink("../..", runtime.path("up")).unwrap();
    symlink(&outside, runtime.path("link")).unwrap();
    symlink(
        runtime.daemon.root.path().join("new"),
        runtime.path("dangling"),
    )
    .unwrap();
    let denied = (403, json!({"message": "Access denied"}));
    for path in [
        "..%2F..%2Fsecret",
        "../../secret",
        "up/secret",
        "link",
        "a%00b",
    ] {
        for route in ["download", "exists", "list"] {
            let answer = runtime.get(&format!("/{route}/{path}")).await;
            assert_eq!(outcome(&answer), denied, "/{route}/{path}");
        }
    }
    for name in ["../../secret", "up/secret", "link", "dangling", "up/new"] {
        assert_eq!(
            outcome(&runtime.upload(name, "changed").await),
            denied,
            "{name}"
        );
    }
    assert_eq!(std::fs::read_to_string(&outside).unwrap(), "secret");
    assert!(!runtime.daemon.root.path().join("new").exists());
    // Absolute paths are below the directory too.
    assert_eq!(runtime.upload("/etc/passwd", "mine").await.status, 200);
    assert_eq!(
        std::fs::read_to_string(runtime.path("etc/passwd")).unwrap(),
        "mine"
    );
}
