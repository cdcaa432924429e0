//! OCI runtimes, driven through their command line.

mod age;
mod bounded;
mod detect;
mod patience;

use std::ffi::OsString;
use std::fs;
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use shoal_core::driver::{Isolation, RuntimeInfo};
use shoal_core::resources::Mib;

pub(crate) use self::age::weakness;
pub use self::detect::{Missing, RuntimeConfig};
pub(crate) use self::detect::{detect, on_path};
pub use self::patience::Patience;

/// The kinds of OCI runtime that are known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// gVisor: a kernel in user space.
    Runsc,
    /// The reference: the machine's kernel behind namespaces.
    Runc,
}

impl Kind {
    /// The program's name.
    #[must_use]
    pub fn program(self) -> &'static str {
        match self {
            Self::Runsc => "runsc",
            Self::Runc => "runc",
        }
    }

    /// What it isolates with.
    pub(crate) fn isolation(self) -> Isolation {
        match self {
            Self::Runsc => Isolation::UserspaceKernel,
            Self::Runc => Isolation::Namespaces,
        }
    }

    /// How much memory it takes beside the programs of a sandbox, which its group has above the limit.
    /// The sandbox has what it was given; what a kernel in user space needs itself is not its own.
    pub(crate) fn overhead(self) -> Mib {
        match self {
            // Some 60 MiB were measured, with what serves its files.
            Self::Runsc => Mib(64),
            Self::Runc => Mib(0),
        }
    }

    /// Whether root in the sandbox is made another user of the machine by a user namespace. A
    /// user-space kernel keeps users of its own and needs none.
    pub(crate) fn has_user_namespace(self) -> bool {
        match self {
            Self::Runsc => false,
            Self::Runc => true,
        }
    }
}

/// A runtime that was found.
#[derive(Debug, Clone)]
pub(crate) struct Runtime {
    pub(crate) kind: Kind,
    pub(crate) info: RuntimeInfo,
    program: PathBuf,
    /// Where it keeps what it knows of its containers.
    state: PathBuf,
    /// For `runsc`: how it intercepts system calls.
    platform: String,
    /// How long it may take.
    patience: Patience,
}

/// What the first process of a sandbox begins with.
#[derive(Debug, Clone, Copy)]
pub(crate) enum From<'a> {
    /// Nothing: it boots, and reads this line from its standard input, which ends with it.
    Boot(&'a str),
    /// The memory in this directory.
    Memory(&'a Path),
}

/// One start.
pub(crate) struct Start<'a> {
    pub(crate) id: &'a str,
    pub(crate) bundle: &'a Path,
    /// The standard output and error of the first process.
    pub(crate) output: std::os::fd::OwnedFd,
    /// Files to write `0` to, to join the sandbox's group.
    pub(crate) groups: Vec<PathBuf>,
    /// What it goes on with.
    pub(crate) from: From<'a>,
    /// How much memory it may have.
    pub(crate) limit: Mib,
}

impl Runtime {
    fn global_arguments(&self, log: &Path) -> Vec<OsString> {
        let mut arguments: Vec<OsString> = vec![
            "--root".into(),
            self.state.clone().into(),
            "--log".into(),
            log.into(),
            "--log-format=json".into(),
        ];
        if self.kind == Kind::Runsc {
            arguments.push(format!("--platform={}", self.platform).into());
            arguments.extend(RUNSC_FLAGS.iter().map(OsString::from));
        }
        arguments
    }

