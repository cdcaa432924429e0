//! Commands and files, on the daemon's wire.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use connectrpc::ErrorCode;
use futures_util::stream::{self, StreamExt, TryStreamExt};
use http_body::Frame;
use http_body_util::StreamBody;
use shoal_core::BoxFuture;
use shoal_protocol::client::{
    BodyError, ClientError, Command, Download, EnvdClient, Output, Process, RequestBody, Selector,
    Upload,
};
use shoal_protocol::filesystem::{EntryInfo, FileType};
use shoal_protocol::process::Signal;
use tokio::time::timeout;

use super::{
    GuestBytes, GuestCommand, GuestDoor, GuestEntry, GuestError, GuestFile, GuestProcess, client,
};
use crate::guest::{GuestControl, GuestExit, GuestFileKind, GuestOutput, TerminalSize};

/// How long a daemon may take to begin with something: to start a command, to open a file.
const BEGIN: Duration = Duration::from_secs(30);

fn open(door: &GuestDoor) -> Result<EnvdClient, GuestError> {
    let client = client(door.address, door.token.as_ref())?;
    Ok(match &door.user {
        Some(user) => client.with_user(user),
        None => client,
    })
}

pub(super) async fn run(
    door: GuestDoor,
    command: GuestCommand,
) -> Result<GuestProcess, GuestError> {
    let client = open(&door)?;
    let terminal = command.terminal.is_some();
    let process = begun(client.start(wire(command))).await?;
    let control = EnvdControl {
        process: Selector::Pid(process.pid()),
        client,
        terminal,
    };
    Ok(GuestProcess {
        output: stream::try_unfold(Some(process), listen).boxed(),
        control: Arc::new(control),
    })
}

fn wire(command: GuestCommand) -> Command {
    let mut wire = Command::new(&command.program, command.args);
    for (name, value) in &command.env {
        wire = wire.with_env(name, value);
    }
    if let Some(cwd) = &command.cwd {
        wire = wire.with_cwd(cwd);
    }
    if let Some(TerminalSize { cols, rows }) = command.terminal {
        wire = wire.with_terminal(cols, rows);
    }
    if command.stdin {
        wire = wire.with_stdin();
    }
    match command.timeout {
        Some(time) => wire.with_timeout(time),
        None => wire,
    }
}

/// What a process does next; nothing after its end.
async fn listen(
    process: Option<Process>,
) -> Result<Option<(GuestOutput, Option<Process>)>, GuestError> {
    let Some(mut process) = process else {
        return Ok(None);
    };
    let output = process.next().await.map_err(told)?;
    Ok(Some(match output {
        Some(Output::Stdout(bytes) | Output::Terminal(bytes)) => {
            (GuestOutput::Stdout(bytes), Some(process))
        }
        Some(Output::Stderr(bytes)) => (GuestOutput::Stderr(bytes), Some(process)),
        Some(Output::Exit(exit)) => {
            let ended = GuestExit {
                code: exit.code,
                error: (!exit.exited).then_some(exit.status),
            };
            (GuestOutput::Exit(ended), None)
        }
        None => {
            let broken = "it broke off before the command had ended";
            return Err(GuestError::Unreachable(broken.to_owned()));
        }
    }))
}

/// A process that runs, by its number.
struct EnvdControl {
    client: EnvdClient,
    process: Selector,
    terminal: bool,
}

impl GuestControl for EnvdControl {
    fn input(&self, bytes: Bytes) -> BoxFuture<'_, Result<(), GuestError>> {
        Box::pin(async move {
            let process = self.process.clone();
            let sent = if self.terminal {
                self.client.send_terminal(process, bytes).await
            } else {
                self.client.send_stdin(process, bytes).await
            };
            sent.map_err(told)
        })
    }

    fn close_input(&self) -> BoxFuture<'_, Result<(), GuestError>> {
        Box::pin(async move {
            let closed = self.client.close_stdin(self.process.clone()).await;
            closed.map_err(told)
        })
    }

    fn resize(&self, size: TerminalSize) -> BoxFuture<'_, Result<(), GuestError>> {
        Box::pin(async move {
            let TerminalSize { cols, rows } = size;
            let resized = self.client.resize(self.process.clone(), cols, rows).await;
            resized.map_err(told)
        })
    }

    fn kill(&self) -> BoxFuture<'_, Result<(), GuestError>> {
        Box::pin(async move {
            let (process, signal) = (self.process.clone(), Signal::SIGNAL_SIGKILL);
            self.client.signal(process, signal).await.map_err(told)
        })
    }
}

pub(super) async fn write_file(
    door: GuestDoor,
    path: String,
    contents: GuestBytes,
) -> Result<(), GuestError> {
    let frames = contents.map_ok(Frame::data).map_err(BodyError::from);
    let body = RequestBody::new(StreamBody::new(frames));
    let written = open(&door)?.upload(&Upload::to(&path), body).await;
    written.map(drop).map_err(told)
}

