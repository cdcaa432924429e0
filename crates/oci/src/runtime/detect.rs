//! Detection of the OCI runtimes on this machine.

use std::env;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use shoal_core::driver::RuntimeInfo;
use shoal_core::resources::MilliCpu;
use shoal_core::template::RuntimeName;

use super::{KEEP_CONNECTIONS, Kind, Runtime, RuntimeTimeouts};

/// The runtimes to look for.
#[derive(Debug, Clone)]
pub struct RuntimeConfig {
    /// The gVisor runtime; a bare name is looked up on the path.
    pub runsc: PathBuf,
    /// The reference runtime; a bare name is looked up on the path.
    pub runc: PathBuf,
    /// The default runtime.
    pub default: Kind,
    /// How gVisor intercepts system calls: `systrap` or `ptrace` (or `kvm`, if available).
    pub platform: String,
    /// The timeouts of calls.
    pub timeouts: RuntimeTimeouts,
}

impl Default for RuntimeConfig {
    fn default() -> Self {
        Self {
            runsc: "runsc".into(),
            runc: "runc".into(),
            default: Kind::Runsc,
            platform: "systrap".to_owned(),
            timeouts: RuntimeTimeouts::default(),
        }
    }
}

impl RuntimeConfig {
    /// The runtime that is tried first, and then the other.
    fn programs(&self) -> [(Kind, &Path); 2] {
        let runsc = (Kind::Runsc, self.runsc.as_path());
        let runc = (Kind::Runc, self.runc.as_path());
        match self.default {
            Kind::Runsc => [runsc, runc],
            Kind::Runc => [runc, runsc],
        }
    }
}

/// A runtime that cannot be used, with the reason.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{} {reason}", kind.program())]
pub struct Missing {
    /// The runtime.
    pub kind: Kind,
    /// The reason.
    pub reason: String,
}

/// Looks for the runtimes, the default first. `run` is the directory of their state.
pub(crate) fn detect(config: &RuntimeConfig, run: &Path) -> (Vec<Runtime>, Vec<Missing>) {
    let mut found = Vec::new();
    let mut missing = Vec::new();
    for (kind, program) in config.programs() {
        match probe(kind, program, config, run) {
            Ok(runtime) => found.push(runtime),
            Err(reason) => missing.push(Missing { kind, reason }),
        }
    }
    (found, missing)
}

fn probe(
    kind: Kind,
    program: &Path,
    config: &RuntimeConfig,
    run: &Path,
) -> Result<Runtime, String> {
    let program = on_path(program).ok_or("is not installed")?;
    let said = output_of(&program, &["--version"])?;
    let first = said.lines().next().unwrap_or_default();
    let version = first.rsplit(' ').next().unwrap_or_default().to_owned();
    let flags = match kind {
        Kind::Runsc => output_of(&program, &["flags"])?,
        Kind::Runc => String::new(),
    };
    if kind == Kind::Runsc && !flags.contains("allow-suid") {
        return Err(format!("{version} is too old: 2025 or later is needed"));
    }
    let name: RuntimeName = kind.program().parse().map_err(|e| format!("{e}"))?;
    let info = RuntimeInfo {
        name,
        version,
        build: build_of(&program).map_err(|e| format!("cannot be read: {e}"))?,
        isolation: kind.isolation(),
        memory_snapshot: kind == Kind::Runsc,
        nested_containers: kind == Kind::Runsc,
        keeps_connections: flags.contains(KEEP_CONNECTIONS.trim_start_matches('-')),
        idle_cpu: idle_cpu(kind, &config.platform),
    };
    Ok(Runtime {
        kind,
        info,
        program,
        state: run.join(kind.program()),
        platform: config.platform.clone(),
        timeouts: config.timeouts,
    })
}

/// The processor time of an idle sandbox: with `systrap`, a timer of gVisor's kernel fires every
/// millisecond.
fn idle_cpu(kind: Kind, platform: &str) -> MilliCpu {
    let ticks = kind == Kind::Runsc && platform == "systrap";
    MilliCpu(if ticks { 40 } else { 0 })
}

/// A digest of the program: different builds may report the same version.
fn build_of(program: &Path) -> io::Result<String> {
    let mut hasher = blake3::Hasher::new();
    hasher.update_reader(fs::File::open(program)?)?;
    Ok(hasher.finalize().to_hex()[..32].to_owned())
}

fn output_of(program: &Path, arguments: &[&str]) -> Result<String, String> {
    let failed = |e: io::Error| format!("cannot run {}: {e}", program.display());
    let output = Command::new(program)
        .args(arguments)
        .output()
        .map_err(failed)?;
    let text = [output.stdout, output.stderr].concat();
    Ok(String::from_utf8_lossy(&text).into_owned())
}

pub(crate) fn on_path(program: &Path) -> Option<PathBuf> {
    if program.components().count() > 1 {
        return program.is_file().then(|| program.to_owned());
    }
    let path = env::var_os("PATH")?;
    env::split_paths(&path)
        .map(|directory| directory.join(program))
        .find(|file| file.is_file())
}
