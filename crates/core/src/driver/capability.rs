//! The optional capabilities of drivers.

use std::fmt;
use std::time::Duration;

use super::{DiskUse, DriverError, ExportRequest, ImportRequest, Imported, Owner, PausedNetwork};
use crate::BoxFuture;
use crate::id::{SandboxId, SnapshotId, TeamId};
use crate::limits::Granted;
use crate::network::Egress;
use crate::snapshot::{Contents, Saved};

/// A capability that a driver may lack.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Capability {
    /// See [`Checkpointer`].
    Checkpoint,
    /// See [`SnapshotTransfer`].
    Transfer,
    /// See [`Resizer`].
    Resize,
    /// See [`EgressFilter`].
    Egress,
}

impl fmt::Display for Capability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Checkpoint => "pause sandboxes or take snapshots",
            Self::Transfer => "export or import snapshots",
            Self::Resize => "change the limits of a running sandbox",
            Self::Egress => "change the network rules of a running sandbox",
        })
    }
}

/// The state of a sandbox after a snapshot of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AfterSnapshot {
    /// It resumes as soon as its memory and its files are saved.
    Resume,
    /// It stays frozen until [`Checkpointer::thaw_source`] or [`Driver::destroy`]. It resumes when
    /// the snapshot fails, and when the server restarts.
    ///
    /// [`Driver::destroy`]: super::Driver::destroy
    KeepFrozen,
}

/// Saves sandboxes: pauses, and snapshots that other sandboxes start from.
///
/// [`Start`](super::Start) names what it saved.
pub trait Checkpointer: Send + Sync {
    /// Saves a sandbox and ends its run. When this returns, the checkpoint survives a crash of the
    /// server and of the machine. A repeated call returns the same checkpoint.
    ///
    /// # Errors
    /// The sandbox keeps running.
    fn pause(
        &self,
        id: &SandboxId,
        contents: Contents,
    ) -> BoxFuture<'_, Result<Saved, DriverError>>;

    /// The bytes that are free where checkpoints are kept; `None` if that is not known.
    ///
    /// # Errors
    /// When it cannot be read.
    fn room(&self) -> BoxFuture<'_, Result<Option<u64>, DriverError>>;

    /// Prepares the next run of a paused sandbox, so that it starts sooner. Idempotent.
    ///
    /// # Errors
    /// When it fails. [`Driver::create`](super::Driver::create) then prepares the run itself.
    fn prepare_resume(
        &self,
        id: &SandboxId,
        network: PausedNetwork,
    ) -> BoxFuture<'_, Result<(), DriverError>>;

    /// Ends the run that started from the checkpoint, if there is one. Its changes are lost: the
    /// sandbox is paused as before.
    ///
    /// # Errors
    /// When there is no checkpoint, or something remains of the run. The call can be repeated.
    fn rollback_resume(&self, id: &SandboxId) -> BoxFuture<'_, Result<(), DriverError>>;

    /// Deletes the checkpoint of a resumed sandbox. Idempotent.
    ///
    /// # Errors
    /// When something remains. The call can be repeated.
    fn delete_checkpoint(&self, id: &SandboxId) -> BoxFuture<'_, Result<(), DriverError>>;

    /// Takes a snapshot of a running sandbox. The snapshot appears only when it is complete.
    ///
    /// # Errors
    /// Nothing is left of the snapshot, and the sandbox keeps running.
    fn snapshot(
        &self,
        id: &SandboxId,
        snapshot: SnapshotId,
        contents: Contents,
        after: AfterSnapshot,
    ) -> BoxFuture<'_, Result<Saved, DriverError>>;

    /// Thaws a sandbox that a snapshot left frozen ([`AfterSnapshot::KeepFrozen`]).
    ///
    /// # Errors
    /// [`DriverError::NotFound`] when it is not here. After any other error it may still be frozen,
    /// and can be destroyed.
    fn thaw_source(&self, id: &SandboxId) -> BoxFuture<'_, Result<(), DriverError>>;

