//! Against OpenSSH's server, which runs on a loopback address for one connection each.

mod files;
mod machine;

use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::StreamExt;
use parking_lot::Mutex;
use shoal_core::ports::external::{ExternalError, ExternalMachine, ExternalMachines, Opened};
use shoal_core::ports::inside::{CommandOutput, InsideError, RunningCommand, SandboxCommand};
use shoal_core::session::networks::Networks;
use shoal_core::session::secret::SecretValue;

use crate::SshMachines;

/// How long anything may take.
const LONG: Duration = Duration::from_secs(60);

/// The account of the tests.
const ACCOUNT: u32 = 64242;

/// A server with one account, which no other program on this machine sees.
struct Server {
    directory: tempfile::TempDir,
    port: u16,
    /// The processes of its connections.
    connections: Arc<Mutex<Vec<Child>>>,
    ended: Arc<AtomicBool>,
}

impl Server {
    fn start() -> Self {
        Self::with(&[], &[])
    }

    /// With these variables and options of the server.
    fn with(variables: &[(&str, &str)], options: &[&str]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        std::os::unix::fs::chown(directory.path(), Some(0), Some(0)).unwrap();
        let readable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(directory.path(), readable).unwrap();
        let home = directory.path().join("home");
        std::fs::create_dir(&home).unwrap();
        std::os::unix::fs::chown(&home, Some(ACCOUNT), Some(ACCOUNT)).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let server = Self {
            port: listener.local_addr().unwrap().port(),
            directory,
            connections: Arc::default(),
            ended: Arc::default(),
        };
        make_key(&server.path("host_key"), &["-t", "ed25519"]);
        make_key(&server.path("key"), &["-t", "ed25519"]);
        std::fs::copy(server.path("key.pub"), server.path("authorized_keys")).unwrap();
        server.serve(listener, variables, options);
        server
    }

    fn serve(&self, listener: TcpListener, variables: &[(&str, &str)], options: &[&str]) {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/tests/sshd.sh");
        let mut command = Command::new(script);
        command.arg(self.directory.path()).args(options);
        command.envs(variables.iter().copied()).process_group(0);
        let (connections, ended) = (self.connections.clone(), self.ended.clone());
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                if ended.load(Ordering::Acquire) {
                    return;
                }
                let stream: OwnedFd = stream.unwrap().into();
                command.stdin(stream.try_clone().unwrap()).stdout(stream);
                let child = command.stderr(Stdio::null()).spawn().unwrap();
                // The command keeps the stream open otherwise.
                command.stdin(Stdio::null()).stdout(Stdio::null());
                connections.lock().push(child);
            }
        });
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn home(&self, name: &str) -> PathBuf {
        self.path("home").join(name)
    }

    /// Writes a file as the account would.
    fn write(&self, name: &str, contents: &str) {
        let path = self.home(name);
        let mut above = Vec::new();
        let parents = path.ancestors().skip(1);
        above.extend(parents.take_while(|parent| !parent.exists()));
        for parent in above.iter().rev() {
            std::fs::create_dir(parent).unwrap();
            std::os::unix::fs::chown(parent, Some(ACCOUNT), Some(ACCOUNT)).unwrap();
        }
        std::fs::write(&path, contents).unwrap();
        std::os::unix::fs::chown(&path, Some(ACCOUNT), Some(ACCOUNT)).unwrap();
    }

    /// Ends all connections as they are.
    fn cut(&self) {
        for mut connection in self.connections.lock().drain(..) {
            // The process of the connection, and the one of the account below it.
            let group = format!("-{}", connection.id());
            let _ = Command::new("kill").args(["-KILL", "--", &group]).status();
            let _ = connection.wait();
        }
    }

    /// The account takes no key any more.
    fn refuse(&self) {
        std::fs::write(self.path("authorized_keys"), "").unwrap();
    }

    fn machine(&self) -> ExternalMachine {
        ExternalMachine {
            address: format!("tester@127.0.0.1:{}", self.port).parse().unwrap(),
            key: key(&self.path("key")),
            host_key: None,
        }
    }

    async fn open(&self) -> Opened {
        machines().open(self.machine()).await.unwrap()
    }

    /// Why it does not open.
    async fn refusal(&self, machine: ExternalMachine) -> ExternalError {
        match machines().open(machine).await {
            Ok(_) => panic!("it opens"),
            Err(error) => error,
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Release);
        // The listener looks.
        let _ = std::net::TcpStream::connect(("127.0.0.1", self.port));
        self.cut();
    }
}

/// Connects to loopback addresses.
fn machines() -> SshMachines {
    let networks: Networks = [("127.0.0.0/8").parse().unwrap()].into_iter().collect();
    SshMachines::new(networks)
}

fn make_key(path: &Path, options: &[&str]) {
    let mut command = Command::new("ssh-keygen");
    command.args(["-q", "-N", ""]).args(options).arg("-f");
    assert!(command.arg(path).status().unwrap().success());
}

fn key(path: &Path) -> SecretValue {
    SecretValue::new(std::fs::read_to_string(path).unwrap()).unwrap()
}

/// Waits until something is so.
async fn until(mut done: impl AsyncFnMut() -> bool) {
    let wait = async {
        while !done().await {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(LONG, wait).await.unwrap();
}

/// The output of a command, and its end.
async fn all(mut running: RunningCommand) -> (String, Result<i32, InsideError>) {
    let mut printed = Vec::new();
    let read = async {
        loop {
            match running.output.next().await {
                Some(Ok(CommandOutput::Stdout(bytes) | CommandOutput::Stderr(bytes))) => {
                    printed.extend(bytes);
                }
                Some(Ok(CommandOutput::Exit(exit))) => return Ok(exit.code),
                Some(Err(error)) => return Err(error),
                None => panic!("no end after {printed:?}"),
            }
        }
    };
    let end = tokio::time::timeout(LONG, read).await.unwrap();
    (String::from_utf8(printed).unwrap(), end)
}

async fn sh(opened: &Opened, script: &str) -> (String, i32) {
    let command = SandboxCommand::new("/bin/sh", ["-c", script]);
    let (printed, end) = all(opened.client.run(command).await.unwrap()).await;
    (printed, end.unwrap())
}
