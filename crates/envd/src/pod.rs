//! The daemon in a pod whose image does not bring it: how it gets there, and how it starts.
//!
//! An init container runs `shoal-envd install`, which copies the program into a volume. The user's
//! container mounts that volume read-only, and its `postStart` hook runs `shoal-envd start`: the daemon
//! runs beside the image's own program, and the hook ends when the daemon listens.
//!
//! Nothing hands the daemon a token there. It refuses everything until its first `/init` sets one, and
//! takes that only from who presents the sandbox's pass.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::fs::{Mode, OFlags};
use shoal_protocol::pass::{DIGEST_VARIABLE, PassDigest};

/// The program itself.
const OWN_PROGRAM: &str = "/proc/self/exe";

/// Copies this program to `target`, which exists completely or not at all.
///
/// # Errors
/// If the file cannot be written.
pub(crate) fn install(target: &Path) -> io::Result<()> {
    let name = target.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    let mut part = OsString::from(".");
    part.push(name);
    let part = target.with_file_name(part);
    let mut copy = File::create(&part)?;
    io::copy(&mut File::open(OWN_PROGRAM)?, &mut copy)?;
    copy.set_permissions(std::os::unix::fs::PermissionsExt::from_mode(0o555))?;
    copy.sync_all()?;
    fs::rename(part, target)
}

/// Starts the daemon with these options in a process group of its own, and returns once it listens. Then
/// replaces this process by `next`, if there is one.
///
/// # Errors
/// If the daemon does not start, or `next` cannot be run.
pub(crate) fn start(options: &[OsString], next: &[OsString]) -> io::Result<()> {
    let (mut ready, announce) = io::pipe()?;
    let mut command = Command::new(OWN_PROGRAM);
    command
        .arg("--pod")
        .args(options)
        .stdin(announce)
        .stdout(container_log())
        // Not this process's: the runtime waits until the streams of a hook are closed.
        .stderr(Stdio::piped());
    // The runtime may signal the group of a hook that has ended.
    let daemon = command.process_group(0).spawn()?;
    // Only the daemon holds the other end then: if it ends, the pipe does.
    drop(command);
    let mut word = [0; 1];
    if ready.read(&mut word)? == 0 {
        let ended = daemon.wait_with_output()?;
        let told = String::from_utf8_lossy(&ended.stderr);
        let told = told.trim();
        return Err(io::Error::other(format!("{told} ({})", ended.status)));
    }
    match next.split_first() {
        Some((program, arguments)) => Err(Command::new(program).args(arguments).exec()),
        None => Ok(()),
    }
}

/// The digest of the pass that the first `/init` must present, from the container's environment. Without
/// one, the pod was not made by a program that knows of passes, and any first `/init` is taken.
///
/// # Errors
/// If it is no digest: a daemon that took any `/init` then would be open by a mistake.
pub(crate) fn pass_digest(variable: Option<OsString>) -> io::Result<Option<PassDigest>> {
    let Some(text) = variable else {
        return Ok(None);
    };
    let digest = text.to_str().and_then(PassDigest::parse);
    let wrong = || io::Error::other(format!("{DIGEST_VARIABLE} must have 64 hexadecimal digits"));
    digest.map(Some).ok_or_else(wrong)
}

/// The account that commands run as when a request names none: that of a variable, or else the container's own. Without
/// root's rights the daemon cannot act as anybody else.
pub(crate) fn default_user(variable: Option<OsString>, own: String) -> String {
    let named = variable.and_then(|name| name.into_string().ok());
    let named = named.filter(|name| !name.is_empty() && rustix::process::geteuid().is_root());
    named.unwrap_or(own)
}

/// Announces on standard input that the daemon listens, and replaces that by `/dev/null`.
///
/// # Errors
/// If `/dev/null` is missing.
pub(crate) fn announce() -> io::Result<()> {
    // Without a listener the announcement has no reader, which is no failure of the daemon.
    let _ = rustix::io::write(rustix::stdio::stdin(), b"\n");
    let null = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    Ok(rustix::stdio::dup2_stdin(&null)?)
}

/// Where the container's first process writes, so that `kubectl logs` shows the daemon's log too.
fn container_log() -> Stdio {
    let open = |path: &OsStr| File::options().append(true).open(path);
    match open("/proc/1/fd/1".as_ref()).or_else(|_| open("/dev/null".as_ref())) {
        Ok(file) => file.into(),
        Err(_) => Stdio::null(),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use shoal_protocol::pass::InitSecret;

    use super::*;

    #[test]
    fn a_digest_that_is_none_is_refused() {
        assert_eq!(pass_digest(None).unwrap(), None);
        let digest = InitSecret::new([1; 32]).pass("x").digest();
        let text = digest.to_string();
        assert_eq!(pass_digest(Some(text.into())).unwrap(), Some(digest));
        for wrong in ["", "00"] {
            assert!(pass_digest(Some(wrong.into())).is_err());
        }
    }

    #[test]
    fn the_container_says_who_runs_commands() {
        assert_eq!(default_user(None, "own".to_owned()), "own");
        assert_eq!(default_user(Some("".into()), "own".to_owned()), "own");
        let named = if rustix::process::geteuid().is_root() {
            "user"
        } else {
            "own"
        };
        assert_eq!(default_user(Some("user".into()), "own".to_owned()), named);
    }

    #[test]
    fn the_installed_program_is_whole_and_cannot_be_written() {
        let directory = tempfile::tempdir().unwrap();
        let target = directory.path().join("shoal-envd");
        install(&target).unwrap();
        let own = fs::metadata(OWN_PROGRAM).unwrap().len();
        let installed = fs::metadata(&target).unwrap();
        assert_eq!(installed.len(), own);
        assert_eq!(installed.permissions().mode() & 0o777, 0o555);
        let entries = fs::read_dir(directory.path()).unwrap().count();
        assert_eq!(entries, 1, "no part of a copy remains");
        // As a second init container would.
        install(&target).unwrap();
        assert!(install(&directory.path().join("missing/shoal-envd")).is_err());
    }
}
