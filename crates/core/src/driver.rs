//! The port behind which sandboxes really run.
//!
//! Arguments are plain owned data, so that a driver can be moved to another process. Every call
//! is safe to repeat: destroying what is gone is a success, and destroying what was never quite
//! made is too.

#[cfg(feature = "test-util")]
pub mod contract;
mod error;
mod report;
mod transfer;

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use self::error::DriverError;
pub use self::report::{Origin, Phases, StartReport};
pub use self::transfer::{ExportKey, ExportOrder, ImportOrder, Imported, ShortSecret};
use crate::BoxFuture;
use crate::auth::Token;
use crate::id::{ExecutionId, SandboxId, SnapshotId, TeamId};
use crate::image::ImageName;
use crate::limits::{Granted, Machine};
use crate::network::Egress;
use crate::resources::{Mib, MilliCpu, Usage};
use crate::snapshot::{Contents, Saved};
use crate::state::FailReason;
use crate::template::RuntimeName;

/// What stands between a sandbox and the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Isolation {
    /// Namespaces, capabilities and a seccomp filter: the machine's kernel serves its calls.
    Namespaces,
    /// A kernel in user space (gVisor) serves its calls.
    UserspaceKernel,
    /// A kernel of its own behind hardware virtualisation.
    VirtualMachine,
    /// None: a driver for tests.
    None,
}

impl Isolation {
    /// Whether the machine's kernel knows at once what programs of the sandbox write to files. A kernel
    /// of the sandbox's own keeps some of it to itself until it is asked to write it.
    #[must_use]
    pub fn shares_files(self) -> bool {
        matches!(self, Self::Namespaces)
    }
}

/// What becomes of a sandbox that a snapshot was taken of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Source {
    /// It goes on as soon as its memory and its files are kept.
    GoesOn,
    /// It is held still, until it is let go on or destroyed; a restart of the server lets it go on. It
    /// goes on at once when the snapshot fails.
    StaysStill,
}

/// What one OCI runtime can do here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuntimeInfo {
    /// Its name.
    pub name: RuntimeName,
    /// Its version, as it says.
    pub version: String,
    /// What tells this build of it from another: memory that one has saved another may not be able to
    /// read.
    pub build: String,
    /// What it isolates with.
    pub isolation: Isolation,
    /// Whether memory can be saved and started again.
    pub memory_snapshot: bool,
    /// Whether containers can run inside.
    pub nested_containers: bool,
}

/// What a driver can do here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Capabilities {
    /// The driver's name.
    pub driver: String,
    /// The OCI runtimes it found; the first is the default.
    pub runtimes: Vec<RuntimeInfo>,
    /// What tells the daemon in new sandboxes from another: memory keeps the one that it was saved
    /// with.
    pub daemon: String,
    /// How the disk of a sandbox is bounded, for people.
    pub disk_limit: String,
    /// All the processor time that there is here.
    pub cpu: MilliCpu,
    /// All the memory that there is here.
    pub memory: Mib,
    /// The disk that all sandboxes have together, without what is kept for the server; none where it is
    /// not bounded.
    pub disk: Option<Mib>,
}

impl Capabilities {
    /// What there is for sandboxes.
    #[must_use]
    pub fn machine(&self) -> Machine {
        Machine {
            cpu: self.cpu,
            memory: self.memory,
            disk: self.disk,
        }
    }
}

/// What a run starts from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Start {
    /// Nothing but the image.
    Image(ImageName),
    /// What was saved of another sandbox, which stays as it is.
    Snapshot {
        /// Which.
        id: SnapshotId,
        /// Whether its memory goes on, if it was kept; else it boots from its files.
        memory: bool,
    },
    /// What was saved of this very sandbox by [`Driver::pause`], which stays as it is until
    /// [`Driver::discard_pause`].
    Paused {
        /// Whether its memory goes on, if it was kept; else it boots from its files.
        memory: bool,
    },
}

/// Who disk is counted for: what a team's sandboxes and snapshots hold is one sum.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owner {
    /// Which team.
    pub team: TeamId,
    /// How much it may hold in all, if that is bounded.
    pub disk: Option<Mib>,
}

/// What a team holds of the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiskUse {
    /// How much that is, in bytes.
    pub bytes: u64,
}

