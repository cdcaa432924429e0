//! The sandbox in which the steps of a build run.

use std::path::Path;
use std::sync::Arc;

use bytes::BytesMut;
use futures_util::StreamExt;
use futures_util::stream::unfold;
use shoal_core::auth::{Principal, SandboxPermit, Token};
use shoal_core::build::{BuildFailure, LogLevel, Part};
use shoal_core::detail::Chain;
use shoal_core::id::SnapshotId;
use shoal_core::sandbox::{SandboxRecord, SandboxSpec, SnapshotOrigin};
use shoal_core::snapshot::Contents;
use shoal_core::state::KillReason;
use tokio::fs::File;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::Builds;
use crate::build_records::Build;
use crate::random;
use crate::sandboxes::Command;
use shoal_core::ports::inside::{
    ByteStream, CommandOutput, DirEntry, InsideError, RunningCommand, SandboxClient, SandboxCommand,
};
use shoal_protocol::client::SandboxTarget;

/// Longer lines of output are split.
const LINE_MAX: usize = 4 << 10;

/// How much of a file is read at once.
const CHUNK_SIZE: usize = 256 << 10;

/// The position of a build, for its log and its failure.
#[derive(Debug, Clone, Copy)]
pub(super) struct BuildLocation {
    pub(super) part: Part,
    pub(super) line: Option<u32>,
}

impl BuildLocation {
    pub(super) fn failure(self, message: impl std::fmt::Display) -> BuildFailure {
        BuildFailure {
            message: message.to_string(),
            part: Some(self.part),
            line: self.line,
        }
    }
}

/// A sandbox that belongs to a build and is hidden from clients.
pub(super) struct BuildSandbox {
    builds: Arc<Builds>,
    permit: SandboxPermit,
    record: Arc<SandboxRecord>,
}

impl BuildSandbox {
    /// Starts a sandbox of this specification.
    pub(super) async fn start(
        builds: Arc<Builds>,
        principal: &Principal,
        spec: SandboxSpec,
        at: BuildLocation,
    ) -> Result<Self, BuildFailure> {
        let created = builds.parts.sandboxes.launch(principal, spec, None).await;
        let record = created.map_err(|e| at.failure(e))?.record;
        let permit = SandboxPermit::grant(principal, &record)
            .ok_or_else(|| at.failure("the sandbox of the build is another team's"))?;
        Ok(Self {
            builds,
            permit,
            record,
        })
    }

    fn token(&self) -> Option<Token> {
        Some(self.builds.parts.access.guest_token(&self.record))
    }

    /// A client that acts as `user`.
    fn client(&self, user: &str) -> Result<Arc<dyn SandboxClient>, InsideError> {
        let gone = || InsideError::Unreachable("the sandbox of the build is not there".to_owned());
        let report = self.record.report.as_ref().ok_or_else(gone)?;
        let target = SandboxTarget {
            address: report.address,
            token: self.token(),
            user: Some(user.to_owned()),
        };
        Ok(self.builds.parts.guest.open(target, None))
    }

    /// Runs a command and logs its output. Returns its exit code.
    pub(super) async fn run(
        &self,
        build: &Build,
        at: BuildLocation,
        user: &str,
        command: SandboxCommand,
    ) -> Result<i32, BuildFailure> {
        let process = self.begin(at, user, command).await?;
        self.follow(build, at, process).await
    }

    /// Starts a command.
    pub(super) async fn begin(
        &self,
        at: BuildLocation,
        user: &str,
        command: SandboxCommand,
    ) -> Result<RunningCommand, BuildFailure> {
        let client = self.client(user).map_err(|e| at.failure(e))?;
        let begun = client.run(command).await;
        begun.map_err(|error| match error {
            // Clients of E2B search the message for these words.
            InsideError::UnknownUser(why) => {
                at.failure(format_args!("command failed: unauthenticated: {why}"))
            }
            error => at.failure(error),
        })
    }

    /// Logs the output of a command, line by line. Returns its exit code.
    pub(super) async fn follow(
        &self,
        build: &Build,
        at: BuildLocation,
        mut process: RunningCommand,
    ) -> Result<i32, BuildFailure> {
        let clock = &self.builds.parts.clock;
        let say = |line: &[u8]| {
            let line = String::from_utf8_lossy(line);
            let now = clock.now();
            build.say(now, LogLevel::Info, Some(at.part), line.trim_end());
        };
        let (mut out, mut err) = (Lines::default(), Lines::default());
        loop {
            let said = process.output.next().await.transpose();
            match said.map_err(|e| at.failure(e))? {
                Some(CommandOutput::Stdout(bytes)) => out.take(&bytes, &say),
                Some(CommandOutput::Stderr(bytes)) => err.take(&bytes, &say),
                Some(CommandOutput::Exit(exit)) => {
                    out.end(&say);
                    err.end(&say);
                    return Ok(exit.code);
                }
                None => return Err(at.failure("the sandbox of the build has stopped")),
            }
        }
    }

    /// Runs a script as root. The build fails when the script does.
    pub(super) async fn script(
        &self,
        build: &Build,
        at: BuildLocation,
        script: &str,
        args: &[&str],
    ) -> Result<(), BuildFailure> {
        match self.script_to_end(build, at, script, args).await? {
            0 => Ok(()),
            code => Err(at.failure(format_args!("exit status {code}"))),
        }
    }

