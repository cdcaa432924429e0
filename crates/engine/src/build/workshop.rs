//! The sandbox that steps are done in.

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

use crate::build_records::Build;
use crate::engine::Engine;
use crate::entropy;
use crate::guest::{
    GuestBytes, GuestCommand, GuestDoor, GuestEntry, GuestError, GuestOutput, GuestProcess,
};
use crate::sandboxes::Order;

/// How many bytes of a line are read before it is taken as it is.
const LINE_MAX: usize = 4 << 10;

/// How much of a file is read at once.
const PIECE: usize = 256 << 10;

/// Where a build is: for what it says, and for why it fails.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    pub(super) part: Part,
    pub(super) line: Option<u32>,
}

impl Place {
    pub(super) fn failure(self, message: impl std::fmt::Display) -> BuildFailure {
        BuildFailure {
            message: message.to_string(),
            part: Some(self.part),
            line: self.line,
        }
    }
}

/// A sandbox that only its build sees.
pub(super) struct Workshop {
    engine: Engine,
    permit: SandboxPermit,
    record: Arc<SandboxRecord>,
}

impl Workshop {
    /// Starts a sandbox that is to be this.
    pub(super) async fn open(
        engine: &Engine,
        principal: &Principal,
        spec: SandboxSpec,
        place: Place,
    ) -> Result<Self, BuildFailure> {
        let created = engine.shared.sandboxes.launch(principal, spec, None).await;
        let record = created.map_err(|e| place.failure(e))?.record;
        let permit = SandboxPermit::grant(principal, &record)
            .ok_or_else(|| place.failure("the sandbox of the build is another team's"))?;
        Ok(Self {
            engine: engine.clone(),
            permit,
            record,
        })
    }

    fn token(&self) -> Option<Token> {
        Some(self.engine.shared.access.guest_token(&self.record))
    }

    fn door(&self, user: &str, place: Place) -> Result<GuestDoor, BuildFailure> {
        let door = self.root().map_err(|e| place.failure(e))?;
        Ok(door.with_user(user))
    }

    fn root(&self) -> Result<GuestDoor, GuestError> {
        let gone = || GuestError::Unreachable("the sandbox of the build is not there".to_owned());
        let report = self.record.report.as_ref().ok_or_else(gone)?;
        Ok(GuestDoor {
            address: report.address,
            token: self.token(),
            user: Some("root".to_owned()),
        })
    }

    /// Runs a command and notes what it prints, line by line. Returns how it ended.
    pub(super) async fn run(
        &self,
        build: &Build,
        place: Place,
        user: &str,
        command: GuestCommand,
    ) -> Result<i32, BuildFailure> {
        let process = self.begin(place, user, command).await?;
        self.follow(build, place, process).await
    }

    /// Begins a command.
    pub(super) async fn begin(
        &self,
        place: Place,
        user: &str,
        command: GuestCommand,
    ) -> Result<GuestProcess, BuildFailure> {
        let door = self.door(user, place)?;
        let begun = self.engine.shared.guest.run(door, command).await;
        begun.map_err(|error| match error {
            // In the words that clients of E2B look for.
            GuestError::UnknownUser(why) => {
                place.failure(format_args!("command failed: unauthenticated: {why}"))
            }
            error => place.failure(error),
        })
    }

    /// Notes what a command prints, line by line. Returns how it ended.
    pub(super) async fn follow(
        &self,
        build: &Build,
        place: Place,
        mut process: GuestProcess,
    ) -> Result<i32, BuildFailure> {
        let shared = &self.engine.shared;
        let say = |line: &[u8]| {
            let line = String::from_utf8_lossy(line);
            let now = shared.clock.now();
            build.say(now, LogLevel::Info, Some(place.part), line.trim_end());
        };
        let (mut out, mut err) = (Lines::default(), Lines::default());
        loop {
            let said = process.output.next().await.transpose();
            match said.map_err(|e| place.failure(e))? {
                Some(GuestOutput::Stdout(bytes)) => out.take(&bytes, &say),
                Some(GuestOutput::Stderr(bytes)) => err.take(&bytes, &say),
                Some(GuestOutput::Exit(exit)) => {
                    out.end(&say);
                    err.end(&say);
                    return Ok(exit.code);
                }
                None => return Err(place.failure("the sandbox of the build has stopped")),
            }
        }
    }

    /// Runs a script of ours as root; its failure is the build's.
    pub(super) async fn script(
        &self,
        build: &Build,
        place: Place,
        script: &str,
        args: &[&str],
    ) -> Result<(), BuildFailure> {
        match self.script_to_end(build, place, script, args).await? {
            0 => Ok(()),
            code => Err(place.failure(format_args!("exit status {code}"))),
        }
    }

