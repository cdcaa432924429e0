//! `POST /files/compose`: concatenates files.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, fchown};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use http::{Request, StatusCode};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use shoal_protocol::files::{ComposeRequest, FileKind, WrittenFile};

use super::target::failed;
use super::{Actor, Files, RequestError};
use crate::filesystem::directories;
use crate::path::{self, base_name};
use crate::response::{self, HttpResponse};

/// Largest request: room for [`MAX_SOURCES`] paths.
const MAX_BODY: usize = 4 << 20;

/// Limit of source files.
const MAX_SOURCES: usize = 10_000;

/// A compose request.
struct ComposeJob {
    actor: Actor,
    sources: Vec<PathBuf>,
    destination: PathBuf,
}

impl Files {
    pub(super) async fn compose(
        &self,
        request: Request<Incoming>,
    ) -> Result<HttpResponse, RequestError> {
        let body = Limited::new(request.into_body(), MAX_BODY).collect().await;
        let invalid = |error: &dyn std::fmt::Display| {
            RequestError::bad_request(format!("invalid request body: {error}"))
        };
        let body = body.map_err(|error| invalid(&error))?.to_bytes();
        let request: ComposeRequest =
            serde_json::from_slice(&body).map_err(|error| invalid(&error))?;
        let job = self.compose_job(&request)?;
        let writer = Arc::clone(&self.writers).acquire_owned().await;
        let work = tokio::task::spawn_blocking(move || {
            let _writer = writer;
            job.run()
        });
        let entry = work.await.map_err(|_| RequestError::shutting_down())??;
        Ok(response::json(StatusCode::OK, &entry))
    }

    fn compose_job(&self, request: &ComposeRequest) -> Result<ComposeJob, RequestError> {
        if request.source_paths.is_empty() {
            return Err(RequestError::bad_request("source_paths must not be empty"));
        }
        if request.source_paths.len() > MAX_SOURCES {
            return Err(RequestError::bad_request(format!(
                "more than {MAX_SOURCES} source_paths"
            )));
        }
        if request.destination.is_empty() {
            return Err(RequestError::bad_request("destination is required"));
        }
        let actor = self.actor(request.username.as_deref())?;
        let workdir = actor.workdir.as_deref();
        let destination = path::resolve(&request.destination, &actor.user, workdir)?;
        let sources = request.source_paths.iter();
        let sources: Result<Vec<_>, _> = sources
            .map(|source| path::resolve(source, &actor.user, workdir))
            .collect();
        Ok(ComposeJob {
            sources: sources?,
            destination,
            actor,
        })
    }
}

impl ComposeJob {
    /// Writes a temporary file next to the destination and renames it, so that a failure leaves an
    /// existing destination intact.
    fn run(self) -> Result<WrittenFile, RequestError> {
        for source in &self.sources {
            self.open(source)?;
        }
        if let Some(parent) = self.destination.parent() {
            directories::ensure(parent, &self.actor.user)?;
        }
        if self.destination.is_dir() {
            let shown = self.destination.display();
            return Err(RequestError::bad_request(format!(
                "path is a directory: {shown}"
            )));
        }
        self.reject_self_source()?;
        let mut temporary = self.destination.clone().into_os_string();
        temporary.push(format!(".compose-{:016x}.tmp", random()));
        let temporary = PathBuf::from(temporary);
        let placed = self.join(&temporary).and_then(|()| {
            let placed = std::fs::rename(&temporary, &self.destination);
            placed.map_err(|error| failed("", &error))
        });
        if let Err(error) = placed {
            // It may not exist.
            let _ = std::fs::remove_file(&temporary);
            return Err(error);
        }
        for source in &self.sources {
            // The result is complete; a leftover source is harmless.
            let _ = std::fs::remove_file(source);
        }
        Ok(WrittenFile {
            name: base_name(&self.destination),
            path: self.destination.to_string_lossy().into_owned(),
            kind: FileKind::File,
            metadata: None,
        })
    }

    /// Rejects a source that is the destination under another name, which would be removed with the
    /// sources. Runs after the destination's parents exist, so that its name resolves.
    fn reject_self_source(&self) -> Result<(), RequestError> {
        let identity = |path: &Path| std::fs::metadata(path).map(|meta| (meta.dev(), meta.ino()));
        let Ok(destination) = identity(&self.destination) else {
            // The destination does not exist yet.
            return Ok(());
        };
        let is_same = |source: &&PathBuf| identity(source).is_ok_and(|it| it == destination);
        match self.sources.iter().find(is_same) {
            Some(source) => Err(is_destination(source)),
            None => Ok(()),
        }
    }

    fn open(&self, source: &Path) -> Result<File, RequestError> {
        let shown = source.display();
        if *source == self.destination {
            return Err(is_destination(source));
        }
        let file = OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC | libc::O_NOCTTY)
            .open(source);
        let file = file.map_err(|_| {
            let text = format!("source file not found: {shown}");
            RequestError::new(StatusCode::NOT_FOUND, text)
        })?;
        match file.metadata() {
            Ok(meta) if meta.is_file() => Ok(file),
            _ => Err(RequestError::bad_request(format!(
                "source path is not a regular file: {shown}"
            ))),
        }
    }

    fn join(&self, temporary: &Path) -> Result<(), RequestError> {
        let failed = |error: io::Error| failed("", &error);
        let whole = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o666)
            .open(temporary);
        let mut whole = whole.map_err(failed)?;
        let user = &self.actor.user;
        fchown(&whole, Some(user.uid), Some(user.gid)).map_err(failed)?;
        for source in &self.sources {
            // `io::copy` lets the kernel copy where the file system supports it.
            io::copy(&mut self.open(source)?, &mut whole).map_err(failed)?;
        }
        Ok(())
    }
}

fn is_destination(source: &Path) -> RequestError {
    let shown = source.display();
    RequestError::bad_request(format!(
        "source path '{shown}' cannot be the same as destination"
    ))
}

/// A random suffix.
fn random() -> u64 {
    // Uniqueness is enforced by `create_new`.
    u64::from_ne_bytes(crate::random::bytes())
}
