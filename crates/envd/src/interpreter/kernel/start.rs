//! Starting a kernel.

use std::mem::take;
use std::path::{Path, PathBuf};

use rustix::process::Signal;
use shoal_protocol::process::ProcessConfig;

use super::process::KernelProcess;
use super::{Kernel, Launcher, START_TIMEOUT, StartFailure, connect};
use crate::interpreter::connection_file::{self, Ports};
use crate::interpreter::kernelspec::{Interrupt, Kernelspec};
use crate::interpreter::variables::Dialect;
use crate::interpreter::wire::Session;
use crate::process::InternalProcess;
use crate::settings::Variables;

impl Kernel {
    /// Starts a kernel and waits until it answers.
    pub(in crate::interpreter) async fn start(
        launcher: &Launcher,
        spec: &Kernelspec,
        dialect: Option<Dialect>,
        cwd: &str,
    ) -> Result<Self, StartFailure> {
        let session = Session::new();
        let ports = Ports::free()?;
        let directory = launcher.users.directory();
        let user = directory.user(&launcher.user);
        let user = user.ok_or_else(|| StartFailure::UnknownUser(launcher.user.clone()))?;
        let file = connection_file::write(&launcher.directory, ports, session.key(), user)?;
        let process = InternalProcess {
            config: command(spec, &file, cwd),
            groups: directory.groups(user),
            user: user.clone(),
            environment: launcher.settings.environment(),
            inherited_limits: launcher.inherited_limits,
        };
        let mut running = match process.start(&launcher.children).await {
            Ok(running) => running,
            Err(error) => {
                let _ = std::fs::remove_file(&file);
                return Err(error.into());
            }
        };
        let (mut variables, mut inherited) = (Variables::new(), Variables::new());
        if dialect.is_none_or(Dialect::inherits) {
            (variables, inherited) = (take(&mut running.variables), take(&mut running.inherited));
        }
        let starting = Starting {
            process: KernelProcess::of(&launcher.children, running),
            session,
            interrupt: spec.interrupt,
            variables,
            inherited,
            sandbox: launcher.sandbox(),
            startup: spec.startup.clone(),
            file,
        };
        starting.finish(ports, launcher).await
    }
}

/// A kernel whose process runs.
struct Starting {
    process: KernelProcess,
    session: Session,
    interrupt: Interrupt,
    variables: Variables,
    inherited: Variables,
    sandbox: Option<String>,
    startup: Option<String>,
    file: PathBuf,
}

impl Starting {
    async fn finish(mut self, ports: Ports, launcher: &Launcher) -> Result<Kernel, StartFailure> {
        let session = &mut self.session;
        let connecting = launcher
            .time
            .timeout(START_TIMEOUT, connect::to(ports, session));
        let connected = tokio::select! {
            connected = connecting => connected,
            status = self.process.ended() => {
                let _ = std::fs::remove_file(&self.file);
                let output = self.process.output.after_exit().await;
                return Err(StartFailure::Ended { status, output });
            }
        };
        match connected {
            Some(mut sockets) => {
                for socket in &mut sockets {
                    socket.set_budget(&launcher.output);
                }
                let [shell, iopub, control] = sockets;
                Ok(Kernel {
                    process: self.process,
                    iopub,
                    shell,
                    control,
                    session: self.session,
                    variables: self.variables,
                    inherited: self.inherited,
                    sandbox: self.sandbox,
                    startup: self.startup,
                    unseeded: Vec::new(),
                    last_notice: None,
                    count: 0,
                    oom_guard: None,
                    interrupt: self.interrupt,
                    file: self.file,
                })
            }
            None => {
                self.process.signal(Signal::KILL);
                let _ = std::fs::remove_file(&self.file);
                let output = self.process.output.so_far();
                Err(StartFailure::Timeout { output })
            }
        }
    }
}

fn command(spec: &Kernelspec, file: &Path, cwd: &str) -> ProcessConfig {
    let directory = spec.directory.to_string_lossy();
    let file = file.to_string_lossy();
    let mut words = spec.argv.iter().map(|word| {
        word.replace("{connection_file}", &file)
            .replace("{resource_dir}", &directory)
    });
    ProcessConfig {
        cmd: words.next().unwrap_or_default(),
        args: words.collect(),
        envs: spec.env.clone().into_iter().collect(),
        cwd: Some(cwd.to_owned()),
    }
}