    /// Starts a sandbox and returns the process whose end is the sandbox's. Blocks until the
    /// first process inside has been started.
    ///
    /// # Errors
    /// When the runtime fails; the text is what it said. [`io::ErrorKind::TimedOut`] when it hangs: it
    /// is ended then, and what it has begun is in the sandbox's group.
    pub(crate) fn start(&self, start: Start<'_>) -> io::Result<i32> {
        let log = start.bundle.join("runtime.log");
        let pid_file = start.bundle.join("pid");
        let mut command = Command::new(&self.program);
        command.args(self.global_arguments(&log));
        match start.from {
            From::Boot(line) => command.arg("run").stdin(holding(line)?),
            // What is not needed at once is read while it runs.
            From::Memory(memory) => command
                .args(["restore", "--background", "--image-path"])
                .arg(memory)
                .stdin(Stdio::null()),
        };
        command
            .args(["--detach", "--bundle"])
            .arg(start.bundle)
            .arg("--pid-file")
            .arg(&pid_file)
            .arg(start.id)
            .stdout(start.output.try_clone()?)
            .stderr(start.output);
        join_groups(&mut command, start.groups);
        let limit = match start.from {
            From::Boot(_) => self.patience.start,
            From::Memory(_) => self.patience.start + self.patience.of_memory(start.limit),
        };
        let status = bounded::run(command, limit)?.status;
        if !status.success() {
            let said = last_error(&log);
            return Err(io::Error::other(said.unwrap_or_else(|| {
                "the runtime failed and did not say why".to_owned()
            })));
        }
        let pid = fs::read_to_string(&pid_file)?;
        pid.trim()
            .parse()
            .map_err(|_| io::Error::other(format!("no process id in {pid:?}")))
    }

    /// Holds all processes of a sandbox still, or lets them go on. Blocks until it is so.
    ///
    /// # Errors
    /// When the runtime fails; the text is what it said.
    pub(crate) fn hold(&self, id: &str, bundle: &Path, still: bool) -> io::Result<()> {
        let log = bundle.join(SAVE_LOG);
        let mut command = Command::new(&self.program);
        command
            .args(self.global_arguments(&log))
            .arg(if still { "pause" } else { "resume" })
            .arg(id);
        self.finish(command, &log, self.patience.hold)
    }

    /// Writes the memory of a sandbox that is held still, and may have `limit` of it, into `target`, a
    /// new directory. What its programs had written to files is on its disk then. Blocks.
    ///
    /// # Errors
    /// When the runtime fails or the disk is full; the sandbox is as it was. [`io::ErrorKind::TimedOut`]
    /// when the runtime hangs.
    pub(crate) fn checkpoint(
        &self,
        id: &str,
        bundle: &Path,
        target: &Path,
        limit: Mib,
    ) -> io::Result<()> {
        let log = bundle.join(SAVE_LOG);
        let mut command = Command::new(&self.program);
        command
            .args(self.global_arguments(&log))
            .args(["checkpoint", "--compression=none", "--leave-running"])
            .arg("--image-path")
            .arg(target)
            .arg(id);
        let within = self.patience.save + self.patience.of_memory(limit);
        self.finish(command, &log, within)
    }

    fn finish(&self, mut command: Command, log: &Path, within: Duration) -> io::Result<()> {
        // What an earlier call said is no reason of this one.
        let _ = fs::remove_file(log);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        let ended = bounded::run(command, within)?;
        if ended.status.success() {
            return Ok(());
        }
        let printed = String::from_utf8_lossy(&ended.said);
        let printed: String = printed.trim().chars().take(600).collect();
        let said = match last_error(log) {
            Some(said) => format!("{said}; {printed}"),
            None => printed,
        };
        let full = ["no space left", "disk quota exceeded"];
        let said_lower = said.to_ascii_lowercase();
        if full.iter().any(|word| said_lower.contains(word)) {
            return Err(io::Error::new(io::ErrorKind::StorageFull, said));
        }
        Err(io::Error::other(said))
    }

