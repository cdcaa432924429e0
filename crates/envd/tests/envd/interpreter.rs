//! The code interpreter with Jupyter's Python kernel, seen by its clients.

use std::net::SocketAddr;
use std::process::{Command, Stdio};

use http::Method;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::daemon::{DEADLINE, Daemon, Options, USER};
use crate::http::{Answer, HttpRequest};

mod client;
mod contexts;
mod ends;
mod limits;
mod lines;
mod variables;

/// Kernel specification.
const KERNEL: &str = r#"{"argv": ["/usr/bin/python3", "-m", "ipykernel_launcher", "-f",
    "{connection_file}"], "language": "python", "display_name": "Python",
    "env": {"GIVEN": "by the kernel"}}"#;

/// A daemon with a kernel.
pub(crate) struct Interpreter {
    pub(crate) daemon: Daemon,
    address: SocketAddr,
}

/// Starts a sandbox or returns from the test.
macro_rules! interpreter {
    () => {
        match crate::interpreter::Interpreter::start() {
            Some(interpreter) => interpreter,
            None => return,
        }
    };
}
use interpreter;

/// Configuration of a template with this kernel.
fn interpreter_config() -> String {
    json!({"kernels": ["{root}/kernels"], "user": USER, "cwd": "{root}/home"}).to_string()
}

fn options(interpreter_config: Option<String>) -> Option<Options> {
    // The distribution's Python, which has the distribution's packages.
    let mut python = Command::new("/usr/bin/python3");
    let python = python.args(["-c", "import ipykernel"]);
    let there = python.stderr(Stdio::null()).status();
    if !there.is_ok_and(|status| status.success()) {
        assert!(
            std::env::var_os("CI").is_none(),
            "python3-ipykernel is missing: run scripts/setup test"
        );
        eprintln!("skipped: needs python3-ipykernel (scripts/setup test)");
        return None;
    }
    let mut files = vec![("kernels/python3/kernel.json", KERNEL.to_owned())];
    files.extend(
        interpreter_config
            .map(|interpreter_config| ("etc/shoal/interpreter.json", interpreter_config)),
    );
    Some(Options {
        // Kernels end with the namespace.
        as_init: true,
        files,
        ..Options::default()
    })
}

impl Interpreter {
    fn start() -> Option<Self> {
        let daemon = Daemon::start_with(options(Some(interpreter_config()))?)?;
        Some(Self::of(daemon))
    }

    fn of(daemon: Daemon) -> Self {
        let entry = daemon
            .logged(|entry| entry["logger"] == "interpreter" && entry["message"] == "listening");
        let port = u16::try_from(entry["port"].as_u64().unwrap()).unwrap();
        let address = ([127, 0, 0, 1], port).into();
        Self { daemon, address }
    }

    fn ask(&self, method: Method, path: &str) -> HttpRequest {
        HttpRequest::new(self.address, method, path)
    }

    async fn get(&self, path: &str) -> Answer {
        self.ask(Method::GET, path).send("").await
    }

    async fn post(&self, path: &str, body: &Value) -> Answer {
        self.ask(Method::POST, path).send(body.to_string()).await
    }

    /// Runs an execution and returns its lines.
    async fn execute(&self, body: &Value) -> ExecutionOutput {
        let answer = self.post("/execute", body).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        let lines = answer.text().lines();
        ExecutionOutput::new(
            lines
                .map(|line| serde_json::from_str(line).unwrap())
                .collect(),
        )
    }

    /// Runs code in the default context.
    async fn run(&self, code: &str) -> ExecutionOutput {
        self.execute(&json!({"code": code})).await
    }

    /// Starts an execution whose lines are read one by one.
    async fn begin(&self, body: &Value) -> Running {
        let body = body.to_string();
        let length = body.len();
        let head = format!("POST /execute HTTP/1.1\r\nhost: a\r\ncontent-length: {length}\r\n\r\n");
        let mut connection = TcpStream::connect(self.address).await.unwrap();
        connection.write_all(head.as_bytes()).await.unwrap();
        connection.write_all(body.as_bytes()).await.unwrap();
        Running(BufReader::new(connection))
    }

