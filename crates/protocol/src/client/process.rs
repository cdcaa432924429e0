//! Processes: start them, hear them, feed them, end them.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use connectrpc::StreamMessage;
use connectrpc::client::{CallOptions, ServerStream};
use hyper::body::Incoming;

use super::{ClientError, EnvdClient, unary};
use crate::process::process_event::{Event, data_event::Output as Data};
use crate::process::process_input::Input;
use crate::process::{
    CloseStdinRequest, ConnectRequest, ConnectResponse, ConnectResponseView, ListRequest, PTY,
    ProcessConfig, ProcessEvent, ProcessInfo, ProcessInput, ProcessSelector, SendInputRequest,
    SendSignalRequest, Signal, StartRequest, StartResponse, StartResponseView, UpdateRequest,
    process_selector, pty,
};

/// What to run, and how.
#[derive(Debug, Clone, Default)]
pub struct Command {
    program: String,
    args: Vec<String>,
    env: BTreeMap<String, String>,
    cwd: Option<String>,
    tag: Option<String>,
    stdin: bool,
    terminal: Option<(u16, u16)>,
    timeout: Option<Duration>,
}

impl Command {
    /// Runs a program: a path, or a name that is looked up in the sandbox.
    #[must_use]
    pub fn new(program: &str, args: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self {
            program: program.to_owned(),
            args: args.into_iter().map(Into::into).collect(),
            ..Self::default()
        }
    }

    /// Runs a line in a login shell, as E2B's `commands.run` does.
    #[must_use]
    pub fn shell(line: &str) -> Self {
        Self::new("/bin/bash", ["-l", "-c", line])
    }

    /// Sets an environment variable.
    #[must_use]
    pub fn with_env(mut self, name: &str, value: &str) -> Self {
        self.env.insert(name.to_owned(), value.to_owned());
        self
    }

    /// Starts it in a directory instead of the default one.
    #[must_use]
    pub fn with_cwd(mut self, cwd: &str) -> Self {
        self.cwd = Some(cwd.to_owned());
        self
    }

    /// Gives it a name by which it can be selected.
    #[must_use]
    pub fn with_tag(mut self, tag: &str) -> Self {
        self.tag = Some(tag.to_owned());
        self
    }

    /// Gives it a standard input that can be written. Without, it reads from `/dev/null`.
    #[must_use]
    pub fn with_stdin(mut self) -> Self {
        self.stdin = true;
        self
    }

    /// Gives it a terminal of so many columns and rows instead of three streams.
    #[must_use]
    pub fn with_terminal(mut self, cols: u16, rows: u16) -> Self {
        self.terminal = Some((cols, rows));
        self
    }

    /// Kills it after a time, whether anybody listens or not. Without, it may run for ever.
    #[must_use]
    pub fn with_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    fn into_request(self) -> StartRequest {
        let config = ProcessConfig {
            cmd: self.program,
            args: self.args,
            envs: self.env.into_iter().collect(),
            cwd: self.cwd,
        };
        StartRequest {
            process: Some(config).into(),
            pty: self.terminal.map(|(cols, rows)| size(cols, rows)).into(),
            tag: self.tag,
            stdin: Some(self.stdin),
        }
    }
}

/// Names one process of a sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Selector {
    /// By its process id.
    Pid(u32),
    /// By the name that its starter gave it.
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

/// What a process printed, or how it ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Output {
    /// Bytes on standard output.
    Stdout(Bytes),
    /// Bytes on standard error.
    Stderr(Bytes),
    /// Bytes on its terminal.
    Terminal(Bytes),
    /// It ended. Nothing follows.
    Exit(Exit),
}

/// How a process ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exit {
    /// Its exit code, or -1 when a signal ended it.
    pub code: i32,
    /// Whether it ended by itself.
    pub exited: bool,
    /// The same for people: `exit status 1`, `signal: killed`.
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

/// A process that is listened to. Dropping this stops listening, not the process.
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

    /// Its process id inside the sandbox.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Waits for what it does next. `None` after its end.
    ///
    /// # Errors
    /// When its time is over (code `deadline_exceeded`), or the connection breaks.
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
    /// Starts a process and listens to it.
    ///
    /// # Errors
    /// When it cannot be started, or the daemon cannot be reached.
    pub async fn start(&self, command: Command) -> Result<Process, ClientError> {
        let mut options = CallOptions::default();
        if let Some(timeout) = command.timeout {
            options = options.with_timeout(timeout);
        }
        let stream = self
            .process_rpc()
            .start_with_options(command.into_request(), options)
            .await?;
        Process::begin(Events::Started(stream)).await
    }

    /// Listens to a process that runs already, from now on.
    ///
    /// # Errors
    /// When it does not run, or the daemon cannot be reached.
    pub async fn connect(&self, process: Selector) -> Result<Process, ClientError> {
        let request = ConnectRequest {
            process: Some(process.into_message()).into(),
        };
        let stream = self.process_rpc().connect(request).await?;
        Process::begin(Events::Connected(stream)).await
    }

    /// The processes that were started through the daemon and still run.
    ///
    /// # Errors
    /// When the daemon cannot be reached.
    pub async fn list_processes(&self) -> Result<Vec<ProcessInfo>, ClientError> {
        let request = ListRequest::default();
        let answer = self
            .process_rpc()
            .list_with_options(request, unary())
            .await?;
        Ok(answer.into_owned().processes)
    }

    /// Writes to a process's standard input. Waits until the process has room for it.
    ///
    /// # Errors
    /// When it does not run or has no such input.
    pub async fn send_stdin(&self, process: Selector, bytes: Bytes) -> Result<(), ClientError> {
        self.send_input(process, Input::Stdin(bytes)).await
    }

    /// Writes to a process's terminal. Waits until the process has room for it.
    ///
    /// # Errors
    /// When it does not run or has no terminal.
    pub async fn send_terminal(&self, process: Selector, bytes: Bytes) -> Result<(), ClientError> {
        self.send_input(process, Input::Pty(bytes)).await
    }

    async fn send_input(&self, process: Selector, input: Input) -> Result<(), ClientError> {
        let request = SendInputRequest {
            process: Some(process.into_message()).into(),
            input: Some(ProcessInput { input: Some(input) }).into(),
        };
        // A process reads when it likes: there is no time that would be too long, and bytes whose
        // call was given up may have been read in part.
        self.process_rpc()
            .send_input_with_options(request, CallOptions::default())
            .await?;
        Ok(())
    }

    /// Ends a process's standard input.
    ///
    /// # Errors
    /// When it does not run or has a terminal.
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
    /// When it does not run.
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

    /// Changes the size of a process's terminal.
    ///
    /// # Errors
    /// When it does not run or has no terminal.
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