/// One run of a sandbox to be started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CreateOrder {
    /// Its id.
    pub id: SandboxId,
    /// The run that this begins.
    pub execution: ExecutionId,
    /// What it starts from.
    pub start: Start,
    /// The OCI runtime. When none is named: the one that it was saved from, or the default.
    pub runtime: Option<RuntimeName>,
    /// Limits, and the most processor time that [`Driver::resize`] will give it.
    pub limits: Granted,
    /// Who its disk is counted for.
    pub owner: Owner,
    /// What it may reach.
    pub egress: Egress,
    /// Environment of its first process.
    pub env: BTreeMap<String, String>,
    /// What the daemon asks of callers from its first moment on, handed over where no other process
    /// sees it. Memory that goes on has a token already.
    pub guest_token: Token,
}

/// A sandbox that a driver found.
#[derive(Debug, Clone, PartialEq)]
pub struct Found {
    /// Its id.
    pub id: SandboxId,
    /// The run it belongs to.
    pub execution: ExecutionId,
    /// Whether its first process runs.
    pub alive: bool,
    /// What was saved by [`Driver::pause`], if it was and that was not discarded.
    pub paused: Option<FoundPaused>,
}

/// What a driver found that was saved of a sandbox.
#[derive(Debug, Clone, PartialEq)]
pub struct FoundPaused {
    /// The run that was saved. It may be an earlier one than is noted: what it was resumed from is
    /// there until it is discarded.
    pub execution: ExecutionId,
    /// What was saved.
    pub saved: Saved,
}

/// What a driver noticed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DriverEvent {
    /// A sandbox stopped without being asked to.
    Failed {
        /// Which.
        id: SandboxId,
        /// In which run.
        execution: ExecutionId,
        /// Why.
        reason: FailReason,
    },
    /// The daemon inside wrote to its log.
    Output {
        /// Which sandbox.
        id: SandboxId,
        /// Whole lines, without their ends; each bounded by the driver.
        lines: Vec<String>,
    },
}

impl fmt::Display for Isolation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Namespaces => "namespaces",
            Self::UserspaceKernel => "userspace_kernel",
            Self::VirtualMachine => "virtual_machine",
            Self::None => "none",
        })
    }
}

/// Runs sandboxes.
pub trait Driver: Send + Sync {
    /// What it can do here.
    fn capabilities(&self) -> &Capabilities;

    /// Starts a run of a sandbox. When it fails nothing is left of the run, and what it would have
    /// started from is as it was; a sandbox that runs under the id already is not touched. The
    /// phase `ready` of the report is zero: whether the daemon inside answers is for the caller to
    /// see.
    ///
    /// # Errors
    /// See [`DriverError`].
    fn create(&self, order: CreateOrder) -> BoxFuture<'_, Result<StartReport, DriverError>>;

    /// Ends a sandbox and clears all that was its: processes, mounts, namespaces, files. Success
    /// when there is nothing of it.
    ///
    /// # Errors
    /// When something could not be cleared; the call may be repeated.
    fn destroy(&self, id: &SandboxId) -> BoxFuture<'_, Result<(), DriverError>>;

    /// Saves a sandbox and ends its run. When this has returned, what was saved outlives the server
    /// and the machine; it is what [`Start::Paused`] starts from. Success when it is saved
    /// already.
    ///
    /// # Errors
    /// The sandbox runs on.
    fn pause(
        &self,
        id: &SandboxId,
        contents: Contents,
    ) -> BoxFuture<'_, Result<Saved, DriverError>>;

    /// Makes ready what the next run of a paused sandbox needs, so that it begins sooner. Success
    /// when it is ready already.
    ///
    /// # Errors
    /// When it cannot be; [`Driver::create`] then does it itself.
    fn prepare_resume(&self, id: &SandboxId) -> BoxFuture<'_, Result<(), DriverError>>;

    /// Ends the run of a sandbox that was paused, if there is one: what it has changed is lost, and
    /// the sandbox is as it was saved.
    ///
    /// # Errors
    /// When it was not paused, or something could not be cleared; the call may be repeated.
    fn back_to_pause(&self, id: &SandboxId) -> BoxFuture<'_, Result<(), DriverError>>;

    /// Forgets what was saved of a sandbox that runs again. Success when there is nothing.
    ///
    /// # Errors
    /// When something stays; the call may be repeated.
    fn discard_pause(&self, id: &SandboxId) -> BoxFuture<'_, Result<(), DriverError>>;

    /// Saves a sandbox beside it, under a name of its own, while it goes on, or stays held still as if
    /// nobody had let it go on. The name is visible only when all of it is there.
    ///
    /// # Errors
    /// Nothing is left of the snapshot, and the sandbox runs on.
    fn snapshot(
        &self,
        id: &SandboxId,
        snapshot: SnapshotId,
        contents: Contents,
        source: Source,
    ) -> BoxFuture<'_, Result<Saved, DriverError>>;

