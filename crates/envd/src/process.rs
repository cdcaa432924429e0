//! The processes of a sandbox.
//!
//! A process is made by [`children`], prints into a [`feed`], and is watched by one task
//! ([`supervise`]) that ends it at its deadline, whether anybody listens or not, and tells how it
//! ended. [`table`] knows all of them, and for a while those that ended. [`service`] is the rim
//! towards the wire.

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

/// A process that was started through the daemon.
pub(crate) struct Process {
    pid: u32,
    config: ProcessConfig,
    tag: Option<String>,
    input: Input,
    feed: Arc<Feed>,
    /// Whether it was told to end, so that nobody waits for what its children may still print.
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

    /// A line of the daemon's own, where its listeners look for errors.
    fn remark(&self, text: &str) -> feed::Event {
        match self.input {
            Input::Pipe(_) => feed::Event::Stderr(format!("shoal: {text}\n").into()),
            Input::Terminal(..) => feed::Event::Terminal(format!("\r\nshoal: {text}\r\n").into()),
        }
    }

    /// Signals it, and it alone: its children are its own affair, as in E2B.
    ///
    /// What its children print after it ended is no longer waited for. That it has ended already
    /// is no error: only its output is still open then, and ends now.
    fn signal(&self, children: &Children, signal: Signal) -> rustix::io::Result<()> {
        self.hurry.send_replace(true);
        children.signal(self.pid.cast_signed(), signal).map(drop)
    }
}
