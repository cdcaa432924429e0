//! The port behind which the truth is kept.

use serde::{Deserialize, Serialize};

use crate::BoxFuture;
use crate::auth::{ApiKeyHash, KeyRecord, TeamSlug, TokenSeed};
use crate::build::{BuildRecord, Layer, LogEntry};
use crate::clock::Timestamp;
use crate::detail::HostDetail;
use crate::id::{BuildId, KeyId, SandboxId, SnapshotId, TeamId, TemplateId};
use crate::image::{ImageName, PrivateImage};
use crate::limits::TeamLimits;
use crate::pool::Seed;
use crate::sandbox::{RequestClaim, SandboxRecord};
use crate::snapshot::SnapshotRecord;
use crate::template::Template;

/// How often a record was written: a commit names the one it saw.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Version(pub u64);

/// A value with the version under which it is stored.
#[derive(Debug, Clone, PartialEq)]
pub struct Versioned<T> {
    /// The version.
    pub version: Version,
    /// The value.
    pub value: T,
}

/// The catalogue as it is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredCatalogue {
    /// Its entries: a list in JSON.
    pub json: String,
    /// When they were put in force.
    pub updated_at: Timestamp,
}

/// What became of a request that carried an idempotency key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IdempotencyClaim {
    /// It is the first: go on.
    First,
    /// The same request is still under way.
    InProgress,
    /// The key was used for another request.
    Mismatch,
    /// The same request made this sandbox.
    Done(SandboxId),
}

/// Why the store did not do it.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Another commit was first; read again and decide again.
    #[error("the record has changed: expected version {expected:?}")]
    Conflict {
        /// The version that was named.
        expected: Option<Version>,
    },
    /// What is stored cannot be read.
    #[error("the record {key} cannot be read: {detail}")]
    Corrupt {
        /// Which record.
        key: String,
        /// What is wrong with it.
        detail: String,
    },
    /// The disk is full.
    #[error("no space left for the store")]
    NoSpace,
    /// The store itself failed.
    #[error("the store failed: the server's log says why")]
    Failed(#[source] HostDetail),
}

impl StoreError {
    /// The store failed, and this was said.
    #[must_use]
    pub fn failed(said: impl ToString) -> Self {
        Self::Failed(HostDetail::new(said))
    }
}

/// Keeps records. A call that has returned is kept over a crash of the server.
pub trait Store: Send + Sync {
    /// Writes the next value of a sandbox. `expected` is the version it was read at; none makes
    /// a new record.
    ///
    /// # Errors
    /// [`StoreError::Conflict`] when the stored version is another.
    fn commit(
        &self,
        next: SandboxRecord,
        expected: Option<Version>,
    ) -> BoxFuture<'_, Result<Version, StoreError>>;

    /// Makes what was committed until now survive the machine, too. Takes as long as the disk needs,
    /// and holds up no other call.
    ///
    /// # Errors
    /// When the disk fails.
    fn sync(&self) -> BoxFuture<'_, Result<(), StoreError>>;

    /// Every sandbox that is not terminated.
    ///
    /// # Errors
    /// See [`StoreError`].
    fn live_sandboxes(&self) -> BoxFuture<'_, Result<Vec<Versioned<SandboxRecord>>, StoreError>>;

    /// One sandbox, terminated or not, while its record is kept.
    ///
    /// # Errors
    /// See [`StoreError`].
    fn sandbox(
        &self,
        id: &SandboxId,
    ) -> BoxFuture<'_, Result<Option<Versioned<SandboxRecord>>, StoreError>>;

    /// Forgets the sandboxes that were terminated before `moment`, and returns which.
    ///
    /// # Errors
    /// See [`StoreError`].
    fn forget_terminated(
        &self,
        moment: Timestamp,
    ) -> BoxFuture<'_, Result<Vec<SandboxId>, StoreError>>;

