//! Snapshots: taken from a sandbox, listed, removed, exported and imported.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::BoxFuture;
use crate::auth::{Principal, SandboxPermit};
use crate::driver::DriverError;
use crate::id::{SandboxId, SnapshotId};
use crate::ports::sandboxes::SandboxError;
use crate::ports::{NoEntropy, NotServed};
use crate::snapshot::{Contents, SnapshotRecord};
use crate::store::StoreError;
use crate::template::TemplateRef;

/// A snapshot to take.
#[derive(Debug, Clone)]
pub struct NewSnapshot {
    /// Its name; a snapshot without one is known by its id.
    pub name: Option<TemplateRef>,
    /// The contents to keep; the default of the sandbox's template when absent.
    pub contents: Option<Contents>,
    /// Whether the sandbox keeps running.
    pub keep_running: bool,
    /// After how long the snapshot expires.
    pub ttl: Option<Duration>,
    /// How long the caller waits; the snapshot is finished all the same.
    pub wait: Duration,
}

impl Default for NewSnapshot {
    /// The defaults of Agent-Sandbox.
    fn default() -> Self {
        Self {
            name: None,
            contents: None,
            keep_running: true,
            ttl: None,
            wait: Duration::from_secs(60),
        }
    }
}

/// Why a name cannot be given to a snapshot.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotNameError {
    /// The name is in another team's namespace.
    #[error("'{0}' is in the namespace of another team")]
    Namespace(TemplateRef),
    /// A template has this name, or is being built under it.
    #[error("'{0}' is the name of a template: choose another")]
    Taken(TemplateRef),
}

/// Why no snapshot was taken.
#[derive(Debug, thiserror::Error)]
pub enum TakeError {
    /// The sandbox could not be saved.
    #[error(transparent)]
    Sandbox(#[from] SandboxError),
    /// The name cannot be given.
    #[error(transparent)]
    Name(#[from] SnapshotNameError),
    /// The snapshot takes longer than the caller wanted to wait.
    #[error("the snapshot is not finished after {} s; it is listed when it is", .0.as_secs())]
    TooLong(Duration),
}

/// Why an operation on a snapshot was not done.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    /// No such snapshot exists, or it belongs to another team.
    #[error("snapshot '{0}' not found")]
    NotFound(TemplateRef),
    /// The name of an import cannot be given.
    #[error(transparent)]
    Name(#[from] SnapshotNameError),
    /// The memory in the snapshot holds the access token of a sandbox that still exists.
    #[error(
        "the memory in it holds the access token of sandbox {0}, which still exists: rotate its token \
         or end it first, or export a snapshot of the files alone"
    )]
    LiveToken(SandboxId),
    /// The tag is the only one of another version of the snapshot.
    #[error(
        "tag '{0}' is the only one of another version of this snapshot: delete that version or give it \
         another tag first"
    )]
    OnlyTag(String),
    /// The driver failed.
    #[error(transparent)]
    Driver(#[from] DriverError),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The team has reached its limit of snapshots.
    #[error(transparent)]
    Full(SandboxError),
    /// The system has no randomness.
    #[error(transparent)]
    Entropy(#[from] NoEntropy),
    /// The backend does not serve this.
    #[error(transparent)]
    NotServed(#[from] NotServed),
}

/// Which snapshots to list.
#[derive(Debug, Clone, Default)]
pub struct SnapshotFilter {
    /// Only those taken of this sandbox.
    pub source: Option<SandboxId>,
    /// Only those that this reference means; a reference without a tag means all tags.
    pub named: Option<TemplateRef>,
}

/// The snapshots of all teams.
pub trait Snapshots: Send + Sync {
    /// Takes a snapshot and waits until it is complete. Continues when the caller stops waiting.
    ///
    /// # Errors
    /// See [`TakeError`]; the sandbox keeps running.
    fn take<'a>(
        &'a self,
        principal: &'a Principal,
        permit: &'a SandboxPermit,
        new: NewSnapshot,
    ) -> BoxFuture<'a, Result<SnapshotRecord, TakeError>>;

    /// The snapshots of the team of `principal`, the newest first.
    fn list(&self, principal: &Principal, filter: &SnapshotFilter) -> Vec<Arc<SnapshotRecord>>;

    /// Gives more tags to the snapshot that `reference` means, and returns its id. A tag moves from
    /// another version of the snapshot if that one has more than this tag.
    ///
    /// # Errors
    /// See [`SnapshotError`]; no tag is changed then.
    fn add_tags<'a>(
        &'a self,
        principal: &'a Principal,
        reference: &'a TemplateRef,
        tags: &'a [String],
    ) -> BoxFuture<'a, Result<SnapshotId, SnapshotError>>;

    /// Removes the tag that `reference` names, and its snapshot if it was the last one. Without a tag
    /// in `reference` all versions are removed. Sandboxes that were started from them keep running.
    ///
    /// # Errors
    /// See [`SnapshotError`].
    fn delete<'a>(
        &'a self,
        principal: &'a Principal,
        reference: &'a TemplateRef,
    ) -> BoxFuture<'a, Result<(), SnapshotError>>;

    /// Writes a snapshot to a new file, and returns its size in bytes.
    ///
    /// # Errors
    /// See [`SnapshotError`]; no file is left then.
    fn export<'a>(
        &'a self,
        principal: &'a Principal,
        reference: &'a TemplateRef,
        target: PathBuf,
    ) -> BoxFuture<'a, Result<u64, SnapshotError>>;

    /// Imports an exported snapshot for the team of `principal`, under `name` or its former name. With
    /// `trust` another installation may have made the export: its memory and programs run here as they
    /// are.
    ///
    /// # Errors
    /// See [`SnapshotError`]; nothing is left of it then.
    fn import<'a>(
        &'a self,
        principal: &'a Principal,
        source: PathBuf,
        name: Option<TemplateRef>,
        trust: bool,
    ) -> BoxFuture<'a, Result<SnapshotRecord, SnapshotError>>;
}