    /// Runs a script of ours as root. Returns how it ended.
    pub(super) async fn script_to_end(
        &self,
        build: &Build,
        place: Place,
        script: &str,
        args: &[&str],
    ) -> Result<i32, BuildFailure> {
        let mut argv = vec!["-c", script, "sh"];
        argv.extend(args);
        let command = GuestCommand {
            cwd: Some("/".to_owned()),
            ..GuestCommand::new("/bin/sh", argv)
        };
        self.run(build, place, "root", command).await
    }

    /// Puts a file of the node into the sandbox, as root.
    pub(super) async fn put(
        &self,
        place: Place,
        file: &Path,
        target: &str,
    ) -> Result<(), BuildFailure> {
        let door = self.door("root", place)?;
        let opened = File::open(file).await.map_err(|e| place.failure(e))?;
        let guest = &self.engine.shared.guest;
        let put = guest
            .write_file(door, target.to_owned(), contents_of(opened))
            .await;
        put.map_err(|e| place.failure(e))
    }

    /// Takes a file of the sandbox out to the node, of no more bytes than are `left`, and takes them off
    /// that.
    pub(super) async fn get(
        &self,
        place: Place,
        source: &str,
        file: &Path,
        left: &mut u64,
    ) -> Result<(), BuildFailure> {
        let door = self.door("root", place)?;
        let guest = &self.engine.shared.guest;
        let got = guest.read_file(door, source.to_owned()).await;
        let mut contents = got.map_err(|e| place.failure(e))?.contents;
        let mut target = File::create(file).await.map_err(|e| place.failure(e))?;
        while let Some(piece) = contents.next().await {
            let piece = piece.map_err(|e| place.failure(e))?;
            *left = left.checked_sub(piece.len() as u64).ok_or_else(|| {
                let most = self.engine.shared.config.upload_max;
                place.failure(format_args!(
                    "a step copies at most {most} bytes from another stage, and this is more: copy \
                     less, or in several steps"
                ))
            })?;
            target
                .write_all(&piece)
                .await
                .map_err(|e| place.failure(e))?;
        }
        target.flush().await.map_err(|e| place.failure(e))
    }

    /// What the first so many bytes of a file are, and a piece more at most.
    pub(super) async fn read(&self, path: &str, most: usize) -> Result<Vec<u8>, GuestError> {
        let guest = &self.engine.shared.guest;
        let mut contents = guest
            .read_file(self.root()?, path.to_owned())
            .await?
            .contents;
        let mut read = Vec::new();
        while let Some(piece) = contents.next().await {
            let piece = piece.map_err(|error| GuestError::Unreachable(error.to_string()))?;
            read.extend_from_slice(&piece);
            if read.len() >= most {
                break;
            }
        }
        Ok(read)
    }

    /// What lies at a path.
    pub(super) async fn look(&self, path: &str) -> Result<GuestEntry, GuestError> {
        let guest = &self.engine.shared.guest;
        guest.stat(self.root()?, path.to_owned()).await
    }

    /// What lies in a directory.
    pub(super) async fn list(&self, path: &str) -> Result<Vec<GuestEntry>, GuestError> {
        let guest = &self.engine.shared.guest;
        guest.list_dir(self.root()?, path.to_owned()).await
    }

    /// Saves it as it is.
    pub(super) async fn save(
        &self,
        build: &Build,
        place: Place,
        contents: Contents,
    ) -> Result<SnapshotOrigin, BuildFailure> {
        let bytes = entropy::bytes().map_err(|e| place.failure(e))?;
        let id = SnapshotId::from_entropy(bytes);
        build.hold(id);
        let taken = self
            .engine
            .shared
            .sandboxes
            .take_as(&self.permit, id, Some(contents))
            .await;
        let (_, saved) = taken.map_err(|e| place.failure(e))?;
        Ok(SnapshotOrigin {
            id,
            memory: saved.contents.has_memory(),
            guest_token: self.token(),
        })
    }

    /// Ends it.
    pub(super) async fn close(self) {
        let end = |reply| Order::Kill(KillReason::Requested, reply);
        let ended = self
            .engine
            .shared
            .sandboxes
            .order(&self.record.id, end)
            .await;
        if let Err(error) = ended {
            // The end of the build tries it again.
            tracing::debug!(sandbox.id = %self.record.id, error = %Chain(&error), "a sandbox of a build is not ended yet");
        }
    }
}

/// A file, piece by piece.
fn contents_of(file: File) -> GuestBytes {
    let pieces = unfold(Some(file), |file| async move {
        let mut file = file?;
        let mut piece = BytesMut::with_capacity(PIECE);
        match file.read_buf(&mut piece).await {
            Ok(0) => None,
            Ok(_) => Some((Ok(piece.freeze()), Some(file))),
            Err(error) => Some((Err(error), None)),
        }
    });
    Box::pin(pieces)
}

/// Output that is cut into lines.
#[derive(Default)]
struct Lines(Vec<u8>);

impl Lines {
    fn take(&mut self, bytes: &[u8], say: &impl Fn(&[u8])) {
        for byte in bytes {
            match byte {
                // A progress bar goes back to the beginning of its line.
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