    /// Lets a sandbox go on that a snapshot has left held still.
    ///
    /// # Errors
    /// [`DriverError::NotFound`] when it is not here; else it may stand still yet, and be destroyed.
    fn go_on(&self, id: &SandboxId) -> BoxFuture<'_, Result<(), DriverError>>;

    /// The snapshots on this node.
    ///
    /// # Errors
    /// When the node cannot be searched.
    fn snapshots(&self) -> BoxFuture<'_, Result<Vec<SnapshotId>, DriverError>>;

    /// Removes a snapshot; what was started from it goes on. Success when there is none.
    ///
    /// # Errors
    /// When something stays; the call may be repeated.
    fn remove_snapshot(&self, snapshot: SnapshotId) -> BoxFuture<'_, Result<(), DriverError>>;

    /// Writes a snapshot to a new file of the node, for [`Driver::import_snapshot`] on another one,
    /// with a note for whoever imports it. Returns how many bytes it has. A future that is dropped
    /// ends the work.
    ///
    /// # Errors
    /// There is no file then.
    fn export_snapshot(&self, order: ExportOrder) -> BoxFuture<'_, Result<u64, DriverError>>;

    /// Takes in a snapshot that was exported, under a new name. A future that is dropped ends the
    /// work.
    ///
    /// # Errors
    /// [`DriverError::Untrusted`] when another installation exported it; [`DriverError::Unusable`]
    /// when it is damaged, or cannot run on this node; nothing is left of it then.
    fn import_snapshot(&self, order: ImportOrder) -> BoxFuture<'_, Result<Imported, DriverError>>;

    /// Gives a sandbox that runs other limits of processor time and memory, in place. Its disk and
    /// the number of its processes stay.
    ///
    /// # Errors
    /// [`DriverError::CannotResize`] when it uses more memory than that; the old limits stay.
    fn resize(&self, id: &SandboxId, limits: Granted) -> BoxFuture<'_, Result<(), DriverError>>;

    /// Counts the disk of a sandbox that is here for another team from now on.
    ///
    /// # Errors
    /// [`DriverError::NotFound`] when it is not here; it is counted for the old one then.
    fn set_owner(&self, id: &SandboxId, owner: Owner) -> BoxFuture<'_, Result<(), DriverError>>;

    /// What a team holds of the disk; none where that is not counted.
    ///
    /// # Errors
    /// When it cannot be read.
    fn disk_use(&self, team: TeamId) -> BoxFuture<'_, Result<Option<DiskUse>, DriverError>>;

    /// Holds all processes of a sandbox that runs still where they are, in memory, or lets them go on;
    /// success when it is so already. Still, they use no processor time and answer nothing. Limits and
    /// rules can be changed meanwhile, and it can be destroyed; it stays still when the server goes.
    ///
    /// # Errors
    /// [`DriverError::NotFound`] when it is not here.
    fn hold(&self, id: &SandboxId, still: bool) -> BoxFuture<'_, Result<(), DriverError>>;

    /// Waits until the programs of a sandbox that runs do next to nothing, for as long as `within`. False
    /// when they were never that quiet.
    ///
    /// # Errors
    /// [`DriverError::NotFound`] when it is not here, or not any more.
    fn until_quiet(
        &self,
        id: &SandboxId,
        within: Duration,
    ) -> BoxFuture<'_, Result<bool, DriverError>>;

    /// Puts other rules in force while the sandbox runs, all at once.
    ///
    /// # Errors
    /// The old rules stay in force.
    fn set_egress(&self, id: &SandboxId, egress: Egress) -> BoxFuture<'_, Result<(), DriverError>>;

    /// What the sandbox uses now.
    ///
    /// # Errors
    /// [`DriverError::NotFound`] when it is not here.
    fn usage(&self, id: &SandboxId) -> BoxFuture<'_, Result<Usage, DriverError>>;

    /// Everything there is, whole or half made, and watches what is alive from then on.
    ///
    /// # Errors
    /// When the node cannot be searched.
    fn inventory(&self) -> BoxFuture<'_, Result<Vec<Found>, DriverError>>;

    /// The next thing noticed; none when the driver has ended. One caller at a time.
    fn next_event(&self) -> BoxFuture<'_, Option<DriverEvent>>;
}