    /// Waits until the programs of a running sandbox are nearly idle, for at most `timeout`. Returns
    /// false if they never were. A snapshot of idle programs holds no half-done work.
    ///
    /// # Errors
    /// [`DriverError::NotFound`] when it is not here, or ended meanwhile.
    fn wait_idle(
        &self,
        id: &SandboxId,
        timeout: Duration,
    ) -> BoxFuture<'_, Result<bool, DriverError>>;

    /// The snapshots on this node.
    ///
    /// # Errors
    /// When the node cannot be searched.
    fn snapshots(&self) -> BoxFuture<'_, Result<Vec<SnapshotId>, DriverError>>;

    /// Removes a snapshot. Sandboxes that started from it keep running. Idempotent.
    ///
    /// # Errors
    /// When something remains. The call can be repeated.
    fn remove_snapshot(&self, snapshot: SnapshotId) -> BoxFuture<'_, Result<(), DriverError>>;
}

/// Moves snapshots between installations, as files.
pub trait SnapshotTransfer: Send + Sync {
    /// Writes a snapshot to a new file, with a note for the importer. Returns the file's size in
    /// bytes. Dropping the future ends the work.
    ///
    /// # Errors
    /// No file is left.
    fn export_snapshot(&self, request: ExportRequest) -> BoxFuture<'_, Result<u64, DriverError>>;

    /// Imports an exported snapshot under a new id. Dropping the future ends the work.
    ///
    /// # Errors
    /// [`DriverError::Untrusted`] when another installation exported it; [`DriverError::Unusable`]
    /// when it is damaged or cannot run on this node. Nothing is left of it.
    fn import_snapshot(
        &self,
        request: ImportRequest,
    ) -> BoxFuture<'_, Result<Imported, DriverError>>;
}

/// Freezes running sandboxes in memory.
///
/// A frozen sandbox uses no processor time and answers nothing. Its limits and rules can change, and
/// it can be destroyed. It stays frozen when the server ends.
pub trait Freezer: Send + Sync {
    /// Freezes all processes of a sandbox. Idempotent.
    ///
    /// # Errors
    /// [`DriverError::NotFound`] when it is not here.
    fn freeze(&self, id: &SandboxId) -> BoxFuture<'_, Result<(), DriverError>>;

    /// Thaws all processes of a sandbox. Idempotent.
    ///
    /// # Errors
    /// [`DriverError::NotFound`] when it is not here.
    fn thaw(&self, id: &SandboxId) -> BoxFuture<'_, Result<(), DriverError>>;
}

/// Changes the limits of running sandboxes in place.
pub trait Resizer: Send + Sync {
    /// Sets limits of processor time and memory. Disk and the number of processes do not change.
    ///
    /// # Errors
    /// [`DriverError::CannotResize`] when the sandbox uses more memory than that. The old limits
    /// stay.
    fn resize(&self, id: &SandboxId, limits: Granted) -> BoxFuture<'_, Result<(), DriverError>>;
}

/// Changes the egress rules of running sandboxes.
pub trait EgressFilter: Send + Sync {
    /// Replaces all egress rules atomically.
    ///
    /// # Errors
    /// The old rules stay in force.
    fn set_egress(&self, id: &SandboxId, egress: Egress) -> BoxFuture<'_, Result<(), DriverError>>;
}

/// Counts the disk of sandboxes and snapshots by team.
pub trait DiskAccounts: Send + Sync {
    /// Counts the disk of a sandbox for another team from now on.
    ///
    /// # Errors
    /// [`DriverError::NotFound`] when it is not here. The disk then counts for the old team.
    fn set_owner(&self, id: &SandboxId, owner: Owner) -> BoxFuture<'_, Result<(), DriverError>>;

    /// The disk usage of a team; none if this node's file system cannot count it.
    ///
    /// # Errors
    /// When it cannot be read.
    fn disk_use(&self, team: TeamId) -> BoxFuture<'_, Result<Option<DiskUse>, DriverError>>;
}
