//! Starts that cannot succeed: each says what to do, and leaves nothing behind.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

/// The exit code of a wrong configuration (`EX_USAGE` of sysexits).
const BAD_CONFIGURATION: i32 = 64;

struct Place(TempDir);

impl Place {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn data(&self) -> std::path::PathBuf {
        self.0.path().join("data")
    }

    fn serve(&self) -> Command {
        self.serve_at("127.0.0.1:0")
    }

    fn serve_at(&self, listen: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_shoal"));
        command
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap())
            // Any program will do: these never get so far as to run it.
            .env("SHOAL_ENVD", "/bin/true")
            .args(["serve", "--listen", listen, "--data"])
            .arg(self.data());
        command
    }
}

/// Runs a start to its end: it exits with `code`, and what it says has each of `parts` in it.
fn assert_refused(start: &mut Command, code: i32, parts: &[&str]) {
    let output = start.output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{text}");
    for part in parts {
        assert!(text.contains(part), "{part} in {text}");
    }
}

fn is_root() -> bool {
    let root = fs::metadata("/proc/self").is_ok_and(|own| {
        use std::os::unix::fs::MetadataExt;
        own.uid() == 0
    });
    if !root {
        assert!(std::env::var_os("CI").is_none(), "CI runs as root");
        eprintln!("skipped: it needs root");
    }
    root
}

/// Obstacles are reported before anything is made.
fn assert_made_nothing(data: &Path) {
    assert!(
        !data.exists(),
        "{:?}",
        fs::read_dir(data).unwrap().collect::<Vec<_>>()
    );
}

#[test]
fn all_mistakes_of_a_configuration_are_told_at_once() {
    let place = Place::new();
    let mut start = place.serve_at("127.0.0.1:99999");
    start
        .args(["--set", "starts=none"])
        .args(["--set", "network.rnge=10.0.0.0/16"])
        .env("SHOAL_LOG_LEVL", "debug");
    let told = [
        "127.0.0.1:99999",
        "starts",
        "did you mean network.range?",
        "did you mean SHOAL_LOG_LEVEL?",
    ];
    assert_refused(&mut start, BAD_CONFIGURATION, &told);
    assert_made_nothing(&place.data());
}

#[test]
fn a_port_that_is_taken() {
    if !is_root() {
        return;
    }
    let place = Place::new();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    assert_refused(&mut place.serve_at(&address), 1, &[&address, "--listen"]);
    assert_made_nothing(&place.data());
}

#[test]
fn no_runtime() {
    if !is_root() {
        return;
    }
    let place = Place::new();
    let mut start = place.serve();
    start.args([
        "--set=runtime.runsc=/nowhere/runsc",
        "--set=runtime.runc=/nowhere/runc",
    ]);
    assert_refused(&mut start, 1, &["runsc is not installed", "shoal doctor"]);
    assert_made_nothing(&place.data());
}

/// Sandboxes that ask for no runtime are isolated by gVisor, or else not made.
#[test]
fn no_gvisor() {
    if !is_root() {
        return;
    }
    let place = Place::new();
    let old = place.0.path().join("runsc");
    let source = place.0.path().join("runsc.sh");
    fs::write(
        &source,
        "#!/bin/sh\necho runsc version release-20221219.0\n",
    )
    .unwrap();
    install(&source, &old);
    for (program, reason) in [
        ("/nowhere/runsc", "runsc is not installed"),
        (old.to_str().unwrap(), "release-20221219.0 is too old"),
    ] {
        let mut start = place.serve();
        start.arg(format!("--set=runtime.runsc={program}"));
        let told = [reason, "shoal doctor", "runtime.default = \"runc\""];
        assert_refused(&mut start, 1, &told);
        assert_made_nothing(&place.data());
    }
}

/// A server with runc only needs runc, and no gVisor.
#[test]
fn no_runc_that_was_made_the_default() {
    if !is_root() {
        return;
    }
    let place = Place::new();
    let mut start = place.serve();
    start.args([
        "--set=runtime.default=runc",
        "--set=runtime.runc=/nowhere/runc",
    ]);
    assert_refused(&mut start, 1, &["runc is not installed"]);
    assert_made_nothing(&place.data());
}

#[test]
fn no_daemon() {
    if !is_root() {
        return;
    }
    let place = Place::new();
    let mut start = place.serve();
    start.arg("--set=envd=/nowhere/shoal-envd");
    assert_refused(&mut start, 1, &["/nowhere/shoal-envd"]);
    assert_made_nothing(&place.data());
}

#[test]
fn no_root() {
    if !is_root() {
        return;
    }
    let place = Place::new();
    // Another user may not be able to reach the program where it was built.
    let program = place.0.path().join("shoal");
    install(Path::new(env!("CARGO_BIN_EXE_shoal")), &program);
    open_to_all(place.0.path());
    let mut start = Command::new("setpriv");
    start
        .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
        .arg(&program)
        .args(["serve", "--listen", "127.0.0.1:0", "--data"])
        .arg(place.data())
        .arg("--set=envd=/bin/true");
    assert_refused(&mut start, 1, &["sudo"]);
    assert_made_nothing(&place.data());
}

/// Copies a program. Another process writes it: for a moment, children of parallel tests have all
/// descriptors of this one, and a program that is open for writing cannot be executed.
fn install(source: &Path, program: &Path) {
    let mut install = Command::new("install");
    install.arg("--mode=755").arg(source).arg(program);
    assert!(install.status().unwrap().success());
}

fn open_to_all(path: &Path) {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(path, fs::Permissions::from_mode(0o777)).unwrap();
}

/// A small file system of its own, unmounted at the end.
struct Small<'a>(&'a Path);

impl<'a> Small<'a> {
    fn mount(path: &'a Path) -> Self {
        fs::create_dir(path).unwrap();
        let status = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=2m", "tmpfs"])
            .arg(path)
            .status();
        assert!(status.unwrap().success());
        Self(path)
    }
}

impl Drop for Small<'_> {
    fn drop(&mut self) {
        let unmounted = Command::new("umount").arg(self.0).status();
        assert!(unmounted.is_ok_and(|status| status.success()));
    }
}

#[test]
fn a_disk_without_space() {
    if !is_root() {
        return;
    }
    let place = Place::new();
    let data = place.data();
    let small = Small::mount(&data);
    assert_refused(&mut place.serve(), 1, &["disk.size", "free"]);
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let below = data.join("disk");
    assert!(!mounts.contains(below.to_str().unwrap()), "{mounts}");
    assert!(!data.join("disk.btrfs").exists() && !data.join("disk.new").exists());
    drop(small);
}
