//! The driver on the real machine: gVisor, overlays, namespaces, cgroups.
#![expect(clippy::unwrap_used, reason = "tests")]

mod support;

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use std::time::Duration;

use shoal_core::BoxFuture;
use shoal_core::detail::Chain;
use shoal_core::driver::contract::{Subject, check};
use shoal_core::driver::{
    Checkpointer, Driver, DriverError, DriverEvent, Isolation, PausedNetwork, Start, StartSpec,
};
use shoal_core::id::{ExecutionId, SandboxId};
use shoal_core::snapshot::Contents;
use shoal_core::state::FailReason;
use shoal_oci::{OciDriver, RuntimeConfig, RuntimeTimeouts};

use self::support::{Installation, can_run, leftovers, order};

/// The driver with one of its runtimes.
struct OnThisMachine<'a> {
    installation: &'a Installation,
    driver: OciDriver,
    runtime: &'static str,
}

impl Subject for OnThisMachine<'_> {
    fn driver(&self) -> &dyn Driver {
        &self.driver
    }

    fn spec(&self, id: SandboxId, execution: ExecutionId) -> StartSpec {
        StartSpec {
            execution,
            ..order(id.as_str(), Some(self.runtime))
        }
    }

    fn spec_without_image(&self, id: SandboxId, execution: ExecutionId) -> StartSpec {
        StartSpec {
            start: Start::Image("nothing:1".parse().unwrap()),
            ..self.spec(id, execution)
        }
    }

    fn stop<'a>(&'a self, id: &'a SandboxId) -> BoxFuture<'a, ()> {
        let data = self.installation.directory.path().join("data/sandboxes");
        let pid = fs::read_to_string(data.join(id.as_str()).join("pid")).unwrap();
        kill(&pid);
        Box::pin(async {})
    }

    fn remains(&self, id: &SandboxId) -> Vec<String> {
        let all = leftovers(self.installation, self.driver.instance());
        all.into_iter()
            .filter(|line| line.split(['/', ' ']).any(|part| part == id.as_str()))
            .collect()
    }
}

fn kill(pid: &str) {
    let pid = nix::unistd::Pid::from_raw(pid.trim().parse().unwrap());
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL).unwrap();
}

#[tokio::test]
async fn the_driver_keeps_the_contract_in_each_runtime() {
    if !can_run() {
        return;
    }
    for runtime in ["runsc", "runc"] {
        let installation = Installation::new();
        let driver = installation.open();
        let subject = OnThisMachine {
            installation: &installation,
            driver: driver.clone(),
            runtime,
        };
        let checked = tokio::time::timeout(Duration::from_secs(600), check(&subject)).await;
        let parts = checked.unwrap_or_else(|_| panic!("{runtime}: the suite does not end"));
        let all = [
            "checkpointer",
            "freezer",
            "resizer",
            "egress_filter",
            "disk_accounts",
        ];
        assert_eq!(parts, all, "{runtime}");
        driver.close().await.unwrap();
        assert_eq!(leftovers(&installation, driver.instance()), [""; 0]);
    }
}

/// Sends a packet to a sandbox, which need not have a listener.
fn send_into(address: std::net::IpAddr) {
    let nobody = std::net::SocketAddr::new(address, 9);
    let refused = std::net::TcpStream::connect_timeout(&nobody, Duration::from_secs(5));
    assert!(refused.is_err());
}

#[tokio::test]
async fn a_sandbox_runs_in_each_runtime_and_leaves_nothing() {
    if !can_run() {
        return;
    }
    let installation = Installation::new();
    let driver = installation.open();
    driver.inventory().await.unwrap();
    for (id, runtime, isolation) in [
        ("ia", "runsc", Isolation::UserspaceKernel),
        ("ib", "runc", Isolation::Namespaces),
    ] {
        let order = order(id, Some(runtime));
        let report = driver.create(order.clone()).await.unwrap();
        assert_eq!(report.isolation, isolation);
        let said = driver.next_event().await.unwrap();
        let expected = DriverEvent::Output {
            id: order.id.clone(),
            lines: vec!["ready".into()],
        };
        assert_eq!(said, expected);
        let usage = driver.usage(&order.id).await.unwrap();
        assert!(usage.memory_bytes > 0 && usage.cpu_nanos > 0, "{usage:?}");
        send_into(report.address);
        let after = driver.usage(&order.id).await.unwrap();
        assert!(after.received_bytes > usage.received_bytes, "{after:?}");
        println!("{runtime}: {:?}", report.phases);
        // Only root of the sandbox, whatever user of this machine that is, can reach its files.
        let data = installation.directory.path().join("data");
        for closed in [data.clone(), data.join("sandboxes").join(id)] {
            let closed = fs::metadata(closed).unwrap();
            assert_eq!((closed.mode() & 0o777, closed.uid()), (0o700, 0));
        }
        let roots = Path::new("/run/shoal")
            .join(driver.instance())
            .join("roots");
        let (all, own) = (
            fs::metadata(&roots).unwrap(),
            fs::metadata(roots.join(id)).unwrap(),
        );
        assert_eq!((all.mode() & 0o777, own.mode() & 0o777), (0o711, 0o700));
        assert_eq!(own.uid() == 0, isolation == Isolation::UserspaceKernel);
        driver.destroy(&order.id).await.unwrap();
        driver.destroy(&order.id).await.unwrap();
        assert!(matches!(
            driver.usage(&order.id).await,
            Err(DriverError::NotFound(_))
        ));
    }
    driver.close().await.unwrap();
    assert_eq!(leftovers(&installation, driver.instance()), [""; 0]);
}