    /// Runs a script as root. Returns its exit code.
    pub(super) async fn script_to_end(
        &self,
        build: &Build,
        at: BuildLocation,
        script: &str,
        args: &[&str],
    ) -> Result<i32, BuildFailure> {
        let mut argv = vec!["-c", script, "sh"];
        argv.extend(args);
        let command = SandboxCommand {
            cwd: Some("/".to_owned()),
            ..SandboxCommand::new("/bin/sh", argv)
        };
        self.run(build, at, "root", command).await
    }

    /// Copies a file of the node into the sandbox, as root.
    pub(super) async fn put(
        &self,
        at: BuildLocation,
        file: &Path,
        target: &str,
    ) -> Result<(), BuildFailure> {
        let client = self.client("root").map_err(|e| at.failure(e))?;
        let opened = File::open(file).await.map_err(|e| at.failure(e))?;
        let put = client
            .write_file(target.to_owned(), contents_of(opened))
            .await;
        put.map_err(|e| at.failure(e))
    }

    /// Copies a file of the sandbox to the node. Subtracts its size from `left`, and fails when `left`
    /// is not enough.
    pub(super) async fn get(
        &self,
        at: BuildLocation,
        source: &str,
        file: &Path,
        left: &mut u64,
    ) -> Result<(), BuildFailure> {
        let client = self.client("root").map_err(|e| at.failure(e))?;
        let got = client.read_file(source.to_owned()).await;
        let mut contents = got.map_err(|e| at.failure(e))?.contents;
        let mut target = File::create(file).await.map_err(|e| at.failure(e))?;
        while let Some(piece) = contents.next().await {
            let piece = piece.map_err(|e| at.failure(e))?;
            *left = left.checked_sub(piece.len() as u64).ok_or_else(|| {
                let most = self.builds.parts.uploads.max_bytes();
                at.failure(format_args!(
                    "a step copies at most {most} bytes from another stage, and this is more: copy \
                     less, or in several steps"
                ))
            })?;
            target.write_all(&piece).await.map_err(|e| at.failure(e))?;
        }
        target.flush().await.map_err(|e| at.failure(e))
    }

    /// Reads at least the first `most` bytes of a file, or all of a smaller one. May return up to one
    /// chunk more.
    pub(super) async fn read(&self, path: &str, most: usize) -> Result<Vec<u8>, InsideError> {
        let client = self.client("root")?;
        let mut contents = client.read_file(path.to_owned()).await?.contents;
        let mut read = Vec::new();
        while let Some(piece) = contents.next().await {
            let piece = piece.map_err(|error| InsideError::Unreachable(error.to_string()))?;
            read.extend_from_slice(&piece);
            if read.len() >= most {
                break;
            }
        }
        Ok(read)
    }

    /// The file or directory at a path.
    pub(super) async fn look(&self, path: &str) -> Result<DirEntry, InsideError> {
        self.client("root")?.stat(path.to_owned()).await
    }

    /// The entries of a directory.
    pub(super) async fn list(&self, path: &str) -> Result<Vec<DirEntry>, InsideError> {
        self.client("root")?.list_dir(path.to_owned()).await
    }

    /// Takes a snapshot of the sandbox.
    pub(super) async fn save(
        &self,
        build: &Build,
        at: BuildLocation,
        contents: Contents,
    ) -> Result<SnapshotOrigin, BuildFailure> {
        let bytes = random::bytes().map_err(|e| at.failure(e))?;
        let id = SnapshotId::from_entropy(bytes);
        build.hold(id);
        let taken = self
            .builds
            .parts
            .sandboxes
            .take_as(&self.permit, id, Some(contents))
            .await;
        let (_, saved) = taken.map_err(|e| at.failure(e))?;
        Ok(SnapshotOrigin {
            id,
            memory: saved.contents.has_memory(),
            guest_token: self.token(),
        })
    }

    /// Ends the sandbox.
    pub(super) async fn close(self) {
        let end = |reply| Command::Kill(KillReason::Requested, reply);
        let ended = self.builds.parts.sandboxes.call(&self.record.id, end).await;
        if let Err(error) = ended {
            // The end of the build tries again.
            tracing::debug!(sandbox.id = %self.record.id, error = %Chain(&error), "a sandbox of a build is not ended yet");
        }
    }
}

/// The contents of a file in chunks.
fn contents_of(file: File) -> ByteStream {
    let pieces = unfold(Some(file), |file| async move {
        let mut file = file?;
        let mut piece = BytesMut::with_capacity(CHUNK_SIZE);
        match file.read_buf(&mut piece).await {
            Ok(0) => None,
            Ok(_) => Some((Ok(piece.freeze()), Some(file))),
            Err(error) => Some((Err(error), None)),
        }
    });
    Box::pin(pieces)
}

/// Splits output into lines.
#[derive(Default)]
struct Lines(Vec<u8>);

impl Lines {
    fn take(&mut self, bytes: &[u8], say: &impl Fn(&[u8])) {
        for byte in bytes {
            match byte {
                // Progress bars redraw their line after a carriage return.
                b'\n' | b'\r' => self.end(say),
                byte => {
                    self.0.push(*byte);
                    if self.0.len() >= LINE_MAX {
                        self.end(say);
                    }
                }
            }
        }
    }

    fn end(&mut self, say: &impl Fn(&[u8])) {
        if !self.0.is_empty() {
            say(&self.0);
            self.0.clear();
        }
    }
}