    /// Sends settings as the control plane.
    async fn init(&self, body: &Value) {
        let answer = self.daemon.post_json("/init", body.clone()).await;
        assert_eq!(answer.status, 204);
    }

    /// The daemon's process id, outside of its namespace.
    fn pid(&self) -> i32 {
        // The only child of the program that created the namespace.
        let parent = i32::try_from(self.daemon.pid()).unwrap();
        children(parent)[0]
    }

    /// Resident memory of the daemon in KiB.
    fn memory(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmRSS:"));
        let kilobytes = line.unwrap().split_whitespace().nth(1).unwrap();
        kilobytes.parse().unwrap()
    }
}

/// Child processes of all threads of a process.
fn children(pid: i32) -> Vec<i32> {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let threads = threads.map(|thread| thread.unwrap().path().join("children"));
    // A thread may exit meanwhile; its children then belong to another.
    let children: Vec<String> = threads
        .filter_map(|children| std::fs::read_to_string(children).ok())
        .collect();
    let children = children.iter().flat_map(|pids| pids.split_whitespace());
    children.map(|pid| pid.parse().unwrap()).collect()
}

/// An execution whose client is connected.
struct Running(BufReader<TcpStream>);

impl Running {
    /// Reads until a text appears. Disconnects when dropped.
    async fn wait_for(&mut self, wanted: &str) {
        let reading = async {
            loop {
                let mut line = String::new();
                assert_ne!(self.0.read_line(&mut line).await.unwrap(), 0, "no {wanted}");
                if line.contains(wanted) {
                    return;
                }
            }
        };
        timeout(DEADLINE, reading).await.unwrap();
    }

    /// Reads to the end of the execution: the bytes that came, and whether output was reported
    /// missing. Each line has its own timeout, because a slow machine needs long for all of them.
    async fn read_to_end(&mut self) -> (usize, bool) {
        let (mut bytes, mut told) = (0, false);
        loop {
            let mut line = String::new();
            let read = timeout(DEADLINE, self.0.read_line(&mut line)).await;
            assert_ne!(read.unwrap().unwrap(), 0, "no end of the execution");
            bytes += line.len();
            told |= line.contains("Some output may be missing");
            if line.contains("end_of_execution") {
                return (bytes, told);
            }
        }
    }
}

/// Lines of an execution.
#[derive(Debug)]
struct ExecutionOutput(Vec<Value>);

impl ExecutionOutput {
    /// Checks that the first line is the execution number and the last the end. Keepalives are
    /// removed: they appear on a slow machine.
    fn new(mut lines: Vec<Value>) -> Self {
        lines.retain(|line| line["type"] != "keepalive");
        assert_eq!(lines.first().unwrap()["type"], "number_of_executions");
        let ends: Vec<_> = lines
            .iter()
            .map(|line| line["type"] == "end_of_execution")
            .collect();
        assert_eq!(
            ends.iter().position(|end| *end),
            Some(lines.len() - 1),
            "{lines:?}"
        );
        Self(lines)
    }

    fn count(&self) -> u64 {
        self.0[0]["execution_count"].as_u64().unwrap()
    }

    fn of(&self, kind: &str) -> Vec<&Value> {
        self.0.iter().filter(|line| line["type"] == kind).collect()
    }

    /// Printed text.
    fn printed(&self, kind: &str) -> String {
        let texts = self.of(kind).into_iter();
        texts.map(|line| line["text"].as_str().unwrap()).collect()
    }

    /// Text of the main result.
    fn text(&self) -> &str {
        match self.of("result").as_slice() {
            [only] => only["text"].as_str().unwrap(),
            other => panic!("{other:?} in {:?}", self.0),
        }
    }

    /// Name and value of the error.
    fn error(&self) -> (&str, &str) {
        match self.of("error").as_slice() {
            [only] => (
                only["name"].as_str().unwrap(),
                only["value"].as_str().unwrap(),
            ),
            other => panic!("{other:?} in {:?}", self.0),
        }
    }
}
