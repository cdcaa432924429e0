//! OCI runtimes, controlled through their command line.

mod age;
mod bounded;
mod detect;
mod timeouts;

use std::ffi::OsString;
use std::fs;
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use shoal_core::driver::{Isolation, RuntimeInfo};
use shoal_core::resources::Mib;

pub(crate) use self::age::weakness;
pub use self::detect::{Missing, RuntimeConfig};
pub(crate) use self::detect::{detect, on_path};
pub use self::timeouts::RuntimeTimeouts;

/// The supported OCI runtimes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// gVisor: a kernel in user space.
    Runsc,
    /// The reference runtime: the machine's kernel with namespaces.
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

    /// Its isolation.
    pub(crate) fn isolation(self) -> Isolation {
        match self {
            Self::Runsc => Isolation::UserspaceKernel,
            Self::Runc => Isolation::Namespaces,
        }
    }

    /// The runtime's own memory, which the cgroup gets in addition to the sandbox's limit. What a
    /// user-space kernel itself needs must not reduce the sandbox's memory.
    pub(crate) fn overhead(self) -> Mib {
        match self {
            // About 60 MiB were measured, including its file server.
            Self::Runsc => Mib(64),
            Self::Runc => Mib(0),
        }
    }

    /// Whether a user namespace maps root in the sandbox to another user of the machine. A
    /// user-space kernel has its own users and needs none.
    pub(crate) fn has_user_namespace(self) -> bool {
        match self {
            Self::Runsc => false,
            Self::Runc => true,
        }
    }
}

/// An installed runtime.
#[derive(Debug, Clone)]
pub(crate) struct Runtime {
    pub(crate) kind: Kind,
    pub(crate) info: RuntimeInfo,
    program: PathBuf,
    /// The directory of its state.
    state: PathBuf,
    /// For `runsc`: how it intercepts system calls.
    platform: String,
    /// The timeouts of its calls.
    timeouts: RuntimeTimeouts,
}

