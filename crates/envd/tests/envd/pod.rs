//! `shoal-envd start`, as the hook of a pod runs it.

use std::io::{BufRead, BufReader};
use std::net::TcpStream;
use std::process::{Command, Stdio};

const PROGRAM: &str = env!("CARGO_BIN_EXE_shoal-envd");

#[test]
fn the_hook_ends_when_the_daemon_listens_and_runs_the_next_command() {
    if !rustix::process::getuid().is_root() {
        eprintln!("skipped: needs root");
        return;
    }
    // The first process of a namespace: its end ends the daemon.
    let script = format!(
        "{PROGRAM} start --port=0 --bind=127.0.0.1 --keep-clock -- /bin/echo next && read wait"
    );
    let mut pod = Command::new("unshare")
        .args([
            "--pid",
            "--fork",
            "--kill-child",
            "--mount-proc",
            "sh",
            "-c",
            &script,
        ])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(pod.stdout.take().unwrap()).lines();
    let mut port = None;
    for line in lines.map_while(Result::ok) {
        if line == "next" {
            break;
        }
        let entry: serde_json::Value = serde_json::from_str(&line).unwrap();
        if entry["event"] == "ready" {
            port = entry["port"].as_u64();
        }
    }
    let port = port.expect("the daemon's log is that of the first process");
    let port = u16::try_from(port).unwrap();
    TcpStream::connect(("127.0.0.1", port)).unwrap();
    pod.kill().unwrap();
    pod.wait().unwrap();
}

#[test]
fn the_hook_fails_when_the_daemon_does_not_start() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let hook = Command::new(PROGRAM)
        .args(["start", "--bind=127.0.0.1", "--port", &port.to_string()])
        .args(["--", "/bin/echo", "next"])
        .output()
        .unwrap();
    assert!(!hook.status.success());
    assert_eq!(hook.stdout, b"", "the next command does not run");
    let told = String::from_utf8(hook.stderr).unwrap();
    assert!(told.contains("cannot start: shoal-envd: "), "{told}");
    assert!(told.contains("in use"), "{told}");
}
