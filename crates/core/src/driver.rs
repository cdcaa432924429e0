//! The port of drivers, which run sandboxes.
//!
//! [`Driver`] is what every driver must do. A driver may have further capabilities, each a trait of
//! its own: a method such as [`Driver::checkpointer`] returns it, or none.
//!
//! Arguments are plain owned data, so that a driver can move to another process. Every call is
//! idempotent: destroying a sandbox that is gone, or was only half made, succeeds.

mod capability;
#[cfg(feature = "test-util")]
pub mod contract;
mod error;
mod report;
mod transfer;

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

pub use self::capability::{
    AfterSnapshot, Capability, Checkpointer, DiskAccounts, EgressFilter, Freezer, Resizer,
    SnapshotTransfer,
};
pub use self::error::DriverError;
pub use self::report::{Phases, StartKind, StartReport};
pub use self::transfer::{ExportKey, ExportRequest, ImportRequest, Imported, ShortSecret};
use crate::BoxFuture;
use crate::auth::Token;
use crate::id::{ExecutionId, SandboxId, SnapshotId, TeamId};
use crate::image::ImageName;
use crate::limits::{Granted, Machine};
use crate::memory::MachineMemory;
use crate::network::Egress;
use crate::resources::{Mib, MilliCpu, Usage};
use crate::snapshot::Saved;
use crate::state::FailReason;
use crate::template::RuntimeName;

/// The boundary between a sandbox and the node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Isolation {
    /// Namespaces, capabilities and a seccomp filter. The node's kernel serves system calls.
    Namespaces,
    /// A kernel in user space (gVisor) serves system calls.
    UserspaceKernel,
    /// A kernel of its own behind hardware virtualisation.
    VirtualMachine,
    /// None: a driver for tests.
    None,
}

impl Isolation {
    /// Whether the node's kernel sees file writes of the sandbox at once. A kernel of the sandbox's
    /// own caches some of them until a sync.
    #[must_use]
    pub fn shares_files(self) -> bool {
        matches!(self, Self::Namespaces)
    }
}

/// An OCI runtime on this node, and its features.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuntimeInfo {
    /// Its name.
    pub name: RuntimeName,
    /// The version that it reports.
    pub version: String,
    /// Identifies this build of it. Another build may not be able to restore memory that this one
    /// saved.
    pub build: String,
    /// Its isolation.
    pub isolation: Isolation,
    /// Whether it can save and restore memory.
    pub memory_snapshot: bool,
    /// Whether containers can run inside.
    pub nested_containers: bool,
    /// Whether connections can outlive a save of a sandbox: see [`StartSpec::keep_connections`].
    #[serde(default)]
    pub keeps_connections: bool,
    /// The processor time that an idle sandbox of it uses.
    pub idle_cpu: MilliCpu,
}

/// The resources and runtimes of a driver on this node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Capabilities {
    /// The driver's name.
    pub driver: String,
    /// Its OCI runtimes. The first is the default.
    pub runtimes: Vec<RuntimeInfo>,
    /// Identifies the daemon of new sandboxes. Restored memory keeps the daemon it was saved with.
    pub daemon: String,
    /// How the disk of a sandbox is bounded, for people.
    pub disk_limit: String,
    /// All processor time of the node.
    pub cpu: MilliCpu,
    /// All memory of the node.
    pub memory: Mib,
    /// The disk for all sandboxes, without the server's reserve. None if it is not bounded.
    pub disk: Option<Mib>,
}

impl Capabilities {
    /// The node's resources for sandboxes.
    #[must_use]
    pub fn machine(&self) -> Machine {
        Machine {
            cpu: self.cpu,
            memory: self.memory,
            disk: self.disk,
        }
    }
}

/// The origin of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Start {
    /// An image alone.
    Image(ImageName),
    /// A snapshot of another sandbox. It stays unchanged.
    Snapshot {
        /// Its id.
        id: SnapshotId,
        /// Whether to restore its memory, if it has any. Otherwise the sandbox boots from its files.
        memory: bool,
    },
    /// The checkpoint that [`Checkpointer::pause`] made of this sandbox. It stays unchanged until
    /// [`Checkpointer::delete_checkpoint`].
    Paused {
        /// Whether to restore its memory, if it has any. Otherwise the sandbox boots from its files.
        memory: bool,
        /// The network of the run that was saved.
        network: PausedNetwork,
    },
}

/// The network of a sandbox whose run was saved and has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum PausedNetwork {
    /// It is removed. The next run has another address.
    #[default]
    Removed,
    /// It stays for the next run, which has the same address, if it still exists by then. Connections that were idle
    /// go on where they were, if the run kept them ([`StartSpec::keep_connections`]).
    Kept,
}

/// The team that a sandbox's disk counts for. All sandboxes and snapshots of a team share one limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owner {
    /// The team.
    pub team: TeamId,
    /// Its limit, if it has one.
    pub disk: Option<Mib>,
}

/// The disk usage of a team.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiskUse {
    /// In bytes.
    pub bytes: u64,
}

