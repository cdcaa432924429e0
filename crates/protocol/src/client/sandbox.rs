//! The port `SandboxClient` over the daemon's protocol.

use std::error::Error;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use connectrpc::ErrorCode;
use futures_util::stream::{self, StreamExt, TryStreamExt};
use http_body::Frame;
use http_body_util::StreamBody;
use shoal_core::BoxFuture;
use shoal_core::auth::Token;
use shoal_core::detail::Chain;
use shoal_core::ports::inside::home::HomeFiles;
use shoal_core::ports::inside::{
    ByteStream, Code, CodeStream, CommandControl, CommandExit, CommandOutput, DirEntry,
    FileContents, FileKind, InsideError, RunningCommand, SandboxClient, SandboxCommand,
    TerminalSize,
};
use tokio::time::timeout;

use super::home::Home;
use super::{
    BodyError, ClientError, Download, Endpoint, EnvdClient, InterpreterClient, Network, Output,
    Process, RequestBody, Selector, Upload,
};
use crate::filesystem::{EntryInfo, FileType};
use crate::process::Signal;
use crate::{ENVD_PORT, INTERPRETER_PORT};

/// How long the daemon may take to start a command or to open a file.
const BEGIN: Duration = Duration::from_secs(30);

/// A sandbox, and as whom to act in it.
#[derive(Debug, Clone)]
pub struct SandboxTarget {
    /// Its address.
    pub address: IpAddr,
    /// The token that its daemon requires.
    pub token: Option<Token>,
    /// The user to act as; the sandbox's default user when absent.
    pub user: Option<String>,
}

impl SandboxTarget {
    /// Acts as another user.
    #[must_use]
    pub fn with_user(mut self, user: &str) -> Self {
        self.user = Some(user.to_owned());
        self
    }

    /// A client of what listens at a port of the sandbox.
    #[must_use]
    pub fn client(&self, network: Arc<dyn Network>, port: u16) -> EnvdClient {
        let address = SocketAddr::new(self.address, port);
        let endpoint = Endpoint { network, address };
        let mut client = EnvdClient::over(Arc::new(endpoint), &address.to_string());
        if let Some(token) = &self.token {
            client = client.with_sandbox_token(token);
        }
        match &self.user {
            Some(user) => client.with_user(user),
            None => client,
        }
    }
}

/// Runs commands and code in a sandbox, and reads and writes its files.
#[derive(Clone)]
pub struct DaemonClient {
    network: Arc<dyn Network>,
    target: SandboxTarget,
    envd: EnvdClient,
}

impl DaemonClient {
    /// A client of a sandbox that `network` reaches.
    #[must_use]
    pub fn new(network: Arc<dyn Network>, target: SandboxTarget) -> Self {
        Self {
            envd: target.client(network.clone(), ENVD_PORT),
            network,
            target,
        }
    }
}

impl SandboxClient for DaemonClient {
    fn run(&self, command: SandboxCommand) -> BoxFuture<'_, Result<RunningCommand, InsideError>> {
        Box::pin(async move {
            let terminal = command.terminal.is_some();
            let process = begun(self.envd.start(command)).await?;
            let control = ProcessControl {
                process: Selector::Pid(process.pid()),
                client: self.envd.clone(),
                terminal,
            };
            Ok(RunningCommand {
                output: stream::try_unfold(Some(process), next_output).boxed(),
                control: Arc::new(control),
            })
        })
    }

    fn write_file(
        &self,
        path: String,
        contents: ByteStream,
    ) -> BoxFuture<'_, Result<(), InsideError>> {
        Box::pin(async move {
            let frames = contents.map_ok(Frame::data).map_err(BodyError::from);
            let body = RequestBody::new(StreamBody::new(frames));
            self.envd.upload(&Upload::to(&path), body).await?;
            Ok(())
        })
    }

    fn read_file(&self, path: String) -> BoxFuture<'_, Result<FileContents, InsideError>> {
        Box::pin(async move { Ok(contents(begun(self.envd.download(&path)).await?)) })
    }

    fn list_dir(&self, path: String) -> BoxFuture<'_, Result<Vec<DirEntry>, InsideError>> {
        Box::pin(async move {
            let listed = self.envd.list_dir(&path, 1).await?;
            Ok(listed.into_iter().map(entry).collect())
        })
    }

    fn stat(&self, path: String) -> BoxFuture<'_, Result<DirEntry, InsideError>> {
        Box::pin(async move { Ok(entry(self.envd.stat(&path).await?)) })
    }

    fn remove(&self, path: String) -> BoxFuture<'_, Result<(), InsideError>> {
        Box::pin(async move { Ok(self.envd.remove(&path).await?) })
    }

    fn run_code(&self, code: Code) -> BoxFuture<'_, Result<CodeStream, InsideError>> {
        Box::pin(async move {
            let client = self.target.client(self.network.clone(), INTERPRETER_PORT);
            let execution = InterpreterClient::new(client).run_code(&code).await?;
            let events = stream::try_unfold(execution, async |mut execution: super::Execution| {
                let event = execution.next().await?;
                Ok::<_, InsideError>(event.map(|event| (event, execution)))
            });
            Ok(events.boxed())
        })
    }

    fn home(&self, directory: &str) -> Arc<dyn HomeFiles> {
        Arc::new(Home::new(self.envd.clone(), directory))
    }
}