    /// Claims an idempotency key for a request of this content.
    ///
    /// # Errors
    /// See [`StoreError`].
    fn claim_idempotency(
        &self,
        team: TeamId,
        key: &str,
        request: &[u8; 32],
        now: Timestamp,
    ) -> BoxFuture<'_, Result<IdempotencyClaim, StoreError>>;

    /// Ends a claim: with the sandbox that was made, or with none so that the key can be used
    /// again. A claim that is none any more stays as it is.
    ///
    /// # Errors
    /// See [`StoreError`].
    fn settle_idempotency(
        &self,
        team: TeamId,
        claim: &RequestClaim,
        sandbox: Option<&SandboxId>,
    ) -> BoxFuture<'_, Result<(), StoreError>>;

    /// Ends every claim that is not settled, so that its key can be used again: of a server that
    /// has ended, once the sandboxes that it made are known.
    ///
    /// # Errors
    /// See [`StoreError`].
    fn release_idempotency(&self) -> BoxFuture<'_, Result<(), StoreError>>;

    /// Every template.
    ///
    /// # Errors
    /// See [`StoreError`].
    fn templates(&self) -> BoxFuture<'_, Result<Vec<Template>, StoreError>>;

    /// Writes a template, new or not.
    ///
    /// # Errors
    /// See [`StoreError`].
    fn put_template(&self, template: Template) -> BoxFuture<'_, Result<(), StoreError>>;

    /// Forgets a template; whether there was one.
    ///
    /// # Errors
    /// See [`StoreError`].
    fn delete_template(&self, id: &TemplateId) -> BoxFuture<'_, Result<bool, StoreError>>;

    /// The catalogue; none when there never was one.
    ///
    /// # Errors
    /// See [`StoreError`].
    fn catalogue(&self) -> BoxFuture<'_, Result<Option<Versioned<StoredCatalogue>>, StoreError>>;

    /// Writes the catalogue, in the place of the one that is there. `expected` is the version it
    /// was read at, 0 when there was none; whatever there is goes when nothing is expected.
    ///
    /// # Errors
    /// [`StoreError::Conflict`] when the stored version is another.
    fn put_catalogue(
        &self,
        next: StoredCatalogue,
        expected: Option<Version>,
    ) -> BoxFuture<'_, Result<Version, StoreError>>;

    /// Every snapshot.
    ///
    /// # Errors
    /// See [`StoreError`].
    fn snapshots(&self) -> BoxFuture<'_, Result<Vec<SnapshotRecord>, StoreError>>;

    /// Writes a snapshot, in the place of the one that had its template and tag. Returns that
    /// one's data, which nobody can start from any more.
    ///
    /// # Errors
    /// See [`StoreError`].
    fn put_snapshot(
        &self,
        snapshot: SnapshotRecord,
    ) -> BoxFuture<'_, Result<Option<SnapshotId>, StoreError>>;

    /// Forgets a snapshot; whether there was one.
    ///
    /// # Errors
    /// See [`StoreError`].
    fn delete_snapshot(&self, id: SnapshotId) -> BoxFuture<'_, Result<bool, StoreError>>;

    /// Every build.
    ///
    /// # Errors
    /// See [`StoreError`].
    fn builds(&self) -> BoxFuture<'_, Result<Vec<BuildRecord>, StoreError>>;

    /// Writes a build, new or not, and its log when it is given.
    ///
    /// # Errors
    /// See [`StoreError`].
    fn put_build(
        &self,
        build: BuildRecord,
        log: Option<Vec<LogEntry>>,
    ) -> BoxFuture<'_, Result<(), StoreError>>;

    /// The log of a build, as it was last written.
    ///
    /// # Errors
    /// See [`StoreError`].
    fn build_log(&self, id: BuildId) -> BoxFuture<'_, Result<Vec<LogEntry>, StoreError>>;

    /// Forgets a build with its log.
    ///
    /// # Errors
    /// See [`StoreError`].
    fn delete_build(&self, id: BuildId) -> BoxFuture<'_, Result<(), StoreError>>;

    /// Every layer of builds.
    ///
    /// # Errors
    /// See [`StoreError`].
    fn layers(&self) -> BoxFuture<'_, Result<Vec<Layer>, StoreError>>;

