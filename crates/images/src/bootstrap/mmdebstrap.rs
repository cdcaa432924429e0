//! Runs `mmdebstrap`.

use std::collections::VecDeque;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

use shoal_core::image::{Progress, ProgressSink};

use super::progress::Follower;
use super::recipe::Recipe;
use super::sources::{SourceFiles, UBUNTU_COMPONENTS};
use super::{Fault, Stage};

/// The program's name in errors.
const TOOL: &str = "mmdebstrap";

/// The search path for the program, its tools, and the programs of the image itself.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// The maximum duration: a thousand packages over a slow line.
const DEADLINE: Duration = Duration::from_secs(30 * 60);

/// How often cancellation is checked.
const LOOK: Duration = Duration::from_millis(200);

/// How long its processes may take to end.
const GRACE: Duration = Duration::from_secs(10);

/// How many lines are kept to explain a failure, and the length of each.
const LINES_KEPT: usize = 12;
const LINE_KEPT: usize = 300;

/// The prefixes of error lines.
const ERRORS: [&str; 4] = [
    "E: ",
    "dpkg: error",
    "dpkg: unrecoverable",
    "Errors were encountered",
];

/// The longest line; longer ones are split.
const LINE_MAX: u64 = 64 * 1024;

/// The context of one build.
pub(super) struct Run<'a> {
    pub(super) stage: &'a Stage,
    pub(super) sink: &'a dyn ProgressSink,
    /// Set when no caller waits any more.
    pub(super) stop: &'a AtomicBool,
}

impl Run<'_> {
    /// Reports the start of a step.
    pub(super) fn report(&self, step: &str) {
        let step = step.to_owned();
        self.sink.report(Progress {
            step,
            done: 0,
            total: None,
        });
    }
}

/// Builds the recipe's system in the empty directory `root`.
///
/// It runs in its own namespaces. Its mounts exist only there, so removing `root` cannot reach the
/// machine through one. All its processes end with the first one, which ends with this thread
/// (`setpriv --pdeathsig`), and this thread waits for it.
pub(super) fn run(
    run: &Run<'_>,
    recipe: &Recipe,
    sources: &SourceFiles,
    root: &Path,
) -> Result<(), Fault> {
    if !rustix::process::geteuid().is_root() {
        return Err(failed(
            "only root can make a file system with other users' files",
        ));
    }
    for tool in ["setpriv", "unshare", TOOL] {
        if !PATH
            .split(':')
            .any(|directory| Path::new(directory).join(tool).is_file())
        {
            return Err(failed(format!("{tool} is not installed")));
        }
    }
    let (output, writer) = io::pipe().map_err(|e| failed(e.to_string()))?;
    let errors = writer.try_clone().map_err(|e| failed(e.to_string()))?;
    let mut command = command(run.stage, recipe, sources, root);
    let spawned = command
        .stdin(Stdio::null())
        .stdout(writer)
        .stderr(errors)
        .spawn();
    // It holds the write end of the pipe; without dropping it, reading would never end.
    drop(command);
    let mut running = Running {
        child: spawned.map_err(|e| failed(e.to_string()))?,
        lines: lines(output),
    };
    let said = follow(run, &running.lines)?;
    let status = running.child.wait().map_err(|e| failed(e.to_string()))?;
    if status.success() {
        return Ok(());
    }
    Err(failed(format!("{status}: {}", said.why())))
}

fn command(stage: &Stage, recipe: &Recipe, sources: &SourceFiles, root: &Path) -> Command {
    let mut command = Command::new("setpriv");
    command
        // Packages must not see this program's environment.
        .env_clear()
        .env("PATH", PATH)
        .env("LC_ALL", "C.UTF-8")
        .env("DEBIAN_FRONTEND", "noninteractive")
        .env("TMPDIR", stage.path())
        .args(["--pdeathsig", "KILL", "--"])
        .args([
            "unshare",
            "--mount",
            "--pid",
            "--fork",
            "--kill-child",
            "--mount-proc",
            "--",
        ])
        .args([
            TOOL,
            "--verbose",
            "--mode=root",
            "--variant=minbase",
            "--format=directory",
        ])
        .arg("--aptopt=Acquire::Retries \"3\"")
        // The partial result of a crash is discarded as a whole, here and in a sandbox.
        .arg("--dpkgopt=force-unsafe-io");
    for pattern in &recipe.exclude {
        command.arg(format!("--dpkgopt=path-exclude={pattern}"));
    }
    for pattern in &recipe.include {
        command.arg(format!("--dpkgopt=path-include={pattern}"));
    }
    for package in &recipe.packages {
        command.arg(format!("--include={package}"));
    }
    if let SourceFiles::Usual { keyring } = sources {
        command
            .arg(format!("--components={}", UBUNTU_COMPONENTS.join(",")))
            .arg(format!("--keyring={}", keyring.display()))
            // A machine that reaches no mirror must report it soon.
            .arg("--aptopt=Acquire::http::Timeout \"20\"");
    }
    command.arg("--").arg(recipe.suite.as_str()).arg(root);
    if let SourceFiles::Listed(sources) = sources {
        command.arg(&sources.list);
    }
    command
}