/// The contents of a file that is being downloaded.
pub(super) fn contents(download: Download) -> FileContents {
    let size = download.size();
    let contents = stream::try_unfold(download, async |mut download: Download| {
        let chunk = download.chunk().await.map_err(io::Error::other)?;
        Ok::<_, io::Error>(chunk.map(|bytes| (bytes, download)))
    });
    FileContents {
        size,
        contents: contents.boxed(),
    }
}

/// The next output of a process; none after its end.
async fn next_output(
    process: Option<Process>,
) -> Result<Option<(CommandOutput, Option<Process>)>, InsideError> {
    let Some(mut process) = process else {
        return Ok(None);
    };
    Ok(Some(match process.next().await.map_err(broken_output)? {
        Some(Output::Stdout(bytes) | Output::Terminal(bytes)) => {
            (CommandOutput::Stdout(bytes), Some(process))
        }
        Some(Output::Stderr(bytes)) => (CommandOutput::Stderr(bytes), Some(process)),
        Some(Output::Exit(exit)) => {
            let ended = CommandExit {
                code: exit.code,
                error: (!exit.exited).then_some(exit.status),
            };
            (CommandOutput::Exit(ended), None)
        }
        None => {
            let broken = "its output ended before the command";
            return Err(InsideError::Unreachable(broken.to_owned()));
        }
    }))
}

/// The error of a stream of output. The library reports a broken connection as an internal error.
fn broken_output(error: ClientError) -> InsideError {
    if error.code() == Some(ErrorCode::Internal) {
        let broken = "the sandbox has ended, was paused, or broke the connection";
        return InsideError::Unreachable(broken.to_owned());
    }
    error.into()
}

/// Controls a process by its number.
struct ProcessControl {
    client: EnvdClient,
    process: Selector,
    terminal: bool,
}

impl CommandControl for ProcessControl {
    fn input(&self, bytes: Bytes) -> BoxFuture<'_, Result<(), InsideError>> {
        Box::pin(async move {
            let process = self.process.clone();
            if self.terminal {
                self.client.send_terminal(process, bytes).await?;
            } else {
                self.client.send_stdin(process, bytes).await?;
            }
            Ok(())
        })
    }

    fn close_input(&self) -> BoxFuture<'_, Result<(), InsideError>> {
        Box::pin(async move { Ok(self.client.close_stdin(self.process.clone()).await?) })
    }

    fn resize(&self, size: TerminalSize) -> BoxFuture<'_, Result<(), InsideError>> {
        Box::pin(async move {
            let TerminalSize { cols, rows } = size;
            let process = self.process.clone();
            Ok(self.client.resize(process, cols, rows).await?)
        })
    }

    fn kill(&self) -> BoxFuture<'_, Result<(), InsideError>> {
        Box::pin(async move {
            let (process, signal) = (self.process.clone(), Signal::SIGNAL_SIGKILL);
            Ok(self.client.signal(process, signal).await?)
        })
    }
}