/// Echoes its standard input, and reports its end.
const LISTENER: &str = "#!/bin/sh\nread token\necho \"token $token\"\n\
    read more || echo \"no more\"\nexec sleep 100000\n";

#[tokio::test]
async fn the_daemon_gets_its_token_and_no_argument_environment_or_file_has_it() {
    if !can_run() {
        return;
    }
    let installation = Installation::with_daemon(LISTENER);
    let driver = installation.open();
    driver.inventory().await.unwrap();
    for (id, runtime) in [("ia", "runsc"), ("ib", "runc")] {
        let order = order(id, Some(runtime));
        let token = order.guest_token.reveal().to_owned();
        driver.create(order.clone()).await.unwrap();
        let mut said = Vec::new();
        while said.len() < 2 {
            if let DriverEvent::Output { lines, .. } = driver.next_event().await.unwrap() {
                said.extend(lines);
            }
        }
        assert_eq!(
            said,
            [format!("token {token}"), "no more".to_owned()],
            "{runtime}"
        );
        let directory = installation
            .directory
            .path()
            .join("data/sandboxes")
            .join(id);
        let shown = shown_to_others(&directory);
        assert!(shown.iter().any(|(file, _)| file.ends_with("config.json")));
        for (file, text) in shown {
            assert!(!text.contains(&token), "{runtime}: {}", file.display());
        }
        driver.destroy(&order.id).await.unwrap();
    }
    driver.close().await.unwrap();
}

/// The files of a sandbox's directory, and the visible data of every process on this machine.
fn shown_to_others(directory: &Path) -> Vec<(PathBuf, String)> {
    let entries = |directory: &Path| {
        let entries = fs::read_dir(directory).unwrap();
        entries.map(|entry| entry.unwrap().path())
    };
    let own = entries(directory).filter(|path| path.is_file());
    let of_processes = entries(Path::new("/proc"))
        .flat_map(|process| [process.join("cmdline"), process.join("environ")]);
    own.chain(of_processes)
        // A process may have ended meanwhile.
        .filter_map(|path| Some((path.clone(), fs::read(path).ok()?)))
        .map(|(path, bytes)| (path, String::from_utf8_lossy(&bytes).into_owned()))
        .collect()
}

#[test]
fn a_server_that_starts_again_finds_what_runs_and_hears_of_its_end() {
    if !can_run() {
        return;
    }
    let installation = Installation::new();
    // A separate runtime that ends abruptly, like a killed server.
    runtime().block_on(async {
        let first = installation.open();
        first.inventory().await.unwrap();
        first.create(order("ikept", None)).await.unwrap();
        first.create(order("ihalf", None)).await.unwrap();
    });
    installation.forget();
    let data = installation.directory.path().join("data");
    // As if the first server had been killed before it wrote the manifest.
    fs::remove_file(data.join("sandboxes/ihalf/sandbox.json")).unwrap();
    runtime().block_on(finds_what_runs(&installation));
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
}

async fn finds_what_runs(installation: &Installation) {
    let data = installation.directory.path().join("data");
    let kept = order("ikept", None);
    let second = installation.open();
    let found = second.inventory().await.unwrap();
    assert_eq!(found.len(), 1);
    assert!(found[0].alive && found[0].id == kept.id && found[0].execution == kept.execution);
    assert!(!data.join("sandboxes/ihalf").exists());

    let pid = fs::read_to_string(data.join("sandboxes/ikept/pid")).unwrap();
    kill(&pid);
    let reason = loop {
        match second.next_event().await.unwrap() {
            DriverEvent::Failed { reason, .. } => break reason,
            DriverEvent::Output { .. } => {}
        }
    };
    assert_eq!(reason, FailReason::Exited);
    second.destroy(&kept.id).await.unwrap();
    second.close().await.unwrap();
    assert_eq!(leftovers(installation, second.instance()), [""; 0]);
}

#[tokio::test]
async fn what_cannot_be_made_is_refused_by_name() {
    if !can_run() {
        return;
    }
    let installation = Installation::new();
    let driver = installation.open();
    driver.inventory().await.unwrap();
    let unknown = driver
        .create(order("ia", Some("firecracker")))
        .await
        .unwrap_err();
    assert_eq!(
        unknown.to_string(),
        "runtime firecracker is not available: use one of runsc, runc"
    );
    let mut privileged = order("ia", Some("runc"));
    privileged.privileged = true;
    let privileged = driver.create(privileged).await.unwrap_err();
    assert_eq!(
        privileged.to_string(),
        "runtime runc cannot run containers in a sandbox: use runsc"
    );
    let mut missing = order("ia", None);
    missing.start = Start::Image("nothing:1".parse().unwrap());
    let missing = driver.create(missing).await.unwrap_err();
    assert_eq!(
        missing.to_string(),
        "image nothing:1 is not on this node: pull it first"
    );
    driver.close().await.unwrap();
    assert_eq!(leftovers(&installation, driver.instance()), [""; 0]);
}

