//! A fake daemon, controlled by tests.
//!
//! The real daemon cannot take its place inside the test process. It acts on the whole system of its
//! sandbox as its first process: it reaps every child, stops all other processes for a snapshot, adds
//! users and writes to `/`. `envd/tests` runs it as a process, and `conformance/` in sandboxes.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::stream::{self, StreamExt, TryStreamExt};
use parking_lot::Mutex;
use shoal_core::BoxFuture;
use shoal_core::auth::Token;

use super::gate::Gate;
use crate::guest::{Guest, InitSpec};
use shoal_core::ports::inside::home::{Applied, Found, HomeChange, HomeEvents, HomeFiles};
use shoal_core::ports::inside::{
    ByteStream, Code, CodeStream, CommandControl, CommandExit, CommandOutput, DirEntry,
    FileContents, FileKind, InsideError, RunningCommand, SandboxClient, SandboxCommand,
    TerminalSize,
};
use shoal_core::session::path::SessionPath;
use shoal_protocol::activity::Activity;
use shoal_protocol::client::{RunEnd, SandboxTarget};

/// A daemon that records all requests and accepts them, unless the test wants otherwise.
#[derive(Debug, Clone, Default)]
pub struct FakeGuest {
    /// Whether it refuses commands and the start of a run.
    pub refuses: bool,
    /// Whether it does not answer requests to freeze.
    pub silent: bool,
    /// Requests to sync its disk pass this gate.
    pub syncs: Gate,
    /// Whether it is frozen.
    pub frozen: Arc<Mutex<bool>>,
    /// The tokens that the callers of `init` knew.
    pub known: Arc<Mutex<Vec<Option<String>>>>,
    /// The token that each `init` set.
    pub given: Arc<Mutex<Vec<Option<String>>>>,
    /// Whether its answers to `init` are lost.
    pub lost: Arc<Mutex<bool>>,
    /// The requests of `init`.
    pub begun: Arc<Mutex<Vec<InitSpec>>>,
    /// The commands that it ran, and in which sandbox.
    pub commands: Arc<Mutex<Vec<(SandboxTarget, SandboxCommand)>>>,
    /// The output of commands that are not in `answers`. By default they succeed silently.
    pub output: Arc<Mutex<Vec<CommandOutput>>>,
    /// The output of commands, by program and arguments joined with spaces.
    pub answers: Arc<Mutex<BTreeMap<String, Vec<CommandOutput>>>>,
    /// The commands that never end, by program and arguments joined with spaces.
    pub endless: Arc<Mutex<BTreeSet<String>>>,
    /// The ports that no program listens on.
    pub closed: Arc<Mutex<BTreeSet<u16>>>,
    /// The input that commands got.
    pub input: Arc<Mutex<Vec<u8>>>,
    /// Its files, by path.
    pub files: Arc<Mutex<BTreeMap<String, Bytes>>>,
    /// The daemon's view of what runs in it.
    pub activity: Arc<Mutex<Activity>>,
    /// Its links, by path. A link leads to the file of the same path, or nowhere.
    pub links: Arc<Mutex<BTreeSet<String>>>,
}

