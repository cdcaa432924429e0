//! A machine, a clock and a reader for tests: a real bash on a real terminal, which `script` provides.

use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use crate::memory_home::MemoryHome;
use bytes::Bytes;
use futures_util::{StreamExt, stream};
use parking_lot::Mutex;
use shoal_core::BoxFuture;
use shoal_core::clock::{Clock, Timestamp};
use shoal_core::ports::inside::home::HomeFiles;
use shoal_core::ports::inside::{
    ByteStream, Code, CodeStream, CommandControl, CommandExit, CommandOutput, DirEntry,
    FileContents, InsideError, RunningCommand, SandboxClient, SandboxCommand, TerminalSize,
};
use shoal_core::ports::sessions::{ExecEnd, ExecEvent, ExecStream};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, ChildStdin, Command};
use tokio::sync::mpsc;

/// Runs commands on this machine.
#[derive(Clone, Default)]
pub(crate) struct Local {
    /// Its home directory, in which no command runs.
    pub(crate) home: MemoryHome,
}

struct Process {
    input: tokio::sync::Mutex<Option<ChildStdin>>,
    child: Arc<tokio::sync::Mutex<Child>>,
    process: u32,
}

fn gone() -> InsideError {
    InsideError::NotFound("the process has ended".to_owned())
}

impl CommandControl for Process {
    fn input(&self, bytes: Bytes) -> BoxFuture<'_, Result<(), InsideError>> {
        Box::pin(async move {
            let mut input = self.input.lock().await;
            let written = input.as_mut().ok_or_else(gone)?.write_all(&bytes).await;
            written.map_err(|_| gone())
        })
    }

    fn close_input(&self) -> BoxFuture<'_, Result<(), InsideError>> {
        Box::pin(async { Err(gone()) })
    }

    fn resize(&self, _: TerminalSize) -> BoxFuture<'_, Result<(), InsideError>> {
        Box::pin(async { Err(gone()) })
    }

    fn kill(&self) -> BoxFuture<'_, Result<(), InsideError>> {
        Box::pin(async move {
            let process = self.process.to_string();
            let killed = Command::new("kill")
                .args(["-KILL", &process])
                .output()
                .await;
            killed.map(drop).map_err(|_| gone())
        })
    }
}

impl SandboxClient for Local {
    fn run(&self, command: SandboxCommand) -> BoxFuture<'_, Result<RunningCommand, InsideError>> {
        Box::pin(async move {
            let mut local = if command.terminal.is_some() {
                // Background programs of a shell ignore interrupts, and bash cannot trap signals that it ignored from the start.
                let mut local = Command::new("env");
                local.args(["--default-signal=INT,QUIT", "script"]);
                local.args(["-qefc", "exec bash --norc --noprofile -i", "/dev/null"]);
                local
            } else {
                let mut local = Command::new(&command.program);
                local.args(&command.args);
                local
            };
            let mut child = local
                .envs(&command.env)
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .kill_on_drop(true)
                .spawn()
                .unwrap();
            let mut stdout = child.stdout.take().unwrap();
            let control = Arc::new(Process {
                process: child.id().unwrap(),
                input: tokio::sync::Mutex::new(child.stdin.take()),
                child: Arc::new(tokio::sync::Mutex::new(child)),
            });
            let child = control.child.clone();
            let output = async_stream(async move |sender: mpsc::Sender<_>| {
                let mut piece = vec![0; 4096];
                while let Ok(read) = stdout.read(&mut piece).await
                    && read > 0
                {
                    let bytes = Bytes::copy_from_slice(&piece[..read]);
                    let _ = sender.send(Ok(CommandOutput::Stdout(bytes))).await;
                }
                let status = child.lock().await.wait().await.unwrap();
                let exit = CommandExit {
                    code: status.code().unwrap_or(-1),
                    error: None,
                };
                let _ = sender.send(Ok(CommandOutput::Exit(exit))).await;
            });
            Ok(RunningCommand { output, control })
        })
    }

    fn write_file(&self, _: String, _: ByteStream) -> BoxFuture<'_, Result<(), InsideError>> {
        unreachable!("no window writes files")
    }

    fn read_file(&self, path: String) -> BoxFuture<'_, Result<FileContents, InsideError>> {
        assert_eq!(path, "/etc/os-release", "no window reads files");
        let text = Bytes::from_static(b"PRETTY_NAME=\"Ubuntu 24.04\"\nID=ubuntu\n");
        let contents = stream::iter([Ok(text)]).boxed();
        Box::pin(async {
            Ok(FileContents {
                size: None,
                contents,
            })
        })
    }

    fn list_dir(&self, _: String) -> BoxFuture<'_, Result<Vec<DirEntry>, InsideError>> {
        unreachable!("no window lists files")
    }

    fn stat(&self, _: String) -> BoxFuture<'_, Result<DirEntry, InsideError>> {
        unreachable!("no window looks at files")
    }

    fn remove(&self, _: String) -> BoxFuture<'_, Result<(), InsideError>> {
        unreachable!("no window removes files")
    }

    fn run_code(&self, _: Code) -> BoxFuture<'_, Result<CodeStream, InsideError>> {
        unreachable!("no window runs code")
    }

    fn home(&self, _: &str) -> Arc<dyn HomeFiles> {
        Arc::new(self.home.clone())
    }
}

/// A stream of what `work` sends.
fn async_stream<T, F>(work: impl FnOnce(mpsc::Sender<T>) -> F) -> stream::BoxStream<'static, T>
where
    T: Send + 'static,
    F: Future<Output = ()> + Send + 'static,
{
    let (sender, receiver) = mpsc::channel(4);
    tokio::spawn(work(sender));
    let next = async |mut receiver: mpsc::Receiver<T>| Some((receiver.recv().await?, receiver));
    stream::unfold(receiver, next).boxed()
}

/// A clock that stands until it is set.
#[derive(Default)]
pub(crate) struct Manual {
    now: Mutex<Duration>,
    set: tokio::sync::Notify,
}

impl Manual {
    pub(crate) fn advance(&self, by: Duration) {
        *self.now.lock() += by;
        self.set.notify_waiters();
    }
}

impl Clock for Manual {
    fn now(&self) -> Timestamp {
        Timestamp::from_unix_seconds(1_000_000) + *self.now.lock()
    }

    fn sleep_until(
        &self,
        moment: Timestamp,
    ) -> std::pin::Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(async move {
            loop {
                let set = self.set.notified();
                if self.now() >= moment {
                    return;
                }
                set.await;
            }
        })
    }
}

/// Everything that a command prints, and its end.
pub(crate) async fn all(mut events: ExecStream) -> (String, ExecEnd) {
    let mut printed = Vec::new();
    while let Some(event) = events.next().await {
        match event {
            ExecEvent::Notice(_) => {}
            ExecEvent::Output(bytes) => printed.extend(bytes),
            ExecEvent::Ended(end) => return (String::from_utf8(printed).unwrap(), end),
        }
    }
    panic!("no end after {printed:?}")
}