/// The real runtime, except that verbs hang for which a file exists next to it.
const RUNTIME: &str = r#"#!/bin/sh
for word in "$@"; do
    [ -e "$0.hangs.$word" ] && { sleep 1000 & wait; }
done
exec runsc "$@"
"#;

struct Hanging(PathBuf);

impl Hanging {
    fn new(directory: &Path) -> Self {
        let program = directory.join("runtime");
        fs::write(&program, RUNTIME).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        Self(program)
    }

    fn config(&self) -> RuntimeConfig {
        // An operation that does not hang ends within this time, even on a busy machine.
        let soon = Duration::from_secs(15);
        RuntimeConfig {
            runsc: self.0.clone(),
            timeouts: RuntimeTimeouts {
                start: soon,
                freeze: soon,
                save: soon,
                per_mib: Duration::ZERO,
            },
            ..RuntimeConfig::default()
        }
    }

    fn set(&self, verb: &str, hangs: bool) {
        let file = format!("{}.hangs.{verb}", self.0.display());
        if hangs {
            fs::write(file, "").unwrap();
        } else {
            fs::remove_file(file).unwrap();
        }
    }
}

fn too_slow<T: std::fmt::Debug>(done: Result<T, DriverError>) {
    let refused = done.unwrap_err();
    assert!(matches!(refused, DriverError::TooSlow { .. }), "{refused}");
    let logged = Chain(&refused).to_string();
    assert!(logged.contains("did not end within 15 s"), "{logged}");
    assert!(!refused.to_string().contains("runsc"), "{refused}");
}

// A hanging runtime costs only the operation that it was called for.
#[tokio::test]
async fn a_runtime_that_hangs_keeps_no_sandbox_from_its_end_and_no_other_from_its_start() {
    if !can_run() {
        return;
    }
    let installation = Installation::new();
    let runtime = Hanging::new(installation.directory.path());
    // One start at a time: without a timeout, a hanging one would hold the permit forever.
    let driver = installation.open_with(runtime.config(), 1);
    driver.inventory().await.unwrap();
    runtime.set("run", true);
    too_slow(driver.create(order("ihangs", None)).await);
    runtime.set("run", false);
    let made = order("imade", None);
    driver.create(made.clone()).await.unwrap();
    for verb in ["pause", "checkpoint"] {
        runtime.set(verb, true);
        too_slow(driver.pause(&made.id, Contents::Memory).await);
        runtime.set(verb, false);
    }
    assert!(driver.usage(&made.id).await.is_ok(), "it is there still");
    runtime.set("pause", true);
    runtime.set("resume", true);
    too_slow(driver.pause(&made.id, Contents::Filesystem).await);
    driver.destroy(&made.id).await.unwrap();
    runtime.set("pause", false);
    runtime.set("resume", false);
    let rests = order("irests", None);
    driver.create(rests.clone()).await.unwrap();
    driver.pause(&rests.id, Contents::Memory).await.unwrap();
    runtime.set("restore", true);
    let again = |mut order: StartSpec| {
        order.start = Start::Paused {
            memory: true,
            network: PausedNetwork::Removed,
        };
        order
    };
    too_slow(driver.create(again(rests.clone())).await);
    runtime.set("restore", false);
    driver.create(again(rests.clone())).await.unwrap();
    driver.destroy(&rests.id).await.unwrap();
    driver.close().await.unwrap();
    assert_eq!(leftovers(&installation, driver.instance()), [""; 0]);
}

/// The real `runc`, except that its next attempts to freeze fail, one for each line of a file.
const UNFREEZABLE: &str = r#"#!/bin/sh
case " $* " in *" pause "*)
    if [ -s "$0.attempts" ]; then
        sed -i 1d "$0.attempts"
        echo "unable to freeze" >&2
        exit 1
    fi
esac
exec runc "$@"
"#;

#[tokio::test]
async fn freezing_waits_for_a_process_that_a_busy_disk_holds() {
    if !can_run() {
        return;
    }
    let installation = Installation::new();
    let program = installation.directory.path().join("unfreezable");
    fs::write(&program, UNFREEZABLE).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let attempts = program.with_extension("attempts");
    fs::write(&attempts, "1\n2\n3\n").unwrap();
    let runtimes = RuntimeConfig {
        runc: program,
        ..RuntimeConfig::default()
    };
    let driver = installation.open_with(runtimes, 1);
    driver.inventory().await.unwrap();
    let made = order("ibusy", Some("runc"));
    driver.create(made.clone()).await.unwrap();
    driver.pause(&made.id, Contents::Filesystem).await.unwrap();
    assert_eq!(fs::read_to_string(&attempts).unwrap(), "");
    driver.destroy(&made.id).await.unwrap();
    driver.close().await.unwrap();
}
