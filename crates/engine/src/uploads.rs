//! The archives of files that clients upload for builds.
//!
//! An archive belongs to one team and is named by the digest that its client computed over the files.
//! The server cannot check that digest: a client that lies deceives only its own team.

mod archives;
mod incoming;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use shoal_core::build::FilesHash;
use shoal_core::id::TeamId;
pub use shoal_core::ports::builds::UploadError;
use tempfile::TempPath;

pub(crate) use self::incoming::IncomingUpload;

use self::archives::Archives;
use self::incoming::InFlight;
use crate::access::Access;
use crate::build_records::BuildRecords;
use crate::config::EngineConfig;

/// The uploads of all teams.
pub(crate) struct Uploads {
    access: Arc<Access>,
    build_records: Arc<BuildRecords>,
    max_bytes: u64,
    archives: Archives,
    in_flight: InFlight,
}

impl Uploads {
    /// Opens the directory of uploads.
    ///
    /// # Errors
    /// When it cannot be created, or old archives cannot be removed.
    pub(crate) fn open(
        config: &EngineConfig,
        access: Arc<Access>,
        build_records: Arc<BuildRecords>,
    ) -> io::Result<Self> {
        Ok(Self {
            access,
            build_records,
            max_bytes: config.upload_max,
            archives: Archives::open(config)?,
            in_flight: InFlight::default(),
        })
    }

    /// Signs the right of a team to upload these files until a Unix second.
    pub(crate) fn sign(&self, team: TeamId, hash: &FilesHash, expires: i64) -> String {
        let signature = self.access.upload_signature(team, hash, expires);
        signature.reveal().to_owned()
    }

    /// Whether a signature gives that right.
    pub(crate) fn is_signed(
        &self,
        team: TeamId,
        hash: &FilesHash,
        expires: i64,
        signature: &str,
    ) -> bool {
        let expected = self.access.upload_signature(team, hash, expires);
        expected.matches(signature)
    }

    /// The maximum size of an archive, in bytes.
    pub(crate) fn max_bytes(&self) -> u64 {
        self.max_bytes
    }

    /// The path of an archive of a team, if it was uploaded. Marks it as used.
    ///
    /// # Errors
    /// When the runtime stops.
    pub(crate) async fn find(
        self: &Arc<Self>,
        team: TeamId,
        hash: &FilesHash,
    ) -> io::Result<Option<PathBuf>> {
        let (uploads, hash) = (self.clone(), hash.clone());
        blocking(move || Ok(uploads.archives.find(team, &hash))).await
    }

    /// An empty file, removed when it is dropped unless it is kept.
    ///
    /// # Errors
    /// When it cannot be created.
    pub(crate) async fn temporary(self: &Arc<Self>) -> io::Result<TempPath> {
        let uploads = self.clone();
        blocking(move || uploads.archives.temporary()).await
    }

    /// [`Uploads::temporary`] for a thread that may block.
    ///
    /// # Errors
    /// When it cannot be created.
    pub(crate) fn blocking_temporary(&self) -> io::Result<TempPath> {
        self.archives.temporary()
    }

    /// Keeps a complete file for the builds of a team, on a thread that may block.
    ///
    /// # Errors
    /// See [`UploadError`].
    pub(crate) fn blocking_keep(
        &self,
        team: TeamId,
        hash: &FilesHash,
        file: TempPath,
    ) -> Result<(), UploadError> {
        let needed = self.needed_since(team);
        self.archives.keep(team, hash, file, 0, needed)
    }

    /// The moment since when the unfinished builds of a team may need archives, if it has any.
    fn needed_since(&self, team: TeamId) -> Option<SystemTime> {
        // Files are uploaded after their build is announced.
        let builds = self.build_records.records().into_iter();
        let unfinished = builds.filter(|build| build.team == team && !build.status.is_final());
        let oldest = unfinished.map(|build| build.created_at).min();
        oldest.map(|at| {
            let millis = u64::try_from(at.unix_millis()).unwrap_or_default();
            UNIX_EPOCH + Duration::from_millis(millis)
        })
    }
}

/// Runs file operations on a thread that may block.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(io::Error::other)?
}