    /// Forgets what the runtime keeps of a sandbox whose processes have ended. Success when there
    /// is nothing.
    ///
    /// # Errors
    /// When a file stays.
    pub(crate) fn forget(&self, id: &str) -> io::Result<()> {
        let entries = match fs::read_dir(&self.state) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            entries => entries?,
        };
        for entry in entries {
            let path = entry?.path();
            let name = path
                .file_name()
                .and_then(|name| name.to_str())
                .unwrap_or_default();
            if !belongs_to(name, id) {
                continue;
            }
            let gone = if path.is_dir() {
                fs::remove_dir_all(&path)
            } else {
                fs::remove_file(&path)
            };
            match gone {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }
}

/// What a runtime says while it saves a sandbox, beside what it said when it started it.
const SAVE_LOG: &str = "save.log";

/// `overlay2=none`: the root file system is an overlay of ours already. `file-access=exclusive`:
/// nobody else writes to it, so what has been read may be kept. `net-disconnect-ok`: a saved
/// sandbox loses its connections rather than not being saved. `allow-suid`: `sudo`.
const RUNSC_FLAGS: [&str; 6] = [
    "--overlay2=none",
    "--file-access=exclusive",
    "--network=sandbox",
    "--net-disconnect-ok",
    "--allow-suid",
    "--host-settings=ignore",
];

/// A pipe that holds one line and ends. Only the child has it: it has no name, and is gone when it
/// has been read.
fn holding(line: &str) -> io::Result<Stdio> {
    let (reader, mut writer) = io::pipe()?;
    // Far less than a pipe takes without anybody who reads.
    writer.write_all(format!("{line}\n").as_bytes())?;
    Ok(reader.into())
}

/// Whether a file in a runtime's state directory is of the sandbox `id`: its name is the id, or
/// holds it between characters that no id has.
fn belongs_to(name: &str, id: &str) -> bool {
    name.split(|c: char| !c.is_ascii_alphanumeric())
        .any(|part| part == id)
}

/// Lets the child join the groups between its birth and the runtime's first instruction, so that
/// whatever the runtime starts is counted and can be ended.
#[expect(
    unsafe_code,
    reason = "joining a group must happen in the child before it runs"
)]
fn join_groups(command: &mut Command, groups: Vec<PathBuf>) {
    use std::os::unix::ffi::OsStrExt;

    let paths: Vec<Vec<u8>> = groups
        .iter()
        .map(|path| [path.as_os_str().as_bytes(), &[0]].concat())
        .collect();
    let join = move || {
        // What it makes in a sandbox is the sandbox's; this server's umask has no say in it.
        // SAFETY: a system call on a number, of the child alone.
        unsafe { libc::umask(0o022) };
        for path in &paths {
            // SAFETY: the path ends in a zero; the three calls are safe after a fork.
            let written = unsafe {
                let fd = libc::open(path.as_ptr().cast(), libc::O_WRONLY | libc::O_CLOEXEC);
                let written = libc::write(fd, c"0".as_ptr().cast(), 1);
                libc::close(fd);
                written
            };
            if written != 1 {
                return Err(io::Error::last_os_error());
            }
        }
        Ok(())
    };
    // SAFETY: `join` allocates nothing and takes no lock.
    unsafe { command.pre_exec(join) };
}

/// The last error in a runtime's log.
fn last_error(log: &Path) -> Option<String> {
    let text = fs::read_to_string(log).unwrap_or_default();
    let said = text.lines().rev().find_map(|line| {
        let entry: serde_json::Value = serde_json::from_str(line).ok()?;
        let level = entry.get("level")?.as_str()?;
        let message = entry.get("msg")?.as_str()?.to_owned();
        matches!(level, "error" | "fatal" | "panic" | "warning").then_some(message)
    });
    said.map(|said| said.chars().take(600).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_file_belongs_to_the_sandbox_whose_whole_id_it_holds() {
        for name in [
            "ia",
            "ia_sandbox:ia.state",
            "ia_sandbox:ia.lock",
            "runsc-ia.sock",
        ] {
            assert!(belongs_to(name, "ia"), "{name}");
        }
        for name in ["iab", "iab_sandbox:iab.state", "null-netns", "xia"] {
            assert!(!belongs_to(name, "ia"), "{name}");
        }
    }
}
