//! The truth in SQLite.
//!
//! One thread owns the connection and runs what it is sent, in order: SQLite has one writer
//! anyway, and no caller waits in a runtime's thread. What has been answered survives a kill of
//! the server at any moment (write-ahead log); after a power failure the last moments before the
//! last [`Store::sync`] may be missing, and so are the sandboxes that ran.

mod builds;
mod catalogue;
mod idempotency;
mod keys;
mod migrations;
mod sandboxes;
mod seeds;
mod snapshots;
mod teams;
mod templates;

use std::fs::{File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;

use rusqlite::Connection;
use shoal_core::BoxFuture;
use shoal_core::auth::{ApiKeyHash, KeyRecord, TeamSlug, TokenSeed};
use shoal_core::build::{BuildRecord, Layer, LogEntry};
use shoal_core::clock::Timestamp;
use shoal_core::id::{BuildId, KeyId, SandboxId, SnapshotId, TeamId, TemplateId};
use shoal_core::image::{ImageName, PrivateImage};
use shoal_core::limits::TeamLimits;
use shoal_core::pool::Seed;
use shoal_core::sandbox::{RequestClaim, SandboxRecord};
use shoal_core::snapshot::SnapshotRecord;
use shoal_core::store::{IdempotencyClaim, Store, StoreError, StoredCatalogue, Version, Versioned};
use shoal_core::template::Template;
use tokio::sync::{mpsc, oneshot};

/// How many calls may wait for the one that is under way.
const WAITING: usize = 1024;

type Job = Box<dyn FnOnce(&mut Connection) + Send>;

/// Makes the file when there is none, and lets nobody else read it: the secret that tokens are
/// made from is in it. The files that SQLite makes beside it get the same mode.
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
                // The caller may have stopped waiting; what it asked for is done all the same.
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

/// What SQLite said, in the port's words.
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

impl Store for SqliteStore {
    fn commit(
        &self,
        next: SandboxRecord,
        expected: Option<Version>,
    ) -> BoxFuture<'_, Result<Version, StoreError>> {
        self.call(move |connection| sandboxes::commit(connection, &next, expected))
    }

    fn sync(&self) -> BoxFuture<'_, Result<(), StoreError>> {
        let log = self.log.clone();
        Box::pin(async move {
            // Every commit is a frame at its end: those that are on the disk are found by their
            // checksums. What has left it was synced on the way.
            let synced = tokio::task::spawn_blocking(move || File::open(log)?.sync_data());
            let synced = synced.await.map_err(io::Error::other).flatten();
            synced.map_err(|e| StoreError::failed(format_args!("cannot sync the store's log: {e}")))
        })
    }

    fn live_sandboxes(&self) -> BoxFuture<'_, Result<Vec<Versioned<SandboxRecord>>, StoreError>> {
        self.call(|connection| sandboxes::live(connection))
    }

    fn sandbox(
        &self,
        id: &SandboxId,
    ) -> BoxFuture<'_, Result<Option<Versioned<SandboxRecord>>, StoreError>> {
        let id = id.clone();
        self.call(move |connection| sandboxes::one(connection, &id))
    }

    fn forget_terminated(
        &self,
        moment: Timestamp,
    ) -> BoxFuture<'_, Result<Vec<SandboxId>, StoreError>> {
        self.call(move |connection| sandboxes::forget(connection, moment))
    }

    fn claim_idempotency(
        &self,
        team: TeamId,
        key: &str,
        request: &[u8; 32],
        now: Timestamp,
    ) -> BoxFuture<'_, Result<IdempotencyClaim, StoreError>> {
        let (key, request) = (key.to_owned(), hex::encode(request));
        self.call(move |connection| idempotency::claim(connection, team, &key, &request, now))
    }

    fn settle_idempotency(
        &self,
        team: TeamId,
        claim: &RequestClaim,
        sandbox: Option<&SandboxId>,
    ) -> BoxFuture<'_, Result<(), StoreError>> {
        let (claim, sandbox) = (claim.clone(), sandbox.cloned());
        self.call(move |connection| idempotency::settle(connection, team, &claim, sandbox.as_ref()))
    }

    fn release_idempotency(&self) -> BoxFuture<'_, Result<(), StoreError>> {
        self.call(|connection| idempotency::release(connection))
    }

    fn templates(&self) -> BoxFuture<'_, Result<Vec<Template>, StoreError>> {
        self.call(|connection| templates::all(connection))
    }

    fn put_template(&self, template: Template) -> BoxFuture<'_, Result<(), StoreError>> {
        self.call(move |connection| templates::put(connection, &template))
    }

    fn delete_template(&self, id: &TemplateId) -> BoxFuture<'_, Result<bool, StoreError>> {
        let id = id.clone();
        self.call(move |connection| templates::delete(connection, &id))
    }

    fn catalogue(&self) -> BoxFuture<'_, Result<Option<Versioned<StoredCatalogue>>, StoreError>> {
        self.call(|connection| catalogue::read(connection))
    }

    fn put_catalogue(
        &self,
        next: StoredCatalogue,
        expected: Option<Version>,
    ) -> BoxFuture<'_, Result<Version, StoreError>> {
        self.call(move |connection| catalogue::put(connection, &next, expected))
    }

    fn snapshots(&self) -> BoxFuture<'_, Result<Vec<SnapshotRecord>, StoreError>> {
        self.call(|connection| snapshots::all(connection))
    }

    fn put_snapshot(
        &self,
        snapshot: SnapshotRecord,
    ) -> BoxFuture<'_, Result<Option<SnapshotId>, StoreError>> {
        self.call(move |connection| snapshots::put(connection, &snapshot))
    }

    fn delete_snapshot(&self, id: SnapshotId) -> BoxFuture<'_, Result<bool, StoreError>> {
        self.call(move |connection| snapshots::delete(connection, id))
    }

    fn builds(&self) -> BoxFuture<'_, Result<Vec<BuildRecord>, StoreError>> {
        self.call(|connection| builds::all(connection))
    }

    fn put_build(
        &self,
        build: BuildRecord,
        log: Option<Vec<LogEntry>>,
    ) -> BoxFuture<'_, Result<(), StoreError>> {
        self.call(move |connection| builds::put(connection, &build, log.as_deref()))
    }

    fn build_log(&self, id: BuildId) -> BoxFuture<'_, Result<Vec<LogEntry>, StoreError>> {
        self.call(move |connection| builds::log(connection, id))
    }

    fn delete_build(&self, id: BuildId) -> BoxFuture<'_, Result<(), StoreError>> {
        self.call(move |connection| builds::delete(connection, id))
    }

    fn layers(&self) -> BoxFuture<'_, Result<Vec<Layer>, StoreError>> {
        self.call(|connection| builds::layers(connection))
    }

    fn put_layer(&self, layer: Layer) -> BoxFuture<'_, Result<(), StoreError>> {
        self.call(move |connection| builds::put_layer(connection, &layer))
    }

    fn delete_layer(&self, team: TeamId, key: &str) -> BoxFuture<'_, Result<(), StoreError>> {
        let key = key.to_owned();
        self.call(move |connection| builds::delete_layer(connection, team, &key))
    }

    fn seeds(&self) -> BoxFuture<'_, Result<Vec<Seed>, StoreError>> {
        self.call(|connection| seeds::all(connection))
    }

    fn put_seed(&self, seed: Seed) -> BoxFuture<'_, Result<(), StoreError>> {
        self.call(move |connection| seeds::put(connection, &seed))
    }

    fn delete_seed(&self, id: SnapshotId) -> BoxFuture<'_, Result<(), StoreError>> {
        self.call(move |connection| seeds::delete(connection, id))
    }

    fn private_images(&self) -> BoxFuture<'_, Result<Vec<PrivateImage>, StoreError>> {
        self.call(|connection| builds::private_images(connection))
    }

    fn put_private_image(&self, image: PrivateImage) -> BoxFuture<'_, Result<(), StoreError>> {
        self.call(move |connection| builds::put_private_image(connection, &image))
    }

    fn delete_private_image(&self, name: ImageName) -> BoxFuture<'_, Result<(), StoreError>> {
        self.call(move |connection| builds::delete_private_image(connection, &name))
    }

    fn team(&self, slug: &TeamSlug, fresh: TeamId) -> BoxFuture<'_, Result<TeamId, StoreError>> {
        let slug = slug.clone();
        self.call(move |connection| keys::team(connection, &slug, fresh))
    }

    fn teams(&self) -> BoxFuture<'_, Result<Vec<(TeamSlug, TeamId)>, StoreError>> {
        self.call(|connection| keys::teams(connection))
    }

    fn team_limits(&self) -> BoxFuture<'_, Result<Vec<(TeamId, TeamLimits)>, StoreError>> {
        self.call(|connection| teams::limits(connection))
    }

    fn put_team_limits(
        &self,
        team: TeamId,
        limits: TeamLimits,
    ) -> BoxFuture<'_, Result<(), StoreError>> {
        self.call(move |connection| teams::put_limits(connection, team, &limits))
    }

    fn key_by_hash(
        &self,
        hash: &ApiKeyHash,
    ) -> BoxFuture<'_, Result<Option<KeyRecord>, StoreError>> {
        let hash = hash.clone();
        self.call(move |connection| keys::by_hash(connection, &hash))
    }

    fn keys(&self, team: Option<TeamId>) -> BoxFuture<'_, Result<Vec<KeyRecord>, StoreError>> {
        self.call(move |connection| keys::all(connection, team))
    }

    fn put_key(&self, key: KeyRecord) -> BoxFuture<'_, Result<(), StoreError>> {
        self.call(move |connection| keys::put(connection, &key))
    }

    fn delete_key(&self, id: &KeyId) -> BoxFuture<'_, Result<bool, StoreError>> {
        let id = *id;
        self.call(move |connection| keys::delete(connection, id))
    }

    fn token_seed(&self, fresh: [u8; 32]) -> BoxFuture<'_, Result<TokenSeed, StoreError>> {
        self.call(move |connection| keys::token_seed(connection, fresh))
    }
}

#[cfg(test)]
mod tests;