fn entry(info: EntryInfo) -> DirEntry {
    let kind = match info.r#type.as_known() {
        Some(FileType::FILE_TYPE_FILE) => FileKind::File,
        Some(FileType::FILE_TYPE_DIRECTORY) => FileKind::Directory,
        _ => FileKind::Other,
    };
    DirEntry {
        name: info.name,
        path: info.path,
        kind,
        link: info.symlink_target.is_some(),
        // The sandbox reports the size. A negative one is nonsense and counts as 0.
        size: u64::try_from(info.size).unwrap_or_default(),
        mode: info.mode,
    }
}

/// The result of a call that has to begin within [`BEGIN`].
pub(super) async fn begun<T>(
    call: impl Future<Output = Result<T, ClientError>>,
) -> Result<T, InsideError> {
    match timeout(BEGIN, call).await {
        Ok(begun) => Ok(begun?),
        Err(_) => Err(InsideError::Unreachable("no answer".to_owned())),
    }
}

/// The first cause of an error.
fn cause(error: &dyn Error) -> Option<String> {
    let mut cause = error.source()?;
    while let Some(source) = cause.source() {
        cause = source;
    }
    Some(cause.to_string())
}

impl From<ClientError> for InsideError {
    fn from(error: ClientError) -> Self {
        match error {
            ClientError::Rpc(rpc) => {
                let cause = cause(&*rpc);
                let message = rpc.message.unwrap_or_default();
                match rpc.code {
                    ErrorCode::NotFound => Self::NotFound(message),
                    ErrorCode::InvalidArgument | ErrorCode::FailedPrecondition => {
                        Self::Invalid(message)
                    }
                    // The token is the control plane's own, so the user must be unknown.
                    ErrorCode::Unauthenticated => Self::UnknownUser(message),
                    ErrorCode::PermissionDenied => Self::Denied(message),
                    ErrorCode::ResourceExhausted => Self::TooMuch(message),
                    ErrorCode::DeadlineExceeded => Self::TimedOut,
                    ErrorCode::Unavailable => Self::Unreachable(match cause {
                        Some(cause) if !message.contains(&cause) => format!("{message}: {cause}"),
                        _ => message,
                    }),
                    _ => Self::Refused(message),
                }
            }
            ClientError::Refused { status, message } => match status.as_u16() {
                404 => Self::NotFound(message),
                400 | 401 | 409 | 422 => Self::Invalid(message),
                403 => Self::Denied(message),
                507 => Self::NoSpace(message),
                _ => Self::Refused(message),
            },
            ClientError::InvalidPath(_) => Self::Invalid(error.to_string()),
            // The error alone says only that the connection broke.
            error => Self::Unreachable(Chain(&error).to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;

    use super::*;

    fn refused(status: u16) -> InsideError {
        let refused = ClientError::Refused {
            status: status.try_into().unwrap(),
            message: "m".to_owned(),
        };
        refused.into()
    }

    #[test]
    fn a_caller_s_mistake_is_told_from_a_failure() {
        assert!(matches!(refused(404), InsideError::NotFound(_)));
        assert!(matches!(refused(400), InsideError::Invalid(_)));
        assert!(matches!(refused(403), InsideError::Denied(_)));
        assert!(matches!(refused(507), InsideError::NoSpace(_)));
        assert!(matches!(refused(500), InsideError::Refused(_)));
        let broke = InsideError::from(ClientError::Interrupted("cable".into()));
        assert!(broke.to_string().ends_with("broke: cable"), "{broke}");
    }

    #[tokio::test]
    async fn a_failure_of_the_contents_fails_the_body() {
        let pieces = [Ok(Bytes::from_static(b"a")), Err(io::Error::other("gone"))];
        let contents: ByteStream = stream::iter(pieces).boxed();
        let frames = contents.map_ok(Frame::data).map_err(BodyError::from);
        let mut body = RequestBody::new(StreamBody::new(frames));
        let first = body.frame().await.unwrap().unwrap();
        assert_eq!(first.into_data().unwrap(), "a");
        assert!(body.frame().await.unwrap().is_err());
    }
}
