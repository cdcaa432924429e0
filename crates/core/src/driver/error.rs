//! Errors of drivers.

use super::Capability;
use crate::detail::HostDetail;
use crate::id::{SandboxId, SnapshotId};
use crate::image::ImageName;
use crate::resources::Mib;
use crate::template::RuntimeName;

/// Why an operation of a driver failed.
#[derive(Debug, thiserror::Error)]
pub enum DriverError {
    /// The sandbox is not on this node.
    #[error("sandbox {0} is not on this node")]
    NotFound(SandboxId),
    /// The image is not on this node.
    #[error("image {0} is not on this node: pull it first")]
    ImageNotFound(ImageName),
    /// The snapshot is not on this node.
    #[error("snapshot {0} is not on this node")]
    SnapshotNotFound(SnapshotId),
    /// A checkpoint or snapshot cannot be started.
    #[error("what was saved cannot be started: {0}")]
    Unusable(String),
    /// Another installation made the export.
    #[error(
        "this installation did not export the file, and its programs would run here unchecked. Give \
         both installations one `snapshots.export_key`, or import it with `--trust` if you trust its \
         source"
    )]
    Untrusted,
    /// The limits cannot change in place.
    #[error("cannot resize: {0}")]
    CannotResize(String),
    /// The OCI runtime is not on this node.
    #[error("runtime {asked} is not available: use one of {available}")]
    RuntimeNotFound {
        /// The requested runtime.
        asked: RuntimeName,
        /// The runtimes of this node, for people.
        available: String,
    },
    /// The OCI runtime lacks a feature.
    #[error("runtime {runtime} cannot {operation}: use {instead}")]
    Unsupported {
        /// The runtime.
        runtime: RuntimeName,
        /// The requested operation.
        operation: &'static str,
        /// The replacement, for people.
        instead: &'static str,
    },
    /// The driver of the sandbox lacks a capability. Nothing was started.
    #[error("runtime {runtime} cannot {capability}: use a sandbox of another runtime")]
    Lacks {
        /// The runtime of the sandbox.
        runtime: RuntimeName,
        /// The capability that the operation needs.
        capability: Capability,
    },
    /// The node has reached a limit.
    #[error("the node is full: no {0} left")]
    NodeFull(&'static str),
    /// The disk of the node is full.
    #[error("no space left on the disk of the node")]
    NoSpace,
    /// The team has reached its disk limit.
    #[error(
        "your team holds {used} of the disk, and may hold {limit} (`limits.disk_per_team`): remove \
         snapshots, or end sandboxes that are paused"
    )]
    TeamDisk {
        /// Its usage.
        used: Mib,
        /// Its limit.
        limit: Mib,
    },
    /// A sandbox, or its team, has reached its disk quota.
    #[error(
        "the disk quota of the sandbox or of its team is reached: remove files in the sandbox, or \
         snapshots and paused sandboxes of the team"
    )]
    DiskQuota,
    /// A step exceeded its timeout and was ended.
    #[error("cannot {step}: it takes too long: try again, or end the sandbox")]
    TooSlow {
        /// The step.
        step: &'static str,
        /// The process that did not end.
        #[source]
        detail: HostDetail,
    },
    /// A step failed.
    #[error("cannot {step}: the server's log says why")]
    Step {
        /// The step.
        step: &'static str,
        /// The cause, for the log.
        #[source]
        detail: HostDetail,
    },
}
