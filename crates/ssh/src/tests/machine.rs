//! Connections and commands.

use std::process::Command;

use bytes::Bytes;
use shoal_core::ports::inside::TerminalSize;
use shoal_core::ports::sessions::preview::{Forwarded, NotForwarded};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_util::compat::FuturesAsyncReadCompatExt;

use super::*;
use crate::forward::FORWARDS_MAX;

#[tokio::test(flavor = "multi_thread")]
async fn r2_093_commands_run_in_the_account() {
    let server = Server::start();
    let opened = server.open().await;
    let home = server.path("home").display().to_string();
    assert_eq!(
        sh(&opened, "id -un; pwd").await,
        (format!("tester\n{home}\n"), 0)
    );
    assert_eq!(
        sh(&opened, "echo \"it's\" >&2; exit 3").await,
        ("it's\n".to_owned(), 3)
    );
    let command = SandboxCommand::new("env", [""; 0]).with_env("A B'", "x");
    let odd = opened
        .client
        .run(command.with_env("GREETING", "a 'b' $c"))
        .await;
    let (printed, _) = all(odd.unwrap()).await;
    assert!(printed.contains("GREETING=a 'b' $c\n"), "{printed}");
    let command = SandboxCommand::new("cat", [""; 0])
        .with_stdin()
        .with_cwd("/");
    let running = opened.client.run(command).await.unwrap();
    let control = running.control.clone();
    control.input(Bytes::from_static(b"said")).await.unwrap();
    control.close_input().await.unwrap();
    let (printed, end) = all(running).await;
    assert_eq!((printed.as_str(), end.unwrap()), ("said", 0));
    assert!(control.input(Bytes::from_static(b"more")).await.is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_terminal_has_a_size_and_ends_when_it_is_killed() {
    let server = Server::start();
    let opened = server.open().await;
    let shell = SandboxCommand::new("/bin/bash", ["--norc", "-i"]);
    let shell = shell.with_terminal(100, 20).with_stdin();
    let mut running = opened.client.run(shell).await.unwrap();
    let control = running.control.clone();
    let size = TerminalSize { cols: 77, rows: 11 };
    control.resize(size).await.unwrap();
    control
        .input("stty size; echo pid-$((0+$$)).\n".into())
        .await
        .unwrap();
    let mut printed = String::new();
    while !(printed.contains("11 77") && printed.contains("pid-") && printed.ends_with("$ ")) {
        let next = tokio::time::timeout(LONG, running.output.next()).await;
        match next.unwrap().unwrap().unwrap() {
            CommandOutput::Stdout(bytes) => printed.push_str(&String::from_utf8_lossy(&bytes)),
            other => panic!("{other:?} after {printed:?}"),
        }
    }
    let process: String = printed.rsplit("pid-").next().unwrap().into();
    let process = process.split('.').next().unwrap().to_owned();
    assert_eq!(sh(&opened, &format!("kill -0 {process}")).await.1, 0);
    control.kill().await.unwrap();
    // The end is reported, either of a killed shell or of its connection.
    let _ = all(running).await;
    let gone = format!("while kill -0 {process} 2>/dev/null; do sleep 0.05; done");
    assert_eq!(sh(&opened, &gone).await.1, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_that_takes_too_long_is_killed() {
    let server = Server::start();
    let opened = server.open().await;
    let slow = SandboxCommand::new("sleep", ["1000"]).with_timeout(Duration::from_millis(200));
    let (_, end) = all(opened.client.run(slow).await.unwrap()).await;
    assert!(end.is_err() || end.is_ok_and(|code| code == -1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_terminal_that_nobody_reads_stops_no_other_command() {
    let server = Server::start();
    let opened = server.open().await;
    let flood = SandboxCommand::new("yes", [""; 0]).with_terminal(80, 24);
    let flood = opened.client.run(flood).await.unwrap();
    for _ in 0..3 {
        assert_eq!(sh(&opened, "echo here").await.0, "here\n");
    }
    flood.control.kill().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn r2_093_another_key_is_refused() {
    let server = Server::start();
    make_key(&server.path("other"), &["-t", "ed25519"]);
    let machine = ExternalMachine {
        key: key(&server.path("other")),
        ..server.machine()
    };
    let address = machine.address.clone();
    assert_eq!(
        server.refusal(machine).await,
        ExternalError::Refused(address)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_changed_host_key_is_refused_and_both_are_named() {
    let server = Server::start();
    let first = server.open().await.host_key;
    let again = ExternalMachine {
        host_key: Some(first.clone()),
        ..server.machine()
    };
    assert_eq!(
        machines().open(again.clone()).await.unwrap().host_key,
        first
    );
    std::fs::remove_file(server.path("host_key")).unwrap();
    make_key(&server.path("host_key"), &["-t", "ed25519"]);
    match server.refusal(again).await {
        ExternalError::HostKeyChanged { known, found, .. } => {
            assert!(known == first.fingerprint && known != found && found.starts_with("SHA256:"));
        }
        other => panic!("{other}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn ecdsa_keys_work() {
    let server = Server::start();
    for options in [
        &["-t", "ecdsa", "-b", "256"][..],
        &["-t", "ecdsa", "-b", "384", "-m", "PEM"],
    ] {
        let path = server.path(&format!("key-{}", options.join("")));
        make_key(&path, options);
        std::fs::copy(
            path.with_file_name(format!("key-{}.pub", options.join(""))),
            server.path("authorized_keys"),
        )
        .unwrap();
        let machine = ExternalMachine {
            key: key(&path),
            ..server.machine()
        };
        machines().open(machine).await.unwrap();
    }
}

#[test]
fn r2_094_unusable_keys_are_refused_by_name() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    let address = "me@example.com:22".parse().unwrap();
    let public = SshMachines::new([("public").parse().unwrap()].into_iter().collect());
    let check = |key: SecretValue| public.check(&address, &key);
    make_key(&path("rsa"), &["-t", "rsa", "-b", "2048"]);
    make_key(&path("rsa.pem"), &["-t", "rsa", "-b", "2048", "-m", "PEM"]);
    for name in ["rsa", "rsa.pem"] {
        let refused = check(key(&path(name)));
        assert!(
            matches!(refused, Err(ExternalError::UnsupportedKey(_))),
            "{refused:?}"
        );
    }
    for (name, format) in [("openssh", "RFC4716"), ("pem", "PEM"), ("pkcs8", "PKCS8")] {
        make_key(&path(name), &["-t", "ecdsa"]);
        check(key(&path(name))).unwrap();
        let protect = ["-q", "-p", "-N", "passphrase", "-m", format, "-f"];
        let mut command = Command::new("ssh-keygen");
        assert!(
            command
                .args(protect)
                .arg(path(name))
                .stdout(Stdio::null())
                .status()
                .unwrap()
                .success()
        );
        assert_eq!(
            check(key(&path(name))),
            Err(ExternalError::EncryptedKey),
            "{name}"
        );
    }
    let text = SecretValue::new("no key".to_owned()).unwrap();
    assert_eq!(check(text.clone()), Err(ExternalError::UnreadableKey));
    let none = SshMachines::new(Networks::default()).check(&address, &text);
    assert_eq!(none, Err(ExternalError::Disabled));
}

#[tokio::test(flavor = "multi_thread")]
async fn own_networks_are_closed_whatever_a_name_says() {
    let server = Server::start();
    let public = SshMachines::new([("public").parse().unwrap()].into_iter().collect());
    for host in [
        "127.0.0.1",
        "localhost",
        "[::ffff:127.0.0.1]",
        "2130706433",
        "0",
    ] {
        let machine = ExternalMachine {
            address: format!("tester@{host}:{}", server.port).parse().unwrap(),
            ..server.machine()
        };
        let refused = public.open(machine).await.err();
        assert!(
            matches!(
                refused,
                Some(ExternalError::NotAllowed(_) | ExternalError::Unresolved(_))
            ),
            "{host}: {refused:?}"
        );
    }
    assert!(
        server.connections.lock().is_empty(),
        "nothing was connected"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn machines_without_bash_or_sftp_or_server_are_named() {
    let server = Server::with(&[("SHOAL_TEST_SHELL", "/bin/false")], &[]);
    let refused = server.refusal(server.machine()).await;
    assert!(matches!(refused, ExternalError::NoBash(_)), "{refused}");
    let server = Server::with(&[("SHOAL_TEST_SFTP", "/bin/false")], &[]);
    let refused = server.refusal(server.machine()).await;
    assert!(matches!(refused, ExternalError::NoSftp(_)), "{refused}");
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let machine = ExternalMachine {
        address: format!("me@127.0.0.1:{}", silent.local_addr().unwrap().port())
            .parse()
            .unwrap(),
        ..server.machine()
    };
    let talks = std::thread::spawn(move || {
        let (mut stream, _) = silent.accept().unwrap();
        std::io::Write::write_all(&mut stream, b"HTTP/1.1 400 private text\r\n\r\n").unwrap();
    });
    let refused = server.refusal(machine).await;
    talks.join().unwrap();
    assert!(
        matches!(refused, ExternalError::Unreachable { .. }),
        "{refused}"
    );
    assert!(
        !refused.to_string().contains("private text"),
        "what answers is not shown"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_connection_is_told_and_made_again() {
    let server = Server::start();
    let opened = server.open().await;
    let shell = SandboxCommand::new("sleep", ["1000"]).with_terminal(80, 24);
    let running = opened.client.run(shell).await.unwrap();
    server.cut();
    let (_, end) = all(running).await;
    assert!(
        matches!(end, Err(InsideError::External(ExternalError::Lost(_)))),
        "{end:?}"
    );
    until(async || !opened.client.is_open()).await;
    assert_eq!(sh(&opened, "echo again").await.0, "again\n");
    assert!(opened.client.is_open());
    opened.client.close();
    let closed = opened
        .client
        .run(SandboxCommand::new("true", [""; 0]))
        .await;
    assert!(
        matches!(closed, Err(InsideError::External(ExternalError::Closed))),
        "{closed:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn files_are_written_read_listed_and_removed() {
    let server = Server::start();
    let opened = server.open().await;
    let client = &opened.client;
    let contents = vec![7_u8; 300_000];
    let stream = futures_util::stream::iter([Ok(Bytes::from(contents.clone()))]).boxed();
    client.write_file("a/b/c".to_owned(), stream).await.unwrap();
    let mut file = client.read_file("a/b/c".to_owned()).await.unwrap();
    assert_eq!(file.size, Some(300_000));
    let mut read = Vec::new();
    while let Some(piece) = file.contents.next().await {
        read.extend(piece.unwrap());
    }
    assert!(read == contents);
    let listed = client.list_dir("a".to_owned()).await.unwrap();
    assert_eq!(
        listed
            .iter()
            .map(|entry| entry.path.as_str())
            .collect::<Vec<_>>(),
        ["a/b"]
    );
    assert_eq!(client.stat("a/b/c".to_owned()).await.unwrap().size, 300_000);
    client.remove("a".to_owned()).await.unwrap();
    client.remove("a".to_owned()).await.unwrap();
    let missing = client.stat("a".to_owned()).await;
    assert!(
        matches!(missing, Err(InsideError::NotFound(_))),
        "{missing:?}"
    );
}

/// A server on a port of the machine, which is this one.
async fn listener() -> (tokio::net::TcpListener, u16) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    (listener, port)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_port_of_the_machine_is_reached_while_a_connection_is_not_read() {
    let server = Server::start();
    let opened = server.open().await;
    let (listener, port) = listener().await;
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut asked = [0; 4];
                while stream.read_exact(&mut asked).await.is_ok() {
                    let answer = match &asked {
                        b"much" => vec![b'x'; 16 << 20],
                        other => other.to_vec(),
                    };
                    if stream.write_all(&answer).await.is_err() {
                        return;
                    }
                }
            });
        }
    });
    let says = async |forwarded: &mut Forwarded, text: &[u8; 4]| {
        let mut stream = (&mut forwarded.stream).compat();
        stream.write_all(text).await.unwrap();
        let mut said = [0; 4];
        let read = stream.read_exact(&mut said);
        tokio::time::timeout(LONG, read).await.unwrap().unwrap();
        said
    };
    // Nobody reads what this one says.
    let mut unread = opened.client.open(port).await.unwrap();
    let mut much = (&mut unread.stream).compat();
    much.write_all(b"much").await.unwrap();
    let mut other = opened.client.open(port).await.unwrap();
    assert_eq!(says(&mut other, b"here").await, *b"here");
    assert_eq!(sh(&opened, "echo on").await, ("on\n".to_owned(), 0));
    drop(unread);
    // Where nothing listens, and where the server forbids it.
    let closed = {
        let free = TcpListener::bind("127.0.0.1:0").unwrap();
        free.local_addr().unwrap().port()
    };
    let refused = async |opened: &Opened, port| opened.client.open(port).await.err().unwrap();
    assert_eq!(refused(&opened, closed).await, NotForwarded::PortClosed);
    let strict = Server::with(&[], &["-o", "AllowTcpForwarding=no"]);
    let error = refused(&strict.open().await, port).await.to_string();
    assert!(error.contains("AllowTcpForwarding"), "{error}");
    // The session lets the machine go.
    let closing = opened.client.closed();
    opened.client.close();
    tokio::time::timeout(LONG, closing).await.unwrap();
    assert!(opened.client.open(port).await.is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_to_ports_are_bounded() {
    let server = Server::start();
    let opened = server.open().await;
    let (_listener, port) = listener().await;
    let mut open = Vec::new();
    for _ in 0..FORWARDS_MAX {
        open.push(opened.client.open(port).await.unwrap());
    }
    let full = opened.client.open(port).await.err();
    assert_eq!(full, Some(NotForwarded::Full(FORWARDS_MAX)));
    open.pop();
    assert!(opened.client.open(port).await.is_ok());
}
