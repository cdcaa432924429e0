//! The client that implements the control plane's port, against the daemon.

use std::net::SocketAddr;
use std::sync::Arc;

use futures_util::stream::{self, StreamExt};
use shoal_core::ports::inside::{
    CommandExit, CommandOutput, FileKind, InsideError, SandboxClient, SandboxCommand,
};
use shoal_protocol::client::{
    DaemonClient, Dial, DialFuture, Network, RunEnd, SandboxTarget, Tcp, UntilEnd,
};
use tokio::sync::watch;

use crate::daemon::{DEADLINE, daemon};

/// A network on which every address is this one.
pub(crate) struct Only(pub(crate) SocketAddr);

impl Network for Only {
    fn connect(&self, _: SocketAddr) -> DialFuture {
        Tcp(self.0).dial()
    }
}

/// A client over `network`, which acts as `user`.
pub(crate) fn client(network: impl Network, user: Option<&str>) -> DaemonClient {
    let target = SandboxTarget {
        address: [127, 0, 0, 1].into(),
        token: None,
        user: user.map(str::to_owned),
    };
    DaemonClient::new(Arc::new(network), target)
}

#[tokio::test]
async fn a_command_is_started_fed_and_ended() {
    let daemon = daemon!();
    let client = client(Only(daemon.address), Some("root"));
    let line = "id -u; cat; echo no >&2; exit 3";
    let command = SandboxCommand::new("/bin/sh", ["-c", line]).with_stdin();
    let process = client.run(command).await.unwrap();
    process.control.input("fed\n".into()).await.unwrap();
    process.control.close_input().await.unwrap();
    let (mut out, mut err, mut ended) = (Vec::new(), Vec::new(), None);
    let mut output = process.output;
    while let Some(event) = output.next().await {
        match event.unwrap() {
            CommandOutput::Stdout(bytes) => out.extend_from_slice(&bytes),
            CommandOutput::Stderr(bytes) => err.extend_from_slice(&bytes),
            CommandOutput::Exit(exit) => ended = Some(exit),
        }
    }
    assert_eq!(
        (out.as_slice(), err.as_slice()),
        (&b"0\nfed\n"[..], &b"no\n"[..])
    );
    let exit = CommandExit {
        code: 3,
        error: None,
    };
    assert_eq!(ended, Some(exit));
    let late = process.control.kill().await.unwrap_err();
    assert!(matches!(late, InsideError::NotFound(_)), "{late}");
}

#[tokio::test]
async fn a_file_is_written_read_listed_and_removed() {
    let daemon = daemon!();
    let client = client(Only(daemon.address), None);
    let path = daemon.path("new/dir/f");
    let contents = stream::iter([Ok("ab".into()), Ok("c".into())]).boxed();
    client.write_file(path.clone(), contents).await.unwrap();
    let file = client.read_file(path.clone()).await.unwrap();
    assert_eq!(file.size, Some(3));
    let read: Vec<_> = file.contents.map(Result::unwrap).collect().await;
    assert_eq!(read.concat(), b"abc");
    let entry = client.stat(path.clone()).await.unwrap();
    assert_eq!((entry.kind, entry.size), (FileKind::File, 3));
    let listed = client.list_dir(daemon.path("new")).await.unwrap();
    assert_eq!(listed.len(), 1);
    assert_eq!(
        (listed[0].name.as_str(), listed[0].kind),
        ("dir", FileKind::Directory)
    );
    client.remove(path.clone()).await.unwrap();
    for missing in [
        client.stat(path.clone()).await.unwrap_err(),
        client.read_file(path).await.unwrap_err(),
    ] {
        assert!(matches!(missing, InsideError::NotFound(_)), "{missing}");
    }
}

#[tokio::test]
async fn calls_under_way_fail_when_the_run_ends() {
    let daemon = daemon!();
    let (over, run) = watch::channel(false);
    let end: RunEnd = Arc::new(move || {
        let mut run = run.clone();
        Box::pin(async move {
            let _ = run.wait_for(|over| *over).await;
        })
    });
    let network = UntilEnd {
        network: Arc::new(Only(daemon.address)),
        end,
    };
    let client = client(network, None);
    let command = SandboxCommand::new("/bin/sh", ["-c", "echo a; sleep 60"]);
    let mut process = client.run(command).await.unwrap();
    let first = process.output.next().await.unwrap().unwrap();
    assert_eq!(first, CommandOutput::Stdout("a\n".into()));
    over.send(true).unwrap();
    let next = tokio::time::timeout(DEADLINE, process.output.next());
    let broken = next.await.unwrap().unwrap().unwrap_err();
    let late = client.stat("/".to_owned()).await.unwrap_err();
    for error in [broken, late] {
        let over = matches!(&error, InsideError::Unreachable(why) if why.contains("has ended"));
        assert!(over, "{error:?}");
    }
}