    /// Writes a layer, in the place of the one that its team had under its key.
    ///
    /// # Errors
    /// See [`StoreError`].
    fn put_layer(&self, layer: Layer) -> BoxFuture<'_, Result<(), StoreError>>;

    /// Forgets a layer.
    ///
    /// # Errors
    /// See [`StoreError`].
    fn delete_layer(&self, team: TeamId, key: &str) -> BoxFuture<'_, Result<(), StoreError>>;

    /// What members of pools begin with.
    ///
    /// # Errors
    /// See [`StoreError`].
    fn seeds(&self) -> BoxFuture<'_, Result<Vec<Seed>, StoreError>>;

    /// Writes what members begin with.
    ///
    /// # Errors
    /// See [`StoreError`].
    fn put_seed(&self, seed: Seed) -> BoxFuture<'_, Result<(), StoreError>>;

    /// Forgets what members began with.
    ///
    /// # Errors
    /// See [`StoreError`].
    fn delete_seed(&self, id: SnapshotId) -> BoxFuture<'_, Result<(), StoreError>>;

    /// The names whose images are not for everybody on this node.
    ///
    /// # Errors
    /// See [`StoreError`].
    fn private_images(&self) -> BoxFuture<'_, Result<Vec<PrivateImage>, StoreError>>;

    /// Notes that what a name means is not for everybody, new or not.
    ///
    /// # Errors
    /// See [`StoreError`].
    fn put_private_image(&self, image: PrivateImage) -> BoxFuture<'_, Result<(), StoreError>>;

    /// Notes that what a name means is for everybody.
    ///
    /// # Errors
    /// See [`StoreError`].
    fn delete_private_image(&self, name: ImageName) -> BoxFuture<'_, Result<(), StoreError>>;

    /// The tenant with this short name: `fresh` when there was none yet.
    ///
    /// # Errors
    /// See [`StoreError`].
    fn team(&self, slug: &TeamSlug, fresh: TeamId) -> BoxFuture<'_, Result<TeamId, StoreError>>;

    /// Every tenant, by its short name.
    ///
    /// # Errors
    /// See [`StoreError`].
    fn teams(&self) -> BoxFuture<'_, Result<Vec<(TeamSlug, TeamId)>, StoreError>>;

    /// The limits of the tenants that have some of their own.
    ///
    /// # Errors
    /// See [`StoreError`].
    fn team_limits(&self) -> BoxFuture<'_, Result<Vec<(TeamId, TeamLimits)>, StoreError>>;

    /// Writes the limits of a tenant.
    ///
    /// # Errors
    /// See [`StoreError`].
    fn put_team_limits(
        &self,
        team: TeamId,
        limits: TeamLimits,
    ) -> BoxFuture<'_, Result<(), StoreError>>;

    /// The key with this hash.
    ///
    /// # Errors
    /// See [`StoreError`].
    fn key_by_hash(
        &self,
        hash: &ApiKeyHash,
    ) -> BoxFuture<'_, Result<Option<KeyRecord>, StoreError>>;

    /// Every key of a team, or of all.
    ///
    /// # Errors
    /// See [`StoreError`].
    fn keys(&self, team: Option<TeamId>) -> BoxFuture<'_, Result<Vec<KeyRecord>, StoreError>>;

    /// Writes a key, new or renamed.
    ///
    /// # Errors
    /// See [`StoreError`].
    fn put_key(&self, key: KeyRecord) -> BoxFuture<'_, Result<(), StoreError>>;

    /// Forgets a key; whether there was one.
    ///
    /// # Errors
    /// See [`StoreError`].
    fn delete_key(&self, id: &KeyId) -> BoxFuture<'_, Result<bool, StoreError>>;

    /// The secret of this installation: `fresh` when there was none yet.
    ///
    /// # Errors
    /// See [`StoreError`].
    fn token_seed(&self, fresh: [u8; 32]) -> BoxFuture<'_, Result<TokenSeed, StoreError>>;
}