pub(super) async fn read_file(door: GuestDoor, path: String) -> Result<GuestFile, GuestError> {
    let client = open(&door)?;
    let download = begun(client.download(&path)).await?;
    let size = download.size();
    let contents = stream::try_unfold(download, async |mut download: Download| {
        let chunk = download.chunk().await.map_err(io::Error::other)?;
        Ok::<_, io::Error>(chunk.map(|bytes| (bytes, download)))
    });
    Ok(GuestFile {
        size,
        contents: contents.boxed(),
    })
}

pub(super) async fn list_dir(door: GuestDoor, path: String) -> Result<Vec<GuestEntry>, GuestError> {
    let listed = open(&door)?.list_dir(&path, 1).await.map_err(told)?;
    Ok(listed.into_iter().map(entry).collect())
}

pub(super) async fn stat(door: GuestDoor, path: String) -> Result<GuestEntry, GuestError> {
    open(&door)?.stat(&path).await.map(entry).map_err(told)
}

pub(super) async fn remove(door: GuestDoor, path: String) -> Result<(), GuestError> {
    open(&door)?.remove(&path).await.map_err(told)
}

fn entry(info: EntryInfo) -> GuestEntry {
    let kind = match info.r#type.as_known() {
        Some(FileType::FILE_TYPE_FILE) => GuestFileKind::File,
        Some(FileType::FILE_TYPE_DIRECTORY) => GuestFileKind::Directory,
        _ => GuestFileKind::Other,
    };
    GuestEntry {
        name: info.name,
        path: info.path,
        kind,
        link: info.symlink_target.is_some(),
        // What is inside says it; less than nothing is nothing.
        size: u64::try_from(info.size).unwrap_or_default(),
        mode: info.mode,
    }
}

/// The beginning of something, if the daemon begins soon.
async fn begun<T>(asked: impl Future<Output = Result<T, ClientError>>) -> Result<T, GuestError> {
    match timeout(BEGIN, asked).await {
        Ok(begun) => begun.map_err(told),
        Err(_) => Err(GuestError::Unreachable("no answer".to_owned())),
    }
}

/// A failure of the wire in the words of the port.
fn told(error: ClientError) -> GuestError {
    match error {
        ClientError::Rpc(rpc) => {
            let message = rpc.message.unwrap_or_default();
            match rpc.code {
                ErrorCode::NotFound => GuestError::NotFound(message),
                ErrorCode::InvalidArgument | ErrorCode::FailedPrecondition => {
                    GuestError::Invalid(message)
                }
                // The daemon's token is ours, so that a user is meant that it does not know.
                ErrorCode::Unauthenticated => GuestError::UnknownUser(message),
                ErrorCode::PermissionDenied => GuestError::Denied(message),
                ErrorCode::ResourceExhausted => GuestError::TooMuch(message),
                ErrorCode::DeadlineExceeded => GuestError::TimedOut,
                ErrorCode::Unavailable => GuestError::Unreachable(message),
                _ => GuestError::Refused(message),
            }
        }
        ClientError::Refused { status, message } => match status.as_u16() {
            404 => GuestError::NotFound(message),
            400 | 401 | 409 | 422 => GuestError::Invalid(message),
            403 => GuestError::Denied(message),
            507 => GuestError::NoSpace(message),
            _ => GuestError::Refused(message),
        },
        ClientError::InvalidPath(_) => GuestError::Invalid(error.to_string()),
        error => GuestError::Unreachable(chain(&error)),
    }
}

/// An error with what lies beneath it: alone it only says that something broke.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;

    use super::*;

    fn refused(status: u16) -> GuestError {
        told(ClientError::Refused {
            status: status.try_into().unwrap(),
            message: "m".to_owned(),
        })
    }

    #[test]
    fn what_a_caller_did_wrong_is_told_from_what_broke() {
        assert!(matches!(refused(404), GuestError::NotFound(_)));
        assert!(matches!(refused(400), GuestError::Invalid(_)));
        assert!(matches!(refused(403), GuestError::Denied(_)));
        assert!(matches!(refused(507), GuestError::NoSpace(_)));
        assert!(matches!(refused(500), GuestError::Refused(_)));
        let broke = told(ClientError::Interrupted("cable".into()));
        assert!(broke.to_string().ends_with("broke: cable"), "{broke}");
    }

    #[tokio::test]
    async fn contents_become_a_body_and_their_failure_its_failure() {
        let pieces = [Ok(Bytes::from_static(b"a")), Err(io::Error::other("gone"))];
        let contents: GuestBytes = stream::iter(pieces).boxed();
        let frames = contents.map_ok(Frame::data).map_err(BodyError::from);
        let mut body = RequestBody::new(StreamBody::new(frames));
        let first = body.frame().await.unwrap().unwrap();
        assert_eq!(first.into_data().unwrap(), "a");
        assert!(body.frame().await.unwrap().is_err());
    }
}
