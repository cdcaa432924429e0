//! Internal processes of the daemon. They are not listed and have no subscribers.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use shoal_protocol::process::ProcessConfig;
use tokio::sync::oneshot;

use super::InheritedLimits;
use super::command::{self, Command};
use super::exit::Status;
use super::streams::{self, DaemonEnds};
use super::supervise::{StartError, command_line, start_error};
use super::{Children, raw};
use crate::settings::{Defaults, Variables};
use crate::user::User;

/// Start parameters of an internal process.
pub(crate) struct InternalProcess {
    /// Program, arguments, variables and working directory.
    pub(crate) config: ProcessConfig,
    /// User.
    pub(crate) user: User,
    /// All groups of the user.
    pub(crate) groups: Vec<u32>,
    /// The environment of every process.
    pub(crate) environment: Arc<Variables>,
    /// Limits to restore.
    pub(crate) inherited_limits: InheritedLimits,
}

/// A running internal process. It leads its own process group and session.
pub(crate) struct RunningProcess {
    /// Process id.
    pub(crate) pid: i32,
    /// Delivers the exit status.
    pub(crate) exit: oneshot::Receiver<Status>,
    /// Its environment.
    pub(crate) variables: Variables,
    /// Its environment without the global variables.
    pub(crate) inherited: Variables,
    /// Standard output and error. Must be read, or the process blocks.
    pub(crate) output: [OwnedFd; 2],
}

impl InternalProcess {
    /// Starts the process.
    pub(crate) async fn start(
        self,
        children: &Arc<Children>,
    ) -> Result<RunningProcess, StartError> {
        let children = Arc::clone(children);
        // Spawning blocks, so it runs on the blocking pool.
        let started = tokio::task::spawn_blocking(move || self.start_here(&children));
        started.await.unwrap_or(Err(StartError::Ending))
    }

    fn start_here(self, children: &Children) -> Result<RunningProcess, StartError> {
        let name = command_line(&self.config.cmd, &self.config.args);
        let defaults = Defaults {
            user: self.user.name.as_str().into(),
            workdir: None,
        };
        let command = Command::new(&self.config, &self.user, &defaults, &self.environment)?;
        let of = |global: &Variables| command::environment(&self.config, &self.user, global);
        let (variables, inherited) = (of(&self.environment)?, of(&Variables::new())?);
        let stream_error = |error| StartError::Streams(name.clone(), error);
        let (daemon_ends, process_ends) = streams::pipes(false).map_err(stream_error)?;
        let DaemonEnds::Pipes { stdout, stderr, .. } = daemon_ends else {
            return Err(stream_error(std::io::ErrorKind::Unsupported.into()));
        };
        let child = children.spawn(&raw::ExecSpec {
            candidates: &command.candidates,
            arguments: &command.arguments,
            script_arguments: &command.script_arguments,
            environment: &command.environment,
            cwd: &command.cwd,
            stdio: process_ends.stdio(),
            terminal: false,
            uid: self.user.uid,
            gid: self.user.gid,
            groups: &self.groups,
            descriptors: self.inherited_limits.descriptors,
            reset_nice: self.inherited_limits.niced,
        });
        let child =
            child.map_err(|failure| start_error(failure, &name, self.config.cwd.as_deref()))?;
        Ok(RunningProcess {
            pid: child.pid,
            exit: child.exit,
            variables,
            inherited,
            output: [stdout, stderr],
        })
    }
}
