//! Ends sandboxes whose containers runsc cannot signal: before all containers of a checkpoint are restored, and before a
//! container has started. Without this, such pods and their resources would stay on the node.

use std::ffi::OsString;
use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use rustix::process::{Pid, PidfdFlags, Signal, getppid, pidfd_open, pidfd_send_signal};
use serde::Deserialize;
use shoal_checkpoint::Records;

use crate::call::Call;
use crate::create::PAUSE;
use crate::failure::Failure;
use crate::{begin, runtime};

/// Delivers SIGKILL to a container. If runsc cannot, kills the process of the sandbox.
pub(crate) fn kill(call: &Call, words: &[OsString], state: &Path) -> Result<ExitCode, Failure> {
    let told = runtime::command()?.args(words).output();
    let told = told.map_err(|error| Failure::io("runsc", error))?;
    if told.status.success() {
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(sandbox) = sandbox_to_end(state, &call.id)
        && let Some(seen) = state_of(call, &sandbox)
        && seen.end()
    {
        if seen.status == "created" || awaits_its_start(state, &sandbox) {
            end_shim();
        }
        return Ok(ExitCode::SUCCESS);
    }
    // The shim reads why in the log.
    let _ = std::io::stderr().write_all(&told.stderr);
    Ok(ExitCode::from(128))
}

/// Whether this is the sandbox container of a restored pod, and its start has not succeeded yet.
pub(crate) fn awaits_its_start(state: &Path, id: &str) -> bool {
    let records = Records::at(state);
    let container = records.container(id);
    container.is_ok_and(|container| container.name.is_none() && container.restores)
        && !records.was_restored(id, PAUSE).unwrap_or(true)
}

/// Prints the state of a sandbox container that has not started. If its sandbox has exited, the shim is killed: it would
/// not report the exit.
pub(crate) fn tell_state(words: &[OsString]) -> Result<ExitCode, Failure> {
    let told = runtime::command()?.args(words).output();
    let told = told.map_err(|error| Failure::io("runsc", error))?;
    let state = serde_json::from_slice::<State>(&told.stdout);
    if state.is_ok_and(|state| state.status == "stopped") {
        end_shim();
    }
    // Its reader may have ended.
    let _ = std::io::stdout().write_all(&told.stdout);
    let _ = std::io::stderr().write_all(&told.stderr);
    Ok(ExitCode::from(if told.status.success() { 0 } else { 128 }))
}

/// The sandbox to kill in place of this container: if it is the sandbox container, or the restore of the pod is incomplete.
fn sandbox_to_end(state: &Path, id: &str) -> Option<String> {
    let records = Records::at(state);
    let container = records.container(id).ok()?;
    let is_own = container.name.is_none();
    let waits = || container.restores && !is_complete(&records, &container.sandbox);
    (is_own || waits()).then_some(container.sandbox)
}

/// Whether all containers of the checkpoint are restored in a sandbox.
fn is_complete(records: &Records, sandbox: &str) -> bool {
    let Ok(record) = records.sandbox(sandbox) else {
        return false;
    };
    let containers = record.restore.map(|restore| restore.containers);
    let names = containers.unwrap_or_default();
    names
        .iter()
        .map(|container| container.name.as_str())
        .chain([PAUSE])
        .all(|name| records.was_restored(sandbox, name).unwrap_or(false))
}

/// What `runsc state` says of a sandbox.
#[derive(Deserialize)]
struct State {
    pid: i32,
    status: String,
}

impl State {
    /// Kills the process of the sandbox, and with it all containers. False if there was none.
    fn end(&self) -> bool {
        Pid::from_raw(self.pid).is_some_and(|pid| end(pid, b"runsc-sandbox\0"))
    }
}

fn state_of(call: &Call, sandbox: &str) -> Option<State> {
    let words = ["state", sandbox].map(OsString::from);
    let told = begin::runsc(call, &words).ok()?.output().ok()?;
    serde_json::from_slice(&told.stdout).ok()
}

/// Kills a sandbox if it runs.
pub(crate) fn end_sandbox(call: &Call, sandbox: &str) {
    if let Some(state) = state_of(call, sandbox) {
        state.end();
    }
}

/// Kills the shim, the parent process, so that containerd cleans up the pod. The shim reports no exit of a container that
/// never started, and containerd would wait for it. With `grouping`, each pod has its own shim.
pub(crate) fn end_shim() {
    if let Some(shim) = getppid() {
        end(shim, b"containerd-shim-runsc-v1\0");
    }
}

/// Kills a process if its program has this name, in any directory. False if there was none.
fn end(pid: Pid, program: &[u8]) -> bool {
    // The descriptor still means the same process when its number is reused.
    let Ok(process) = pidfd_open(pid, PidfdFlags::empty()) else {
        return false;
    };
    let line = fs::read(format!("/proc/{}/cmdline", pid.as_raw_nonzero())).unwrap_or_default();
    let end = line
        .iter()
        .position(|byte| *byte == 0)
        .map_or(0, |at| at + 1);
    let path = line.get(..end).unwrap_or_default();
    let start = path
        .iter()
        .rposition(|byte| *byte == b'/')
        .map_or(0, |at| at + 1);
    path.get(start..) == Some(program) && pidfd_send_signal(&process, Signal::KILL).is_ok()
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::process::Stdio;

    use shoal_checkpoint::{ContainerRecord, Contents, Restore, SandboxRecord, SavedContainer};

    use super::*;

    fn record(restore: Option<&[&str]>) -> SandboxRecord {
        let saved = |name: &&str| SavedContainer {
            name: (*name).to_owned(),
            image: String::new(),
            named: String::new(),
            layers: Vec::new(),
        };
        SandboxRecord {
            namespace: "ns".to_owned(),
            pod: "pod".to_owned(),
            runtime: String::new(),
            volumes: Default::default(),
            daemon_volume: None,
            restore: restore.map(|names| Restore {
                id: String::new(),
                directory: "/".into(),
                contents: Contents::Memory,
                containers: names.iter().map(saved).collect(),
            }),
        }
    }

    fn write(records: &Records, id: &str, name: Option<&str>, restores: bool) {
        let container = ContainerRecord {
            sandbox: "sandbox1".to_owned(),
            name: name.map(str::to_owned),
            layers: Vec::new(),
            restores,
        };
        records.write_container(id, &container).unwrap();
    }

    #[test]
    fn a_sandbox_ends_for_its_own_container_or_while_its_restore_waits() {
        let directory = tempfile::tempdir().unwrap();
        let records = Records::at(directory.path());
        let ends = |id| sandbox_to_end(directory.path(), id).is_some();
        let saved: &[&str] = &["main", "side"];
        records
            .write_sandbox("sandbox1", &record(Some(saved)))
            .unwrap();
        write(&records, "sandbox1", None, true);
        write(&records, "c1", Some("main"), true);
        write(&records, "c2", Some("main"), false);
        records.mark_restored("sandbox1", PAUSE).unwrap();
        records.mark_restored("sandbox1", "main").unwrap();
        assert!(ends("sandbox1") && ends("c1"), "the side has not come yet");
        assert!(!ends("c2"), "a container that started afresh ends alone");
        assert!(!ends("unknown"));
        records.mark_restored("sandbox1", "side").unwrap();
        assert!(!ends("c1"), "all run");
        assert!(ends("sandbox1"));
    }

    #[test]
    fn a_pod_awaits_its_start_until_it_is_restored() {
        let directory = tempfile::tempdir().unwrap();
        let records = Records::at(directory.path());
        let awaits = |id| awaits_its_start(directory.path(), id);
        write(&records, "sandbox1", None, false);
        assert!(!awaits("sandbox1"), "it is not restored");
        write(&records, "sandbox1", None, true);
        write(&records, "c1", Some("main"), true);
        assert!(awaits("sandbox1") && !awaits("c1") && !awaits("unknown"));
        records.mark_restored("sandbox1", PAUSE).unwrap();
        assert!(!awaits("sandbox1"));
    }

    #[test]
    fn a_process_is_ended_by_its_number_and_its_program() {
        let mut echoes = std::process::Command::new("cat")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        // Its answer shows that it runs.
        echoes.stdin.as_mut().unwrap().write_all(b"x").unwrap();
        let answer = echoes.stdout.as_mut().unwrap().read(&mut [0]);
        assert_eq!(answer.unwrap(), 1);
        let pid = Pid::from_child(&echoes);
        assert!(!end(pid, b"runsc-sandbox\0") && !end(pid, b"ca\0"));
        assert!(end(pid, b"cat\0"));
        assert!(!echoes.wait().unwrap().success());
    }

    #[test]
    fn containers_of_a_pod_that_is_not_restored_end_alone() {
        let directory = tempfile::tempdir().unwrap();
        let records = Records::at(directory.path());
        records.write_sandbox("sandbox1", &record(None)).unwrap();
        write(&records, "c1", Some("main"), false);
        assert_eq!(sandbox_to_end(directory.path(), "c1"), None);
    }
}
