//! The findings of `shoal doctor`, its removals, and its exit codes.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;
use sha2::{Digest, Sha256};

fn doctor(data: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_shoal"));
    command
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap())
        // Any program will do: it is only looked at.
        .env("SHOAL_ENVD", "/bin/true")
        .args(["doctor", "--listen", "127.0.0.1:0", "--data"])
        .arg(data);
    command
}

fn text(output: &Output) -> String {
    let all = [output.stdout.clone(), output.stderr.clone()].concat();
    String::from_utf8_lossy(&all).into_owned()
}

fn is_root() -> bool {
    let root = nix::unistd::geteuid().is_root();
    if !root {
        assert!(std::env::var_os("CI").is_none(), "CI runs as root");
        eprintln!("skipped: it needs root");
    }
    root
}

#[test]
fn missing_tools_are_reported_with_a_fix_and_fail() {
    let data = tempfile::tempdir().unwrap();
    let output = doctor(data.path())
        .arg("--set=runtime.runsc=/nowhere/runsc")
        .output()
        .unwrap();
    let said = text(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    let mut lines = said.lines();
    let missing = lines.find(|line| line.contains("runsc")).unwrap();
    assert!(
        missing.starts_with("missing ") && missing.ends_with("is not installed"),
        "{missing}"
    );
    assert_eq!(lines.next().unwrap().trim(), "fix: scripts/setup run");
}

#[test]
fn gvisor_is_no_must_where_it_is_not_the_default() {
    let data = tempfile::tempdir().unwrap();
    let health = |settings: &[&str], what: &str| {
        let output = doctor(data.path())
            .arg("--json")
            .args(settings)
            .output()
            .unwrap();
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        let checks = report["checks"].as_array().unwrap();
        let check = checks.iter().find(|check| check["what"] == what).unwrap();
        check["health"].as_str().unwrap().to_owned()
    };
    let no_runsc = "--set=runtime.runsc=/nowhere/runsc";
    let by_runc = "--set=runtime.default=runc";
    assert_eq!(health(&[no_runsc], "runsc"), "missing");
    assert_eq!(health(&[no_runsc, by_runc], "runsc"), "warning");
    let no_runc = "--set=runtime.runc=/nowhere/runc";
    assert_eq!(health(&[no_runc], "runc"), "warning");
    assert_eq!(health(&[no_runc, by_runc], "runc"), "missing");
}

/// The short name of an installation, which is in the names of all that it makes.
fn instance_of(data: &Path) -> String {
    let data = data.canonicalize().unwrap();
    let digest = Sha256::digest(data.to_str().unwrap().as_bytes());
    let letter =
        |byte: &u8| char::from(b"0123456789abcdefghijklmnopqrstuv"[usize::from(byte % 32)]);
    digest.iter().take(5).map(letter).collect()
}

/// Runs the words of a shell where there is no network and nothing in `/run`, so that only what they
/// leave there is found: files of others on this machine are theirs.
fn alone(script: &str) -> Output {
    Command::new("unshare")
        .args(["--net", "--mount", "--propagation=private", "sh", "-euc"])
        .arg(format!("mount -t tmpfs tmpfs /run\n{script}"))
        .output()
        .unwrap()
}

fn line_of(command: &Command) -> String {
    let word = |word: &std::ffi::OsStr| format!("'{}'", word.to_str().unwrap());
    let words = command.get_args().map(word);
    let program = std::iter::once(word(command.get_program()));
    let words: Vec<String> = program.chain(words).collect();
    format!("SHOAL_ENVD=/bin/true {}", words.join(" "))
}

#[test]
fn what_a_crash_has_left_is_found_and_removed_when_asked_to() {
    if !is_root() {
        return;
    }
    let data = tempfile::tempdir().unwrap();
    let table = format!("shoal_{}", instance_of(data.path()));
    let shoal = line_of(&doctor(data.path()));
    let output = alone(&format!(
        "nft add table inet {table}
         {shoal} && echo none || echo found $?
         {shoal} --clean </dev/null && echo asked || echo nobody-asked $?
         nft list tables
         {shoal} --clean --yes && echo clean || echo unfit $?
         echo then; nft list tables
         {shoal} >/dev/null && echo well || echo unwell"
    ));
    let said = text(&output);
    assert!(output.status.success(), "{said}");
    for part in [
        "1 leftovers",
        &format!("packet filter table {table}"),
        "`shoal doctor --clean` removes leftovers.",
        "cannot ask for confirmation without a terminal: pass --yes",
        "removed the leftovers",
    ] {
        assert!(said.contains(part), "{part} is missing in {said}");
    }
    for line in ["found 1", "nobody-asked 1", "clean", "well"] {
        assert!(said.lines().any(|said| said == line), "{line} in {said}");
    }
    let (before, after) = said.split_once("\nthen\n").unwrap();
    assert!(before.contains(&format!("table inet {table}")), "{before}");
    assert!(
        !after.contains(&table) && !after.contains("unwell"),
        "{said}"
    );
}

#[test]
fn the_version_is_said_in_both_ways() {
    for word in ["version", "--version"] {
        let output = Command::new(env!("CARGO_BIN_EXE_shoal"))
            .arg(word)
            .output()
            .unwrap();
        assert!(output.status.success());
        let version = concat!("shoal ", env!("CARGO_PKG_VERSION"), "\n");
        assert_eq!(String::from_utf8_lossy(&output.stdout), version);
    }
}