impl Guest for FakeGuest {
    fn init(&self, _: IpAddr, spec: InitSpec) -> BoxFuture<'_, Result<String, InsideError>> {
        let refuses = self.refuses;
        *self.frozen.lock() = false;
        let known = spec.known_token.as_ref();
        let known = known.map(|token| token.reveal().to_owned());
        self.known.lock().push(known);
        let given = spec.access_token.reveal().to_owned();
        self.given.lock().push(Some(given));
        let lost = *self.lost.lock();
        self.begun.lock().push(spec);
        Box::pin(async move {
            if refuses {
                Err(InsideError::Refused("the test refuses it".to_owned()))
            } else if lost {
                Err(InsideError::Unreachable(
                    "the test loses the answer".to_owned(),
                ))
            } else {
                Ok("0".to_owned())
            }
        })
    }

    fn freeze(
        &self,
        _: IpAddr,
        _: Option<Token>,
        sync: bool,
    ) -> BoxFuture<'_, Result<(), InsideError>> {
        let silent = self.silent;
        Box::pin(async move {
            if sync {
                self.syncs.pass().await;
            }
            *self.frozen.lock() = !silent;
            if silent {
                Err(InsideError::Unreachable("the test silences it".to_owned()))
            } else {
                Ok(())
            }
        })
    }

    fn activity(
        &self,
        _: IpAddr,
        _: Option<Token>,
    ) -> BoxFuture<'_, Result<Activity, InsideError>> {
        let (silent, activity) = (self.silent, self.activity.lock().clone());
        Box::pin(async move {
            if silent {
                Err(InsideError::Unreachable("the test silences it".to_owned()))
            } else {
                Ok(activity)
            }
        })
    }

    fn unfreeze(&self, _: IpAddr, _: Option<Token>) -> BoxFuture<'_, Result<(), InsideError>> {
        *self.frozen.lock() = false;
        Box::pin(async { Ok(()) })
    }

    fn probe(&self, _: IpAddr, port: u16) -> BoxFuture<'_, Result<(), InsideError>> {
        let closed = self.closed.lock().contains(&port);
        Box::pin(async move {
            if closed {
                Err(InsideError::Unreachable(
                    "the test closes the port".to_owned(),
                ))
            } else {
                Ok(())
            }
        })
    }

    fn open(&self, target: SandboxTarget, end: Option<RunEnd>) -> Arc<dyn SandboxClient> {
        Arc::new(FakeClient {
            guest: self.clone(),
            target,
            _end: end,
        })
    }
}

/// A client of the fake daemon.
struct FakeClient {
    guest: FakeGuest,
    target: SandboxTarget,
    /// Held while the client is open, as a real one does.
    _end: Option<RunEnd>,
}

impl SandboxClient for FakeClient {
    fn run(&self, command: SandboxCommand) -> BoxFuture<'_, Result<RunningCommand, InsideError>> {
        let words: Vec<&str> = std::iter::once(&command.program)
            .chain(&command.args)
            .map(String::as_str)
            .collect();
        let words = words.join(" ");
        let endless = self.guest.endless.lock().contains(&words);
        let answer = self.guest.answers.lock().get(&words).cloned();
        let mut output = answer.unwrap_or_else(|| self.guest.output.lock().clone());
        if !endless && !matches!(output.last(), Some(CommandOutput::Exit(_))) {
            output.push(CommandOutput::Exit(CommandExit {
                code: 0,
                error: None,
            }));
        }
        self.guest
            .commands
            .lock()
            .push((self.target.clone(), command));
        let control = FakeControl(self.guest.input.clone());
        let refuses = self.guest.refuses;
        Box::pin(async move {
            if refuses {
                return Err(InsideError::Refused("the test refuses it".to_owned()));
            }
            Ok(RunningCommand {
                output: if endless {
                    let said = stream::iter(output.into_iter().map(Ok));
                    said.chain(stream::pending()).boxed()
                } else {
                    stream::iter(output.into_iter().map(Ok)).boxed()
                },
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
            let whole = contents.try_fold(Vec::new(), async |mut whole, piece| {
                whole.extend_from_slice(&piece);
                Ok(whole)
            });
            let whole = whole.await;
            let whole = whole.map_err(|error| InsideError::Unreachable(error.to_string()))?;
            self.guest.files.lock().insert(path, whole.into());
            Ok(())
        })
    }

    fn read_file(&self, path: String) -> BoxFuture<'_, Result<FileContents, InsideError>> {
        let bytes = self.guest.files.lock().get(&path).cloned();
        Box::pin(async move {
            let bytes = bytes.ok_or(InsideError::NotFound(path))?;
            Ok(FileContents {
                size: Some(bytes.len() as u64),
                contents: stream::iter([Ok(bytes)]).boxed(),
            })
        })
    }