/// The running program; dropping this kills it.
struct Running {
    child: Child,
    lines: Receiver<String>,
}

impl Drop for Running {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            // It may exit first; then there is nothing to kill.
            let _ = self.child.kill();
            let _ = self.child.wait();
            // Its child processes end after it. When the last one closes the pipe, no process
            // writes into the tree any more.
            while self.lines.recv_timeout(GRACE).is_ok() {}
        }
    }
}

/// Reports progress until the output ends, and keeps its last lines.
fn follow(run: &Run<'_>, lines: &Receiver<String>) -> Result<OutputTail, Fault> {
    let mut follower = Follower::default();
    let mut said = OutputTail::default();
    let deadline = Instant::now() + DEADLINE;
    loop {
        match lines.recv_timeout(LOOK) {
            Ok(line) => {
                if let Some(progress) = follower.line(&line) {
                    run.sink.report(progress);
                }
                said.keep(&line);
            }
            Err(RecvTimeoutError::Disconnected) => return Ok(said),
            Err(RecvTimeoutError::Timeout) => (),
        }
        if run.stop.load(Ordering::Relaxed) {
            return Err(failed("it was given up"));
        }
        if Instant::now() > deadline {
            return Err(failed(format!(
                "it took more than {} s",
                DEADLINE.as_secs()
            )));
        }
    }
}

/// The output's lines, read by a separate thread. The thread ends when the program closes its end
/// of the pipe.
fn lines(output: io::PipeReader) -> Receiver<String> {
    let (to, from) = sync_channel(64);
    std::thread::spawn(move || {
        let mut output = BufReader::new(output);
        loop {
            let mut line = Vec::new();
            match output.by_ref().take(LINE_MAX).read_until(b'\n', &mut line) {
                Ok(0) | Err(_) => return,
                Ok(_) => (),
            }
            let line = String::from_utf8_lossy(&line).trim_end().to_owned();
            if to.send(line).is_err() {
                return;
            }
        }
    });
    from
}

/// The part of the output that may explain a failure.
#[derive(Debug, Default)]
struct OutputTail {
    last: VecDeque<String>,
    errors: VecDeque<String>,
    /// Whether the last line was an error, which may continue on the next line.
    open: bool,
}

impl OutputTail {
    fn keep(&mut self, line: &str) {
        let goes_on = self.open && line.starts_with(' ');
        self.open = ERRORS.iter().any(|begin| line.starts_with(begin));
        let kept: String = line.trim().chars().take(LINE_KEPT).collect();
        if self.open || goes_on {
            push(&mut self.errors, kept.clone());
        }
        push(&mut self.last, kept);
    }

    /// The errors; the end of the output if no line is marked as one.
    fn why(self) -> String {
        let lines = if self.errors.is_empty() {
            self.last
        } else {
            self.errors
        };
        Vec::from(lines).join("; ")
    }
}

fn push(lines: &mut VecDeque<String>, line: String) {
    if lines.len() == LINES_KEPT {
        lines.pop_front();
    }
    lines.push_back(line);
}

fn failed(detail: impl Into<String>) -> Fault {
    Fault::Tool {
        tool: TOOL,
        detail: detail.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_explained_by_its_errors() {
        let why = |output: &str| {
            let mut said = OutputTail::default();
            output.lines().for_each(|line| said.keep(line));
            said.why()
        };
        let output = "\
Unpacking one ...
dpkg: error processing archive one.deb (--unpack):
 unable to create 'x'
Unpacking two ...
 no part of it
E: Sub-process returned an error code";
        assert_eq!(
            why(output),
            "dpkg: error processing archive one.deb (--unpack):; unable to create 'x'; \
             E: Sub-process returned an error code"
        );
        assert_eq!(why("one\ntwo"), "one; two");
        let many = "E: x\n".repeat(1000);
        assert_eq!(why(&many).matches("E: x").count(), LINES_KEPT);
    }
}
