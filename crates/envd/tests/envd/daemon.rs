//! Test daemon.

use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use serde_json::Value;
use shoal_protocol::client::EnvdClient;
use tempfile::TempDir;

/// Default test user and its uid on this machine.
pub(crate) const USER: &str = "tester";
pub(crate) const UID: u32 = 61_234;
/// A supplementary group of the user.
pub(crate) const GROUP: u32 = 61_235;

/// Timeout of every wait in tests.
pub(crate) const DEADLINE: Duration = Duration::from_secs(120);

/// A running daemon, ended when dropped.
pub(crate) struct Daemon {
    child: Child,
    pub(crate) address: SocketAddr,
    pub(crate) root: TempDir,
    log: mpsc::Receiver<Value>,
}

/// Start options.
#[derive(Default)]
pub(crate) struct Options {
    pub(crate) arguments: Vec<String>,
    /// Standard input at its start. `None` starts it without authentication.
    pub(crate) stdin: Option<String>,
    /// Runs it as PID 1 of its own namespace.
    pub(crate) as_init: bool,
    /// Its environment, in which `{root}` stands for the root.
    pub(crate) environment: Vec<(&'static str, &'static str)>,
    /// Files below its root with their contents, in which `{root}` stands for the root.
    pub(crate) files: Vec<(&'static str, String)>,
}

impl Daemon {
    /// Starts a daemon with the default options. `None` without root, with the reason on standard
    /// error.
    pub(crate) fn start() -> Option<Self> {
        Self::start_with(Options::default())
    }

    pub(crate) fn start_with(options: Options) -> Option<Self> {
        if !rustix::process::getuid().is_root() {
            eprintln!("skipped: needs root");
            return None;
        }
        let root = system();
        for (name, text) in &options.files {
            let path = root.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text.replace("{root}", &shown(root.path()))).unwrap();
        }
        let program = env!("CARGO_BIN_EXE_shoal-envd");
        let mut command = if options.as_init {
            let mut command = Command::new("unshare");
            command.args(["--pid", "--fork", "--kill-child", "--mount-proc", program]);
            command
        } else {
            Command::new(program)
        };
        let stdin = match &options.stdin {
            // The runtime API is for daemons without a token.
            None if options
                .arguments
                .iter()
                .any(|word| word == "--runtime-port") =>
            {
                Stdio::null()
            }
            None => {
                command.arg("--open");
                Stdio::null()
            }
            Some(text) => {
                let (reader, mut writer) = std::io::pipe().unwrap();
                writer.write_all(text.as_bytes()).unwrap();
                reader.into()
            }
        };
        for (name, value) in &options.environment {
            command.env(name, value.replace("{root}", &shown(root.path())));
        }
        let mut child = command
            .stdin(stdin)
            .args(["--interpreter-port", "0"])
            .args(["--port", "0", "--bind", "127.0.0.1", "--keep-clock"])
            .args(["--default-user", USER, "--log-level", "debug"])
            .arg("--system-root")
            .arg(root.path())
            .args(options.arguments)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let (tx, log) = mpsc::channel::<Value>();
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                let Ok(entry) = serde_json::from_str(&line) else {
                    panic!("not JSON: {line}");
                };
                if tx.send(entry).is_err() {
                    return;
                }
            }
        });
        let ready = log.recv_timeout(DEADLINE).unwrap();
        assert_eq!(ready["event"], "ready", "{ready}");
        let port = u16::try_from(ready["port"].as_u64().unwrap()).unwrap();
        Some(Self {
            child,
            address: ([127, 0, 0, 1], port).into(),
            root,
            log,
        })
    }

    /// Our own client, which uses the binary codec.
    pub(crate) fn client(&self) -> EnvdClient {
        EnvdClient::at(self.address)
    }

    /// Home directory of the user.
    pub(crate) fn home(&self) -> PathBuf {
        self.root.path().join("home")
    }

    /// A path in the home directory, as text.
    pub(crate) fn path(&self, name: &str) -> String {
        self.home().join(name).to_str().unwrap().to_owned()
    }

    /// The daemon's process id on this machine.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits for the exit.
    pub(crate) fn wait(&mut self) -> std::process::ExitStatus {
        self.child.wait().unwrap()
    }

    /// Waits for a log entry.
    pub(crate) fn logged(&self, mut wanted: impl FnMut(&Value) -> bool) -> Value {
        loop {
            let entry = self.log.recv_timeout(DEADLINE).unwrap();
            if wanted(&entry) {
                return entry;
            }
        }
    }

    /// Ends the daemon and returns the log entries not yet waited for.
    pub(crate) fn end(&mut self) -> Vec<Value> {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        self.log.iter().collect()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A system root for the daemon, with a home directory owned by its user.
fn system() -> TempDir {
    let root = tempfile::tempdir().unwrap();
    let at = |name: &str| root.path().join(name);
    let open = PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(root.path(), open).unwrap();
    for name in ["etc", "run", "home", "root"] {
        std::fs::create_dir(at(name)).unwrap();
    }
    chown(at("home"), Some(UID), Some(UID)).unwrap();
    let (home, admin) = (shown(&at("home")), shown(&at("root")));
    let passwd = format!("root:x:0:0::{admin}:/bin/bash\n{USER}:x:{UID}:{UID}::{home}:/bin/bash\n");
    std::fs::write(at("etc/passwd"), passwd).unwrap();
    let group = format!("root:x:0:\n{USER}:x:{UID}:\nmore:x:{GROUP}:{USER}\n");
    std::fs::write(at("etc/group"), group).unwrap();
    root
}

fn shown(path: &Path) -> String {
    path.to_str().unwrap().to_owned()
}

/// Starts a daemon or returns from the test.
macro_rules! daemon {
    () => {
        match crate::daemon::Daemon::start() {
            Some(daemon) => daemon,
            None => return,
        }
    };
    ($options:expr) => {
        match crate::daemon::Daemon::start_with($options) {
            Some(daemon) => daemon,
            None => return,
        }
    };
}
pub(crate) use daemon;