/// The start of a sandbox's first process.
#[derive(Debug, Clone, Copy)]
pub(crate) enum From<'a> {
    /// Boot: it reads this line from its standard input, followed by the end of the input.
    Boot(&'a str),
    /// Restore the memory in this directory.
    Memory(&'a Path),
}

/// The parameters of a start.
pub(crate) struct Start<'a> {
    pub(crate) id: &'a str,
    pub(crate) bundle: &'a Path,
    /// The standard output and error of the first process.
    pub(crate) output: std::os::fd::OwnedFd,
    /// The files to which it writes `0` to join the sandbox's cgroup.
    pub(crate) groups: Vec<PathBuf>,
    /// How it starts.
    pub(crate) from: From<'a>,
    /// Its memory limit.
    pub(crate) limit: Mib,
    /// Whether containers run inside.
    pub(crate) privileged: bool,
    /// Whether saves of its memory keep its connections, if the runtime can.
    pub(crate) keep_connections: bool,
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

    /// Starts a sandbox and returns the process whose end is the sandbox's. Blocks until the first
    /// process inside has started.
    ///
    /// # Errors When the runtime fails; the text is its error output. [`io::ErrorKind::TimedOut`]
    /// when it hangs: it is then killed, and the processes that it started are in the sandbox's
    /// cgroup.
    pub(crate) fn start(&self, start: Start<'_>) -> io::Result<i32> {
        let log = start.bundle.join("runtime.log");
        let pid_file = start.bundle.join("pid");
        let mut command = Command::new(&self.program);
        command.args(self.global_arguments(&log));
        if start.privileged {
            command.args(PRIVILEGED_FLAGS);
        }
        if start.keep_connections && self.info.keeps_connections {
            command.arg(KEEP_CONNECTIONS);
        }
        match start.from {
            From::Boot(line) => command.arg("run").stdin(holding(line)?),
            // Pages that are not needed immediately are loaded while it runs.
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
            From::Boot(_) => self.timeouts.start,
            From::Memory(_) => self.timeouts.start + self.timeouts.of_memory(start.limit),
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

    /// Freezes or thaws all processes of a sandbox. Blocks until it is done. Freezing is tried for
    /// some seconds while a process does not freeze.
    ///
    /// # Errors
    /// When the runtime fails, with its message.
    pub(crate) fn set_frozen(&self, id: &str, bundle: &Path, frozen: bool) -> io::Result<()> {
        let log = bundle.join(SAVE_LOG);
        let end = Instant::now() + FREEZE_PATIENCE;
        loop {
            let mut command = Command::new(&self.program);
            command
                .args(self.global_arguments(&log))
                .arg(if frozen { "pause" } else { "resume" })
                .arg(id);
            match self.finish(command, &log, self.timeouts.freeze) {
                Err(error) if frozen && self.gave_up_freezing(&error) && Instant::now() < end => {
                    std::thread::sleep(FREEZE_INTERVAL);
                }
                done => return done,
            }
        }
    }

    /// Whether a process of the sandbox did not freeze in the time that the runtime takes for it;
    /// the sandbox runs on then. Other failures do not go away by themselves.
    fn gave_up_freezing(&self, error: &io::Error) -> bool {
        self.kind == Kind::Runc
            && error.kind() == io::ErrorKind::Other
            && error.to_string().contains("freeze")
    }

    /// Writes the memory of a frozen sandbox into `target`, a new directory. `limit` is the sandbox's
    /// memory limit. Also writes file caches of the runtime to the disk. With `direct`, pages go to the
    /// disk past the system's cache, which its file system must support. Blocks.
    ///
    /// # Errors
    /// When the runtime fails or the disk is full; the sandbox is unchanged. [`io::ErrorKind::TimedOut`]
    /// when the runtime hangs.
    pub(crate) fn checkpoint(
        &self,
        id: &str,
        bundle: &Path,
        target: &Path,
        limit: Mib,
        direct: bool,
    ) -> io::Result<()> {
        let log = bundle.join(SAVE_LOG);
        let mut command = Command::new(&self.program);
        command
            .args(self.global_arguments(&log))
            .args(["checkpoint", "--compression=none", "--leave-running"])
            .arg(format!("--direct={direct}"))
            .arg("--image-path")
            .arg(target)
            .arg(id);
        let within = self.timeouts.save + self.timeouts.of_memory(limit);
        self.finish(command, &log, within)
    }

    fn finish(&self, mut command: Command, log: &Path, within: Duration) -> io::Result<()> {
        // The output of an earlier call would be misleading.
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
        let printed = shortened(printed.trim());
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

    /// Deletes the runtime's state of a sandbox whose processes have ended. Idempotent.
    ///
    /// # Errors When a file remains.
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

/// The log of a runtime's save, separate from that of its start.
const SAVE_LOG: &str = "save.log";

/// How long freezing is tried again while a process does not freeze. `runc` itself gives up within
/// milliseconds, and a process that waits for a busy disk takes longer.
const FREEZE_PATIENCE: Duration = Duration::from_secs(10);

/// Pause between two attempts to freeze.
const FREEZE_INTERVAL: Duration = Duration::from_millis(50);

/// `overlay2=none`: the root file system is already our overlay. `file-access=exclusive`: no other
/// process writes to it, so files may be cached. `net-disconnect-ok`: saving a sandbox closes its
/// connections instead of failing, without [`KEEP_CONNECTIONS`]. `allow-suid`: `sudo`.
const RUNSC_FLAGS: [&str; 6] = [
    "--overlay2=none",
    "--file-access=exclusive",
    "--network=sandbox",
    "--net-disconnect-ok",
    "--allow-suid",
    "--host-settings=ignore",
];

/// Containers have interfaces of their own, behind an address translation in gVisor's network stack. Setting that up
/// takes a raw socket, and Docker announces addresses with packets that it makes itself.
const PRIVILEGED_FLAGS: [&str; 2] = ["--net-raw", "--allow-packet-socket-write"];

/// A flag of a start: saves of the started sandbox keep its connections, which go on after a restore in the same network.
/// Not every supported version of `runsc` has it.
const KEEP_CONNECTIONS: &str = "--allow-connected-on-save";

/// A pipe that contains one line and ends. It is unnamed, only the child has it, and it is closed
/// after it was read.
fn holding(line: &str) -> io::Result<Stdio> {
    let (reader, mut writer) = io::pipe()?;
    // The line is far shorter than a pipe's buffer, so writing does not block.
    writer.write_all(format!("{line}\n").as_bytes())?;
    Ok(reader.into())
}

/// Whether a file in a runtime's state directory belongs to the sandbox `id`: its name is the id,
/// or contains it between characters that ids do not have.
fn belongs_to(name: &str, id: &str) -> bool {
    name.split(|c: char| !c.is_ascii_alphanumeric())
        .any(|part| part == id)
}

/// Makes the child join the cgroups before it executes the runtime, so that every process that the
/// runtime starts is counted and can be killed.
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
        // Files that it creates in a sandbox must not depend on this server's umask.
        // SAFETY: a system call on a number, which affects only the child.
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
    said.map(|said| shortened(&said))
}

/// The beginning and the end of a long message: what failed, and why. A runtime may print thousands of objects
/// in between.
fn shortened(said: &str) -> String {
    const HALF: usize = 300;
    let count = said.chars().count();
    if count <= 2 * HALF {
        return said.to_owned();
    }
    let begin: String = said.chars().take(HALF).collect();
    let end: String = said.chars().skip(count - HALF).collect();
    format!("{begin} … {end}")
}

#[cfg(test)]
mod tests;
