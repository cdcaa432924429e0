//! Malicious input. The daemon must keep serving other requests.

use std::io::Read;
use std::net::Shutdown;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use bytes::{BufMut, Bytes, BytesMut};
use http::Method;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::daemon::{Daemon, Options, USER, daemon};
use crate::wire::envelope;

const START: &str = "/process.Process/Start";

async fn still_answers(daemon: &Daemon) {
    assert_eq!(daemon.get("/health").await.status, 204);
}

/// Sends bytes and reads until the daemon closes the connection or stays silent.
async fn send(daemon: &Daemon, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(daemon.address).await.unwrap();
    // The daemon may close the connection early.
    let _ = stream.write_all(bytes).await;
    let mut answer = Vec::new();
    let read = stream.read_to_end(&mut answer);
    let _ = tokio::time::timeout(Duration::from_millis(500), read).await;
    String::from_utf8_lossy(&answer).into_owned()
}

#[tokio::test]
async fn frames_with_a_wrong_length_are_rejected() {
    let daemon = daemon!();
    let frame = |length: u32, rest: &[u8]| {
        let mut bytes = BytesMut::new();
        bytes.put_u8(0);
        bytes.put_u32(length);
        bytes.put_slice(rest);
        bytes.freeze()
    };
    for (body, code) in [
        (frame(u32::MAX, b"{}"), "resource_exhausted"),
        (frame(100, b"{}"), "invalid_argument"),
        (frame(1, b"{}"), "unimplemented"),
        (Bytes::new(), "unimplemented"),
        (Bytes::from_static(b"\x01\0\0\0\x02{}"), "internal"),
    ] {
        let stream = daemon.stream_bytes(START, &[], body.clone()).await;
        assert_eq!(stream.finish().await.code(), code, "{body:?}");
    }
    still_answers(&daemon).await;
}

#[tokio::test]
async fn invalid_messages_are_rejected() {
    let daemon = daemon!();
    for text in [
        "",
        "{",
        "[]",
        "null",
        "1",
        "{\"process\":[]}",
        "{\"process\":{\"args\":\"x\"}}",
        "{\"process\":{\"envs\":{\"a\":1}}}",
        "\u{0}",
        "{\"pty\":{\"size\":{\"cols\":-1}}}",
    ] {
        let mut body = BytesMut::new();
        body.put_u8(0);
        body.put_u32(u32::try_from(text.len()).unwrap());
        body.put_slice(text.as_bytes());
        let stream = daemon.stream_bytes(START, &[], body.freeze()).await;
        assert_eq!(stream.finish().await.code(), "invalid_argument", "{text}");
    }
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    let nested = format!("{{\"path\":{deep}}}");
    for body in [
        nested,
        "{\"path\":1}".into(),
        "\u{fffd}".into(),
        "{\"path\":\"a\"".into(),
    ] {
        let answer = daemon
            .ask(Method::POST, "/filesystem.Filesystem/Stat")
            .header("content-type", "application/json")
            .send(body)
            .await;
        assert_eq!(answer.status, 400);
        assert_eq!(answer.json()["code"], "invalid_argument");
    }
    let answer = daemon
        .ask(Method::POST, "/filesystem.Filesystem/Stat")
        .header("content-type", "application/proto")
        .send(&b"\x0a\xff\xff\xff\xff\x0fx"[..])
        .await;
    assert_eq!(answer.status, 400);
    still_answers(&daemon).await;
}

#[tokio::test]
async fn oversized_bodies_are_rejected() {
    let daemon = daemon!();
    let text = format!("{{\"path\":\"{}\"}}", "x".repeat(33 << 20));
    let answer = daemon
        .ask(Method::POST, "/filesystem.Filesystem/Stat")
        .header("content-type", "application/json")
        .send(text)
        .await;
    assert_eq!(answer.status, 429);
    assert_eq!(answer.json()["code"], "resource_exhausted");
    still_answers(&daemon).await;
}

#[tokio::test]
async fn invalid_http_gets_a_short_response_or_none() {
    let daemon = daemon!();
    let endless = format!("GET / HTTP/1.1\r\nx: {}", "y".repeat(2 << 20));
    let many: String = (0..500)
        .map(|number| format!("x-{number}: y\r\n"))
        .collect();
    let many = format!("GET / HTTP/1.1\r\n{many}\r\n");
    let noise: Vec<u8> = (0..4096_u32)
        .map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes()[3])
        .collect();
    for bytes in [
        endless.as_bytes(),
        many.as_bytes(),
        b"\0\0\0\0\0\0\0\0\r\n\r\n",
        b"GET /health HTTP/9.9\r\n\r\n",
        b"POST /files?path=x HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
        b"POST /init HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\n{}",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\xff\xff\xff\xff\xff\xff\xff\xff\xff",
        &noise,
    ] {
        let answer = send(&daemon, bytes).await;
        assert!(!answer.contains(" 200 "), "{answer}");
        still_answers(&daemon).await;
    }
}

