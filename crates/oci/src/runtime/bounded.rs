//! Runs a program with a timeout: waiting for a runtime that hangs would delay the end of its
//! sandbox and the start of others.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use shoal_node::pidfd;

/// How much of a program's standard error is kept.
const SAID_MAX: usize = 16 << 10;

/// How long a killed program may take to end. The kernel may hold it longer when a disk does not
/// answer; then another thread reaps it.
const GONE: Duration = Duration::from_secs(5);

/// A program that exited by itself.
pub(super) struct Ended {
    pub(super) status: ExitStatus,
    /// The beginning of its standard error, if that is a pipe.
    pub(super) said: Vec<u8>,
}

/// Runs a program in its own process group, and kills that group after `limit`. Never blocks
/// longer, even if another process holds its standard error.
///
/// # Errors
/// [`io::ErrorKind::TimedOut`] after the limit; otherwise when it cannot be started.
pub(super) fn run(mut command: Command, limit: Duration) -> io::Result<Ended> {
    let mut child = command.process_group(0).spawn()?;
    let end = Instant::now() + limit;
    let watched = watch(&mut child, end);
    match watched {
        Ok(Some(said)) => Ok(Ended {
            status: child.wait()?,
            said,
        }),
        Ok(None) => {
            let program = command.get_program().to_string_lossy().into_owned();
            end_group(child)?;
            let seconds = limit.as_secs_f64().ceil();
            Err(io::Error::new(
                io::ErrorKind::TimedOut,
                format!("{program} did not end within {seconds} s, and was ended"),
            ))
        }
        Err(error) => {
            end_group(child)?;
            Err(error)
        }
    }
}

/// Waits for exit while draining stderr, so that a full pipe cannot block the child. `None` if it
/// has not exited by `end`.
fn watch(child: &mut Child, end: Instant) -> io::Result<Option<Vec<u8>>> {
    let process = pidfd::open(child.id().cast_signed())?;
    let mut errors = match child.stderr.take() {
        Some(errors) => Some(without_waiting(errors.into())?),
        None => None,
    };
    let mut said = Vec::new();
    loop {
        let ended = wait_for(&process, errors.as_ref().map(File::as_fd), end)?;
        let open = match &mut errors {
            Some(errors) => take(errors, &mut said)?,
            None => false,
        };
        if ended {
            return Ok(Some(said));
        }
        if !open {
            errors = None;
        }
        if Instant::now() >= end {
            return Ok(None);
        }
    }
}

/// Waits until the process has ended, output is readable, or the timeout expires. Returns whether it
/// has ended.
fn wait_for(process: &OwnedFd, errors: Option<BorrowedFd<'_>>, end: Instant) -> io::Result<bool> {
    let mut looked = vec![PollFd::new(process.as_fd(), PollFlags::POLLIN)];
    looked.extend(errors.map(|errors| PollFd::new(errors, PollFlags::POLLIN)));
    let left = end.saturating_duration_since(Instant::now());
    // Rounded up: with a timeout of zero, `poll` would spin.
    let left = PollTimeout::try_from(left.as_millis() + 1).unwrap_or(PollTimeout::MAX);
    match poll(&mut looked, left) {
        Err(nix::errno::Errno::EINTR) => Ok(false),
        Err(error) => Err(error.into()),
        Ok(_) => Ok(looked[0].any().unwrap_or(false)),
    }
}

fn without_waiting(errors: OwnedFd) -> io::Result<File> {
    let flags = OFlag::from_bits_retain(fcntl(&errors, FcntlArg::F_GETFL)?);
    fcntl(&errors, FcntlArg::F_SETFL(flags | OFlag::O_NONBLOCK))?;
    Ok(errors.into())
}

/// Reads available output. Returns whether there may be more.
fn take(errors: &mut File, said: &mut Vec<u8>) -> io::Result<bool> {
    let mut piece = [0; 4096];
    loop {
        match errors.read(&mut piece) {
            Ok(0) => return Ok(false),
            Ok(n) => {
                let room = SAID_MAX.saturating_sub(said.len()).min(n);
                said.extend_from_slice(&piece[..room]);
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(true),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Kills a program and its process group.
fn end_group(mut child: Child) -> io::Result<()> {
    // It is our child and not reaped yet, so its id cannot be reused.
    let group = Pid::from_raw(child.id().cast_signed());
    match killpg(group, Signal::SIGKILL) {
        Ok(()) | Err(nix::errno::Errno::ESRCH) => {}
        Err(error) => return Err(error.into()),
    }
    let process = pidfd::open(child.id().cast_signed())?;
    if wait_for(&process, None, Instant::now() + GONE)? {
        child.wait()?;
        return Ok(());
    }
    tracing::error!(pid = child.id(), "a killed program has not exited yet");
    std::thread::spawn(move || child.wait());
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::process::Stdio;

    use super::*;

    /// Longer than any of these programs runs, and far shorter than one that hangs.
    const LONG: Duration = Duration::from_secs(20);

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]).stdin(Stdio::null());
        command
    }

    #[test]
    fn what_ends_in_time_says_how_and_what() {
        let mut command = shell("echo broken >&2; exit 3");
        command.stderr(Stdio::piped());
        let ended = run(command, LONG).unwrap();
        assert_eq!(ended.status.code(), Some(3));
        assert_eq!(ended.said, b"broken\n");
    }

    #[test]
    fn who_says_much_is_not_held_up_and_little_of_it_is_kept() {
        let mut command = shell("head -c 1000000 /dev/zero >&2");
        command.stderr(Stdio::piped());
        let ended = run(command, LONG).unwrap();
        assert!(ended.status.success());
        assert_eq!(ended.said.len(), SAID_MAX);
    }

    #[test]
    fn who_leaves_a_program_behind_is_not_waited_for_until_that_ends() {
        let directory = tempfile::tempdir().unwrap();
        let mut command = shell("sleep 100 & echo $! > left");
        command.current_dir(directory.path()).stderr(Stdio::piped());
        let begun = Instant::now();
        assert!(run(command, LONG).unwrap().status.success());
        assert!(begun.elapsed() < LONG);
        let left = std::fs::read_to_string(directory.path().join("left")).unwrap();
        pidfd::kill(&pidfd::open(left.trim().parse().unwrap()).unwrap()).unwrap();
    }

    #[test]
    fn what_hangs_is_ended_with_all_that_it_began() {
        let directory = tempfile::tempdir().unwrap();
        let noted = directory.path().join("pids");
        let mut command = shell("sleep 100 & echo $! $$ > pids.new; mv pids.new pids; wait");
        command.current_dir(directory.path());
        // Long enough for a shell to start on a busy machine.
        let hung = run(command, Duration::from_secs(5)).err().unwrap();
        assert_eq!(hung.kind(), io::ErrorKind::TimedOut);
        assert_eq!(hung.to_string(), "sh did not end within 5 s, and was ended");
        let noted = std::fs::read_to_string(noted).unwrap();
        for pid in noted.split_whitespace() {
            let pid: i32 = pid.parse().unwrap();
            // A zombie has no parent that waits, and is reaped soon.
            if let Ok(process) = pidfd::open(pid) {
                assert!(wait_for(&process, None, Instant::now() + LONG).unwrap());
            }
        }
    }
}
