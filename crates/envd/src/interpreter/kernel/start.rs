//! Starting a kernel.

use std::mem::take;
use std::path::{Path, PathBuf};

use rustix::process::Signal;
use shoal_protocol::process::ProcessConfig;

use super::life::Life;
use super::{Kernel, Launcher, START, StartFailure, connect};
use crate::interpreter::connection_file::{self, Ports};
use crate::interpreter::kernelspec::{Interrupt, Kernelspec};
use crate::interpreter::variables::Dialect;
use crate::interpreter::wire::Session;
use crate::process::Own;
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
        let user = user.ok_or_else(|| StartFailure::NoUser(launcher.user.clone()))?;
        let file = connection_file::write(&launcher.directory, ports, session.key(), user)?;
        let own = Own {
            config: command(spec, &file, cwd),
            groups: directory.groups(user),
            user: user.clone(),
            environment: launcher.settings.environment(),
            original: launcher.original,
        };
        let mut running = match own.start(&launcher.children).await {
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
            life: Life::of(&launcher.children, running),
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
    life: Life,
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
        let connecting = launcher.time.timeout(START, connect::to(ports, session));
        let connected = tokio::select! {
            connected = connecting => connected,
            status = self.life.ended() => {
                let _ = std::fs::remove_file(&self.file);
                let said = self.life.said.wait().await;
                return Err(StartFailure::Ended { status, said });
            }
        };
        match connected {
            Some(mut sockets) => {
                for socket in &mut sockets {
                    socket.within(&launcher.output);
                }
                let [shell, heard, control] = sockets;
                Ok(Kernel {
                    life: self.life,
                    heard,
                    shell,
                    control,
                    session: self.session,
                    variables: self.variables,
                    inherited: self.inherited,
                    sandbox: self.sandbox,
                    startup: self.startup,
                    unseeded: Vec::new(),
                    refused: None,
                    count: 0,
                    guarded: None,
                    interrupt: self.interrupt,
                    file: self.file,
                })
            }
            None => {
                self.life.signal(Signal::KILL);
                let _ = std::fs::remove_file(&self.file);
                let said = self.life.said.now();
                Err(StartFailure::Late { said })
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
