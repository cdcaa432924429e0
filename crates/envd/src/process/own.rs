//! Processes that the daemon starts for itself: they are in no list, and print for nobody.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use shoal_protocol::process::ProcessConfig;
use tokio::sync::oneshot;

use super::command::{self, Command};
use super::exit::Status;
use super::streams::{self, Ours};
use super::supervise::{StartError, explain, shown};
use super::{Children, raw};
use crate::hardening::Original;
use crate::settings::{Defaults, Variables};
use crate::user::User;

/// What such a process is started with.
pub(crate) struct Own {
    /// Its program, arguments, variables and place.
    pub(crate) config: ProcessConfig,
    /// Who it is.
    pub(crate) user: User,
    /// All groups it is in.
    pub(crate) groups: Vec<u32>,
    /// The environment of every process.
    pub(crate) environment: Arc<Variables>,
    /// What the daemon changed for itself.
    pub(crate) original: Original,
}

/// A process of the daemon's own. It leads a group and a session of its own.
pub(crate) struct Running {
    /// Its process id.
    pub(crate) pid: i32,
    /// How it ends.
    pub(crate) exit: oneshot::Receiver<Status>,
    /// Its environment.
    pub(crate) variables: Variables,
    /// What that would be if there were none of every process.
    pub(crate) inherited: Variables,
    /// What it prints, on both streams. To be read, or it waits.
    pub(crate) output: [OwnedFd; 2],
}

impl Own {
    /// Starts it.
    pub(crate) async fn start(self, children: &Arc<Children>) -> Result<Running, StartError> {
        let children = Arc::clone(children);
        // On a thread for that, as for any other process.
        let started = tokio::task::spawn_blocking(move || self.start_here(&children));
        started.await.unwrap_or(Err(StartError::Ending))
    }

    fn start_here(self, children: &Children) -> Result<Running, StartError> {
        let name = shown(&self.config.cmd, &self.config.args);
        let defaults = Defaults {
            user: self.user.name.as_str().into(),
            workdir: None,
        };
        let command = Command::new(&self.config, &self.user, &defaults, &self.environment)?;
        let of = |global: &Variables| command::environment(&self.config, &self.user, global);
        let (variables, inherited) = (of(&self.environment)?, of(&Variables::new())?);
        let stream_error = |error| StartError::Streams(name.clone(), error);
        let (ours, theirs) = streams::pipes(false).map_err(stream_error)?;
        let Ours::Pipes { stdout, stderr, .. } = ours else {
            return Err(stream_error(std::io::ErrorKind::Unsupported.into()));
        };
        let child = children.spawn(&raw::Image {
            candidates: &command.candidates,
            arguments: &command.arguments,
            script_arguments: &command.script_arguments,
            environment: &command.environment,
            cwd: &command.cwd,
            stdio: theirs.stdio(),
            terminal: false,
            uid: self.user.uid,
            gid: self.user.gid,
            groups: &self.groups,
            descriptors: self.original.descriptors,
            reset_nice: self.original.niced,
        });
        let child = child.map_err(|failure| explain(failure, &name, self.config.cwd.as_deref()))?;
        Ok(Running {
            pid: child.pid,
            exit: child.exit,
            variables,
            inherited,
            output: [stdout, stderr],
        })
    }
}
