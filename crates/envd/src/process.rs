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
mod feed;
mod input;
mod output;
mod own;
pub(crate) mod raw;
mod service;
mod streams;
mod supervise;
mod table;

pub(crate) use children::Children;
pub(crate) use exit::Status;
pub(crate) use own::{Own, Running};
pub(crate) use service::ProcessService;
pub(crate) use supervise::StartError;
pub(crate) use table::Processes;

use feed::Feed;
use input::Input;

/// A process started through the daemon.
pub(crate) struct Process {
    pid: u32,
    config: ProcessConfig,
    tag: Option<String>,
    input: Input,
    feed: Arc<Feed>,
    /// Set when the process was signalled: output of its children is no longer awaited.
    hurry: watch::Sender<bool>,
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
    fn remark(&self, text: &str) -> feed::Event {
        match self.input {
            Input::Pipe(_) => feed::Event::Stderr(format!("shoal: {text}\n").into()),
            Input::Terminal(..) => feed::Event::Terminal(format!("\r\nshoal: {text}\r\n").into()),
        }
    }

    /// Signals this process only, not its children, as in E2B.
    ///
    /// After it exits, output of its children is no longer awaited. If the process has already
    /// exited this is not an error: its still open output then ends.
    fn signal(&self, children: &Children, signal: Signal) -> rustix::io::Result<()> {
        self.hurry.send_replace(true);
        children.signal(self.pid.cast_signed(), signal).map(drop)
    }
}
