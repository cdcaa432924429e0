//! Processes: start, stream, input, signals.

use bytes::Bytes;
use connectrpc::StreamMessage;
use connectrpc::client::{CallOptions, ServerStream};
use hyper::body::Incoming;
pub use shoal_core::ports::inside::SandboxCommand as Command;

use super::{ClientError, EnvdClient, unary};
use crate::process::process_event::{Event, data_event::Output as Data};
use crate::process::process_input::Input;
use crate::process::{
    CloseStdinRequest, ConnectRequest, ConnectResponse, ConnectResponseView, ListRequest, PTY,
    ProcessConfig, ProcessEvent, ProcessInfo, ProcessInput, ProcessSelector, SendInputRequest,
    SendSignalRequest, Signal, StartRequest, StartResponse, StartResponseView, UpdateRequest,
    process_selector, pty,
};

/// The request that starts a command.
fn request_of(command: Command) -> StartRequest {
    let config = ProcessConfig {
        cmd: command.program,
        args: command.args,
        envs: command.env.into_iter().collect(),
        cwd: command.cwd,
    };
    let terminal = command.terminal;
    StartRequest {
        process: Some(config).into(),
        pty: terminal.map(|at| size(at.cols, at.rows)).into(),
        tag: command.tag,
        stdin: Some(command.stdin),
    }
}

/// Selects a process of the sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Selector {
    /// By process id.
    Pid(u32),
    /// By tag.
    Tag(String),
}

impl Selector {
    fn into_message(self) -> ProcessSelector {
        let selector = match self {
            Self::Pid(pid) => process_selector::Selector::Pid(pid),
            Self::Tag(tag) => process_selector::Selector::Tag(tag),
        };
        ProcessSelector {
            selector: Some(selector),
        }
    }
}

/// Output or end of a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Output {
    /// Standard output.
    Stdout(Bytes),
    /// Standard error.
    Stderr(Bytes),
    /// Terminal output.
    Terminal(Bytes),
    /// The end. Always last.
    Exit(Exit),
}

/// How a process ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exit {
    /// Exit code, or -1 if killed by a signal.
    pub code: i32,
    /// Whether it exited rather than being killed.
    pub exited: bool,
    /// Human-readable status: `exit status 1`, `signal: killed`.
    pub status: String,
}