/// A run of a sandbox to start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StartSpec {
    /// The sandbox.
    pub id: SandboxId,
    /// The run that this starts.
    pub execution: ExecutionId,
    /// Its origin.
    pub start: Start,
    /// The OCI runtime. By default the one that saved the checkpoint or snapshot, or else the
    /// driver's default.
    pub runtime: Option<RuntimeName>,
    /// Its limits, and the most processor time that [`Resizer::resize`] may give it.
    pub limits: Granted,
    /// The team that its disk counts for.
    pub owner: Owner,
    /// Its egress rules.
    pub egress: Egress,
    /// The environment of its first process.
    pub env: BTreeMap<String, String>,
    /// Whether containers run inside. A driver refuses it for a runtime without
    /// [`RuntimeInfo::nested_containers`].
    pub privileged: bool,
    /// Whether saves of its memory keep its connections, for [`PausedNetwork::Kept`]. Otherwise a save ends them. A
    /// runtime without [`RuntimeInfo::keeps_connections`] ignores it, and the report says so.
    pub keep_connections: bool,
    /// The token that the daemon requires from its first moment. The driver passes it where no other
    /// process sees it. Restored memory already has a token.
    pub guest_token: Token,
}

/// A sandbox that a driver found.
#[derive(Debug, Clone, PartialEq)]
pub struct Found {
    /// Its id.
    pub id: SandboxId,
    /// Its run.
    pub execution: ExecutionId,
    /// Whether its first process runs.
    pub alive: bool,
    /// Its checkpoint, if it has one.
    pub paused: Option<FoundPaused>,
}

/// A checkpoint that a driver found.
#[derive(Debug, Clone, PartialEq)]
pub struct FoundPaused {
    /// The run that was saved. It may be older than the recorded one: a resumed sandbox keeps its
    /// checkpoint until [`Checkpointer::delete_checkpoint`].
    pub execution: ExecutionId,
    /// The checkpoint.
    pub saved: Saved,
}

/// An event of a driver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DriverEvent {
    /// A sandbox ended without a request.
    Failed {
        /// The sandbox.
        id: SandboxId,
        /// Its run.
        execution: ExecutionId,
        /// Why it ended.
        reason: FailReason,
    },
    /// The daemon inside wrote to its log.
    Output {
        /// The sandbox.
        id: SandboxId,
        /// Whole lines without line ends. The driver bounds their length.
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
///
/// The capabilities below default to none. A driver that has one returns itself.
pub trait Driver: Send + Sync {
    /// Its resources and runtimes on this node.
    fn capabilities(&self) -> &Capabilities;

    /// Starts a run of a sandbox. A failure leaves nothing of the run, does not change what it would
    /// have started from, and does not touch a sandbox that already runs under the id.
    ///
    /// A driver that cannot enforce the spec's egress rules must fail. The phase `ready` of the
    /// report is zero: the caller waits for the daemon.
    ///
    /// # Errors
    /// See [`DriverError`].
    fn create(&self, spec: StartSpec) -> BoxFuture<'_, Result<StartReport, DriverError>>;

    /// Ends a sandbox and removes all of it: processes, mounts, namespaces, files, checkpoint.
    /// Idempotent.
    ///
    /// # Errors
    /// When something remains. The call can be repeated.
    fn destroy(&self, id: &SandboxId) -> BoxFuture<'_, Result<(), DriverError>>;

    /// The current resource usage of a sandbox.
    ///
    /// # Errors
    /// [`DriverError::NotFound`] when it does not run here.
    fn usage(&self, id: &SandboxId) -> BoxFuture<'_, Result<Usage, DriverError>>;

    /// The memory of the node; `None` if it is not known.
    ///
    /// # Errors
    /// When it cannot be read.
    fn memory(&self) -> BoxFuture<'_, Result<Option<MachineMemory>, DriverError>> {
        Box::pin(async { Ok(None) })
    }

    /// All sandboxes, complete or not. From then on the driver watches those that run.
    ///
    /// # Errors
    /// When the node cannot be searched.
    fn inventory(&self) -> BoxFuture<'_, Result<Vec<Found>, DriverError>>;

    /// The next event; none when the driver has ended. One caller at a time.
    fn next_event(&self) -> BoxFuture<'_, Option<DriverEvent>>;

    /// Pauses and snapshots.
    fn checkpointer(&self) -> Option<&dyn Checkpointer> {
        None
    }

    /// Exports and imports of snapshots.
    fn snapshot_transfer(&self) -> Option<&dyn SnapshotTransfer> {
        None
    }

    /// Stops processes in place.
    fn freezer(&self) -> Option<&dyn Freezer> {
        None
    }

    /// Changes limits in place.
    fn resizer(&self) -> Option<&dyn Resizer> {
        None
    }

    /// Changes egress rules in place.
    fn egress_filter(&self) -> Option<&dyn EgressFilter> {
        None
    }

    /// Counts disk by team.
    fn disk_accounts(&self) -> Option<&dyn DiskAccounts> {
        None
    }
}