#[tokio::test]
async fn a_client_that_closes_its_half_ends_its_request_and_not_the_process() {
    let daemon = daemon!();
    let message = json!({"process": {"cmd": "/bin/sleep", "args": ["1000"]}, "tag": "t"});
    let body = envelope(&message);
    let mut stream = TcpStream::connect(daemon.address).await.unwrap();
    let head = format!(
        "POST {START} HTTP/1.1\r\nhost: x\r\ncontent-type: application/connect+json\r\n\
         content-length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.write_all(&body).await.unwrap();
    let mut first = [0; 1];
    stream.read_exact(&mut first).await.unwrap();
    let stream = stream.into_std().unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    stream.set_nonblocking(false).unwrap();
    let mut rest = Vec::new();
    // The daemon closes its half too, without the final envelope.
    (&stream).read_to_end(&mut rest).unwrap();
    assert!(!rest.windows(2).any(|pair| pair == b"\x02\0"));
    let processes = daemon.client().list_processes().await.unwrap();
    assert_eq!(processes.len(), 1);
    let pid = shoal_protocol::client::Selector::Tag("t".into());
    let kill = shoal_protocol::process::Signal::SIGNAL_SIGKILL;
    daemon.client().signal(pid, kill).await.unwrap();
}

#[tokio::test]
async fn many_idle_connections_do_not_block_others() {
    let daemon = daemon!();
    let mut idle = Vec::new();
    for _ in 0..1000 {
        match TcpStream::connect(daemon.address).await {
            Ok(stream) => idle.push(stream),
            // Descriptor limit of this machine.
            Err(_) => break,
        }
    }
    still_answers(&daemon).await;
    drop(idle);
    still_answers(&daemon).await;
}

#[tokio::test]
async fn an_unread_log_blocks_nothing() {
    if !rustix::process::getuid().is_root() {
        eprintln!("skipped: needs root");
        return;
    }
    // Reads the first line only; then the pipe fills up and is finally closed.
    let root = tempfile::tempdir().unwrap();
    std::fs::create_dir(root.path().join("etc")).unwrap();
    let passwd = format!("{USER}:x:0:0::/tmp:/bin/sh\n");
    std::fs::write(root.path().join("etc/passwd"), passwd).unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_shoal-envd"))
        .args([
            "--port",
            "0",
            "--bind",
            "127.0.0.1",
            "--keep-clock",
            "--open",
            "--default-user",
            USER,
        ])
        .arg("--system-root")
        .arg(root.path())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdout = child.stdout.take().unwrap();
    let mut ready = Vec::new();
    while !ready.ends_with(b"\n") {
        let mut byte = [0];
        stdout.read_exact(&mut byte).unwrap();
        ready.push(byte[0]);
    }
    let ready: serde_json::Value = serde_json::from_slice(&ready).unwrap();
    let port = u16::try_from(ready["port"].as_u64().unwrap()).unwrap();
    let client = shoal_protocol::client::EnvdClient::at(([127, 0, 0, 1], port).into());
    let line = "i=0; while [ $i -lt 3000 ]; do echo 0123456789012345678901234567890123456789; \
        i=$((i+1)); done";
    for _ in 0..3 {
        let command = shoal_protocol::client::Command::new("/bin/sh", ["-c", line]);
        let mut process = client.start(command).await.unwrap();
        let mut count = 0;
        while let Some(output) = process.next().await.unwrap() {
            if let shoal_protocol::client::Output::Stdout(bytes) = output {
                count += bytes.len();
            }
        }
        assert_eq!(count, 3000 * 41);
    }
    drop(stdout);
    let command = shoal_protocol::client::Command::new("/bin/echo", ["x"]);
    let mut process = client.start(command).await.unwrap();
    while process.next().await.unwrap().is_some() {}
    client.health().await.unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
}

#[tokio::test]
async fn the_daemon_inherits_no_descriptor_and_is_not_dumpable() {
    let daemon = daemon!();
    let pid = daemon.pid();
    let maps = std::fs::metadata(format!("/proc/{pid}/maps")).unwrap();
    // Not dumpable: its files in /proc belong to root, and no other user may trace it.
    assert_eq!(std::os::unix::fs::MetadataExt::uid(&maps), 0);
    let line = format!("cat /proc/{pid}/maps /proc/{pid}/environ; ls -l /proc/{pid}/fd");
    let finished = daemon.run(&line).await;
    assert_eq!(finished.stdout.trim(), "", "{}", finished.stdout);
    assert_ne!(finished.end["exitCode"], json!(0));
}

#[tokio::test]
async fn sigterm_ends_the_daemon() {
    let Some(mut daemon) = Daemon::start_with(Options::default()) else {
        return;
    };
    let pid = rustix::process::Pid::from_raw(daemon.pid().cast_signed()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert!(daemon.wait().success());
}

#[tokio::test]
async fn requests_without_a_token_do_not_fill_the_log() {
    let daemon = daemon!();
    daemon.post_json("/init", json!({"accessToken": "t"})).await;
    let begun = Instant::now();
    let long = format!("/{}", "x".repeat(8000));
    for n in 0..300 {
        let path = if n % 2 == 0 { long.as_str() } else { "/envs" };
        assert_eq!(daemon.get(path).await.status, 401);
        let init = daemon.post_json("/init", json!({"accessToken": "guess"}));
        assert_eq!(init.await.status, 401);
    }
    let settings = json!({"accessToken": "t", "envVars": {"A": "1"}});
    daemon.post_json("/init", settings).await;
    let (mut refusals, mut taken) = (Vec::new(), 0);
    daemon.logged(|entry| {
        let message = entry["message"].as_str().unwrap();
        taken += usize::from(message == "settings taken");
        if message.starts_with("refused") {
            refusals.push(entry.to_string());
        }
        taken == 2
    });
    // One in each minute.
    let minutes = begun.elapsed().as_secs() / 60;
    let most = 1 + usize::try_from(minutes).unwrap();
    assert!((1..=most).contains(&refusals.len()), "{refusals:?}");
    assert!(refusals[0].len() < 500, "{refusals:?}");
}
