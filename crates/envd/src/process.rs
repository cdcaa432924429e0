//! Processes of the sandbox.
//!
//! [`children`] spawns a process, its output goes to an [`output_channel`], and one task
//! ([`supervise`]) kills it at its deadline and publishes its end. [`table`] indexes live and
//! recently ended processes. [`service`] maps them to the wire protocol.

use std::sync::Arc;

use rustix::process::Signal;
use shoal_protocol::process::{ProcessConfig, ProcessInfo};
use tokio::sync::watch;

mod children;
mod command;
mod exit;
mod input;
mod internal;
mod limits;
mod output;
mod output_channel;
mod raw;
mod service;
mod streams;
mod supervise;
mod table;

pub(crate) use children::Children;
pub(crate) use exit::Status;
pub(crate) use internal::{InternalProcess, RunningProcess};
pub(crate) use limits::{InheritedLimits, UMASK};
pub(crate) use raw::close_inherited;
pub(crate) use service::ProcessService;
pub(crate) use supervise::StartError;
pub(crate) use table::Processes;

use input::Input;
use output_channel::OutputChannel;

/// A process started through the daemon.
pub(crate) struct Process {
    pid: u32,
    config: ProcessConfig,
    tag: Option<String>,
    input: Input,
    output: Arc<OutputChannel>,
    /// Set when the process was signalled: output of its children is no longer awaited.
    signalled: watch::Sender<bool>,
}

impl Process {
    fn info(&self) -> ProcessInfo {
        ProcessInfo {
            config: Some(self.config.clone()).into(),
            pid: self.pid,
            tag: self.tag.clone(),
        }
    }

    /// A message of the daemon on the stream where clients look for errors.
    fn daemon_message(&self, text: &str) -> output_channel::Event {
        match self.input {
            Input::Pipe(_) => output_channel::Event::Stderr(format!("shoal: {text}\n").into()),
            Input::Terminal(..) => {
                output_channel::Event::Terminal(format!("\r\nshoal: {text}\r\n").into())
            }
        }
    }

    /// Signals this process only, not its children, as in E2B.
    ///
    /// After it exits, output of its children is no longer awaited. If the process has already
    /// exited this is not an error: its still open output then ends.
    fn signal(&self, children: &Children, signal: Signal) -> rustix::io::Result<()> {
        self.signalled.send_replace(true);
        children.signal(self.pid.cast_signed(), signal).map(drop)
    }
}
