#![expect(unsafe_code, reason = "calls that no library offers are made here")]

use std::fs;
use std::path::Path;
use std::process::Command;

use super::*;

const UNIT: &str = "../../packaging/shoal.service";

/// Runs `work` on a thread of its own that has given up what the server does.
fn dropped<T: Send>(work: impl FnOnce() -> T + Send) -> Option<T> {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("skipped: giving up capabilities needs root");
        return None;
    }
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            give_up().unwrap();
            work()
        });
        Some(thread.join().unwrap())
    })
}

fn errno_of(call: i64) -> i32 {
    // SAFETY: every argument is zero: no call that is refused reads or writes memory for that.
    let result = unsafe { libc::syscall(call, 0, 0, 0, 0, 0) };
    assert_eq!(result, -1, "call {call}");
    io::Error::last_os_error().raw_os_error().unwrap()
}

fn status(field: &str) -> String {
    let status = fs::read_to_string("/proc/thread-self/status").unwrap();
    let line = status.lines().find_map(|l| l.strip_prefix(field)).unwrap();
    line.trim_start_matches(':').trim().to_owned()
}

#[test]
fn every_refused_call_is_refused_in_both_spellings() {
    dropped(|| {
        for (name, number) in REFUSED {
            assert_eq!(errno_of(*number), libc::EPERM, "{name}");
            #[cfg(target_arch = "x86_64")]
            assert_eq!(errno_of(*number | X32), libc::EPERM, "x32 {name}");
        }
        // Not because everything is.
        assert_eq!(errno_of(libc::SYS_mount), libc::EFAULT);
        assert_eq!(status("Seccomp"), "2");
        assert_eq!(status("NoNewPrivs"), "0");
    });
}

#[test]
fn only_the_kept_capabilities_are_left_and_none_is_handed_on() {
    let mask = KEPT.iter().fold(0, |mask, c| mask | c.bitmask());
    dropped(|| {
        for set in ["CapPrm", "CapEff", "CapBnd"] {
            let left = u64::from_str_radix(&status(set), 16).unwrap();
            assert_eq!(left & !mask, 0, "{set}");
            assert_ne!(left & Capability::CAP_SYS_ADMIN.bitmask(), 0, "{set}");
        }
        for set in ["CapInh", "CapAmb"] {
            assert_eq!(u64::from_str_radix(&status(set), 16).unwrap(), 0, "{set}");
        }
        // A program of root's gets no more.
        let said = Command::new("cat")
            .arg("/proc/self/status")
            .output()
            .unwrap();
        let said = String::from_utf8(said.stdout).unwrap();
        let effective = said.lines().find_map(|l| l.strip_prefix("CapEff:"));
        let effective = u64::from_str_radix(effective.unwrap().trim(), 16).unwrap();
        assert_eq!(effective & !mask, 0);
        assert!(said.contains("Seccomp:\t2"), "{said}");
    });
}

/// The values of `key=` in the unit, in all of its lines.
fn words<'a>(unit: &'a str, key: &str) -> Vec<&'a str> {
    let values = unit
        .lines()
        .filter_map(|line| line.strip_prefix(key)?.strip_prefix('='));
    let mut words: Vec<_> = values
        .flat_map(|value| value.trim_start_matches('~').split_whitespace())
        .collect();
    words.sort_unstable();
    words
}

#[test]
fn the_unit_says_what_the_server_does_itself() {
    let unit = fs::read_to_string(UNIT).unwrap();
    let mut kept: Vec<String> = KEPT.iter().map(ToString::to_string).collect();
    kept.sort_unstable();
    assert_eq!(words(&unit, "CapabilityBoundingSet"), kept);
    let mut refused: Vec<&str> = REFUSED.iter().map(|(name, _)| *name).collect();
    refused.sort_unstable();
    if cfg!(target_arch = "x86_64") {
        assert_eq!(words(&unit, "SystemCallFilter"), refused);
    }
    assert!(unit.contains("\nSystemCallFilter=~"));
    assert_eq!(words(&unit, "UMask"), ["0077"]);
    // Sandboxes would inherit it, or not outlive the server.
    assert_eq!(words(&unit, "NoNewPrivileges"), ["no"]);
    assert_eq!(words(&unit, "KillMode"), ["process"]);
}

#[test]
fn systemd_understands_the_unit() {
    let directory = tempfile::tempdir().unwrap();
    let unit = fs::read_to_string(UNIT).unwrap();
    let program = std::env::current_exe().unwrap();
    let unit = unit.replace("/usr/local/bin/shoal", program.to_str().unwrap());
    let file = directory.path().join("shoal.service");
    fs::write(&file, unit).unwrap();
    let verified = Command::new("systemd-analyze")
        .args(["verify", "--man=no", "--recursive-errors=no"])
        .arg(&file)
        .output();
    match verified {
        Ok(verified) => {
            let said = String::from_utf8_lossy(&verified.stderr).into_owned();
            assert!(
                verified.status.success() && !said.contains("shoal.service"),
                "{said}"
            );
        }
        Err(error) => eprintln!("skipped: systemd-analyze: {error}"),
    }
    assert!(Path::new(UNIT).exists());
}