    fn list_dir(&self, path: String) -> BoxFuture<'_, Result<Vec<DirEntry>, InsideError>> {
        let directory = format!("{}/", path.trim_end_matches('/'));
        let (files, links) = (
            self.guest.files.lock().clone(),
            self.guest.links.lock().clone(),
        );
        let all = files.keys().chain(&links);
        let below = all.filter_map(|path| path.strip_prefix(&directory));
        let names = below.filter_map(|below| below.split('/').next());
        let names: BTreeSet<&str> = names.collect();
        let entries = names
            .into_iter()
            .filter_map(|name| self.guest.entry(&format!("{directory}{name}")))
            .collect();
        Box::pin(async move { Ok(entries) })
    }

    fn stat(&self, path: String) -> BoxFuture<'_, Result<DirEntry, InsideError>> {
        let found = self.guest.entry(&path);
        Box::pin(async move { found.ok_or(InsideError::NotFound(path)) })
    }

    fn remove(&self, path: String) -> BoxFuture<'_, Result<(), InsideError>> {
        self.guest.files.lock().remove(&path);
        Box::pin(async { Ok(()) })
    }

    fn run_code(&self, _: Code) -> BoxFuture<'_, Result<CodeStream, InsideError>> {
        Box::pin(async { Err(InsideError::Refused("it has no interpreter".to_owned())) })
    }

    fn home(&self, _: &str) -> Arc<dyn HomeFiles> {
        Arc::new(NoHome)
    }
}

/// Of the files of sessions the fake has nothing.
struct NoHome;

fn no_home<T: Send + 'static>() -> BoxFuture<'static, Result<T, InsideError>> {
    Box::pin(async {
        Err(InsideError::Refused(
            "it has no files of sessions".to_owned(),
        ))
    })
}

impl HomeFiles for NoHome {
    fn watch(&self, _: u64) -> BoxFuture<'_, Result<HomeEvents, InsideError>> {
        no_home()
    }

    fn apply(&self, _: Vec<HomeChange>) -> BoxFuture<'_, Result<Vec<Applied>, InsideError>> {
        no_home()
    }

    fn look(&self, _: Vec<SessionPath>) -> BoxFuture<'_, Result<Vec<Found>, InsideError>> {
        no_home()
    }

    fn read(&self, _: SessionPath) -> BoxFuture<'_, Result<FileContents, InsideError>> {
        no_home()
    }

    fn flush(&self) -> BoxFuture<'_, Result<u64, InsideError>> {
        no_home()
    }
}

impl FakeGuest {
    /// The entry at a path: a file, a directory of files, or a link.
    fn entry(&self, path: &str) -> Option<DirEntry> {
        let (files, link) = (self.files.lock(), self.links.lock().contains(path));
        let directory = format!("{}/", path.trim_end_matches('/'));
        let (kind, mode, size) = match files.get(path) {
            Some(bytes) => (FileKind::File, 0o644, bytes.len() as u64),
            None if files.keys().any(|file| file.starts_with(&directory)) => {
                (FileKind::Directory, 0o755, 0)
            }
            None if link => (FileKind::Other, 0o777, 0),
            None => return None,
        };
        Some(DirEntry {
            name: path.rsplit('/').next().unwrap_or_default().to_owned(),
            path: path.to_owned(),
            kind,
            link,
            size,
            mode,
        })
    }
}

/// Records the input of a command.
struct FakeControl(Arc<Mutex<Vec<u8>>>);

impl CommandControl for FakeControl {
    fn input(&self, bytes: Bytes) -> BoxFuture<'_, Result<(), InsideError>> {
        self.0.lock().extend_from_slice(&bytes);
        Box::pin(async { Ok(()) })
    }

    fn close_input(&self) -> BoxFuture<'_, Result<(), InsideError>> {
        Box::pin(async { Ok(()) })
    }

    fn resize(&self, _: TerminalSize) -> BoxFuture<'_, Result<(), InsideError>> {
        Box::pin(async { Ok(()) })
    }

    fn kill(&self) -> BoxFuture<'_, Result<(), InsideError>> {
        Box::pin(async { Ok(()) })
    }
}