enum Events {
    Started(ServerStream<Incoming, StartResponseView<'static>>),
    Connected(ServerStream<Incoming, ConnectResponseView<'static>>),
}

impl Events {
    async fn next(&mut self) -> Result<Option<ProcessEvent>, ClientError> {
        match self {
            Self::Started(stream) => {
                let message: Option<StreamMessage<StartResponse>> = stream.message().await?;
                Ok(message
                    .map(|message| message.to_owned_message().event.take())
                    .map(Option::unwrap_or_default))
            }
            Self::Connected(stream) => {
                let message: Option<StreamMessage<ConnectResponse>> = stream.message().await?;
                Ok(message
                    .map(|message| message.to_owned_message().event.take())
                    .map(Option::unwrap_or_default))
            }
        }
    }
}

/// A subscription to a process. Dropping it does not end the process.
pub struct Process {
    pid: u32,
    events: Events,
}

impl Process {
    async fn begin(mut events: Events) -> Result<Self, ClientError> {
        match events.next().await?.and_then(|event| event.event) {
            Some(Event::Start(start)) => Ok(Self {
                pid: start.pid,
                events,
            }),
            _ => Err(ClientError::malformed("a stream of events without a start")),
        }
    }

    /// Process id inside the sandbox.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// The next output. `None` after the end.
    ///
    /// # Errors
    /// At the timeout (code `deadline_exceeded`), or if the connection breaks.
    pub async fn next(&mut self) -> Result<Option<Output>, ClientError> {
        while let Some(event) = self.events.next().await? {
            let output = match event.event {
                Some(Event::Data(data)) => match data.output {
                    Some(Data::Stdout(bytes)) => Output::Stdout(bytes),
                    Some(Data::Stderr(bytes)) => Output::Stderr(bytes),
                    Some(Data::Pty(bytes)) => Output::Terminal(bytes),
                    None => continue,
                },
                Some(Event::End(end)) => Output::Exit(Exit {
                    code: end.exit_code,
                    exited: end.exited,
                    status: end.status,
                }),
                Some(Event::Start(_) | Event::Keepalive(_)) | None => continue,
            };
            return Ok(Some(output));
        }
        Ok(None)
    }
}

impl EnvdClient {
    /// Starts a process and subscribes to it.
    ///
    /// # Errors
    /// If it cannot be started or the daemon is unreachable.
    pub async fn start(&self, command: Command) -> Result<Process, ClientError> {
        let mut options = CallOptions::default();
        if let Some(timeout) = command.timeout {
            options = options.with_timeout(timeout);
        }
        let stream = self
            .process_rpc()
            .start_with_options(request_of(command), options)
            .await?;
        Process::begin(Events::Started(stream)).await
    }

    /// Subscribes to a running process.
    ///
    /// # Errors
    /// If it is not running or the daemon is unreachable.
    pub async fn connect(&self, process: Selector) -> Result<Process, ClientError> {
        let request = ConnectRequest {
            process: Some(process.into_message()).into(),
        };
        let stream = self.process_rpc().connect(request).await?;
        Process::begin(Events::Connected(stream)).await
    }

    /// Lists running processes that were started through the daemon.
    ///
    /// # Errors
    /// If the daemon is unreachable.
    pub async fn list_processes(&self) -> Result<Vec<ProcessInfo>, ClientError> {
        let request = ListRequest::default();
        let answer = self
            .process_rpc()
            .list_with_options(request, unary())
            .await?;
        Ok(answer.into_owned().processes)
    }

    /// Writes to a process's standard input. Waits while the process does not read.
    ///
    /// # Errors
    /// If it is not running or has no open standard input.
    pub async fn send_stdin(&self, process: Selector, bytes: Bytes) -> Result<(), ClientError> {
        self.send_input(process, Input::Stdin(bytes)).await
    }

    /// Writes to a process's terminal. Waits while the process does not read.
    ///
    /// # Errors
    /// If it is not running or has no terminal.
    pub async fn send_terminal(&self, process: Selector, bytes: Bytes) -> Result<(), ClientError> {
        self.send_input(process, Input::Pty(bytes)).await
    }

    async fn send_input(&self, process: Selector, input: Input) -> Result<(), ClientError> {
        let request = SendInputRequest {
            process: Some(process.into_message()).into(),
            input: Some(ProcessInput { input: Some(input) }).into(),
        };
        // No timeout: the process may read at any time, and a cancelled call may have written a
        // part.
        self.process_rpc()
            .send_input_with_options(request, CallOptions::default())
            .await?;
        Ok(())
    }

    /// Closes a process's standard input.
    ///
    /// # Errors
    /// If it is not running or has a terminal.
    pub async fn close_stdin(&self, process: Selector) -> Result<(), ClientError> {
        let request = CloseStdinRequest {
            process: Some(process.into_message()).into(),
        };
        self.process_rpc()
            .close_stdin_with_options(request, unary())
            .await?;
        Ok(())
    }

    /// Signals a process.
    ///
    /// # Errors
    /// If it is not running.
    pub async fn signal(&self, process: Selector, signal: Signal) -> Result<(), ClientError> {
        let request = SendSignalRequest {
            process: Some(process.into_message()).into(),
            signal: signal.into(),
        };
        self.process_rpc()
            .send_signal_with_options(request, unary())
            .await?;
        Ok(())
    }

    /// Resizes a process's terminal.
    ///
    /// # Errors
    /// If it is not running or has no terminal.
    pub async fn resize(&self, process: Selector, cols: u16, rows: u16) -> Result<(), ClientError> {
        let request = UpdateRequest {
            process: Some(process.into_message()).into(),
            pty: Some(size(cols, rows)).into(),
        };
        self.process_rpc()
            .update_with_options(request, unary())
            .await?;
        Ok(())
    }
}

fn size(cols: u16, rows: u16) -> PTY {
    let size = pty::Size {
        cols: cols.into(),
        rows: rows.into(),
    };
    PTY {
        size: Some(size).into(),
    }
}
