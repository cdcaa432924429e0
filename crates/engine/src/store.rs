//! The store in SQLite.
//!
//! One thread owns the connection and runs its jobs in order: SQLite has one writer anyway, and no
//! caller blocks a thread of the runtime. An answered call survives a kill of the server at any
//! moment (write-ahead log). After a power failure the commits since the last
//! [`sync`](shoal_core::store::SandboxStore::sync) may be missing, and so are the sandboxes that ran.

mod builds;
mod catalogue;
mod idempotency;
mod images;
mod keys;
mod migrations;
mod pools;
mod sandboxes;
mod session_files;
mod session_memories;
mod session_secrets;
mod sessions;
mod snapshots;
mod teams;
mod templates;

use std::fs::{OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;

use rusqlite::Connection;
use shoal_core::BoxFuture;
use shoal_core::store::StoreError;
use tokio::sync::{mpsc, oneshot};

/// How many calls may wait for the current one.
const WAITING: usize = 1024;

type Job = Box<dyn FnOnce(&mut Connection) + Send>;

/// Creates the file if it is missing, readable by the owner only: it holds the secret of all tokens.
/// SQLite gives its other files the same mode.
fn own_only(path: &Path) -> io::Result<()> {
    let file = OpenOptions::new()
        .read(true)
        .append(true)
        .create(true)
        .mode(0o600)
        .open(path)?;
    file.set_permissions(Permissions::from_mode(0o600))
}

/// The store in one file.
#[derive(Debug, Clone)]
pub struct SqliteStore {
    jobs: mpsc::Sender<Job>,
    /// The write-ahead log.
    log: Arc<Path>,
}

impl SqliteStore {
    /// Opens the file, making it when there is none, and brings its tables up to date.
    ///
    /// # Errors
    /// When it cannot be opened, is not a database, or was written by a newer program.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        own_only(path)
            .map_err(|e| StoreError::failed(format_args!("cannot open {}: {e}", path.display())))?;
        let mut connection = Connection::open(path).map_err(store_error)?;
        migrations::migrate(&mut connection)?;
        let (jobs, mut incoming) = mpsc::channel::<Job>(WAITING);
        let run = move || {
            while let Some(job) = incoming.blocking_recv() {
                job(&mut connection);
            }
        };
        thread::Builder::new()
            .name("store".to_owned())
            .spawn(run)
            .map_err(StoreError::failed)?;
        let log = log_of(path).into();
        Ok(Self { jobs, log })
    }

    /// Runs `work` on the connection's thread.
    fn call<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Connection) -> Result<T, StoreError> + Send + 'static,
    ) -> BoxFuture<'_, Result<T, StoreError>> {
        Box::pin(async move {
            let (answer, answered) = oneshot::channel();
            let job: Job = Box::new(move |connection| {
                // The caller may have stopped waiting; its request is carried out all the same.
                let _ = answer.send(work(connection));
            });
            let gone = || StoreError::failed("the store has ended".to_owned());
            self.jobs.send(job).await.map_err(|_| gone())?;
            answered.await.map_err(|_| gone())?
        })
    }
}

/// The file that SQLite writes to before it does to `path`.
fn log_of(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push("-wal");
    name.into()
}

/// An error of SQLite as one of the port.
fn store_error(error: rusqlite::Error) -> StoreError {
    match error.sqlite_error_code() {
        Some(rusqlite::ErrorCode::DiskFull) => StoreError::NoSpace,
        _ => StoreError::failed(error),
    }
}

/// Reads a stored document.
fn decode<T: serde::de::DeserializeOwned>(key: &str, text: &str) -> Result<T, StoreError> {
    serde_json::from_str(text).map_err(|e| StoreError::Corrupt {
        key: key.to_owned(),
        detail: e.to_string(),
    })
}

/// Writes a document to be stored.
fn encode<T: serde::Serialize>(value: &T) -> Result<String, StoreError> {
    serde_json::to_string(value).map_err(StoreError::failed)
}

#[cfg(test)]
mod tests;
