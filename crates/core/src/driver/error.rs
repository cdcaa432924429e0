//! What a driver cannot do.

use crate::detail::HostDetail;
use crate::id::{SandboxId, SnapshotId};
use crate::image::ImageName;
use crate::resources::Mib;
use crate::template::RuntimeName;

/// Why a driver could not do what was ordered.
#[derive(Debug, thiserror::Error)]
pub enum DriverError {
    /// It has no such sandbox.
    #[error("sandbox {0} is not on this node")]
    NotFound(SandboxId),
    /// The image is not on this node.
    #[error("image {0} is not on this node: pull it first")]
    ImageNotFound(ImageName),
    /// The snapshot is not on this node.
    #[error("snapshot {0} is not on this node")]
    SnapshotNotFound(SnapshotId),
    /// What was saved cannot be started.
    #[error("what was saved cannot be started: {0}")]
    Unusable(String),
    /// An export that this installation did not make.
    #[error(
        "this installation did not export it: what is in it would run here as it is. Give both \
         installations one `snapshots.export_key`, or import it with `--trust` if you trust \
         whoever made the file"
    )]
    Untrusted,
    /// A limit cannot be changed like that.
    #[error("cannot resize: {0}")]
    CannotResize(String),
    /// There is no such OCI runtime here.
    #[error("runtime {asked} is not available: use one of {available}")]
    RuntimeNotFound {
        /// What was asked for.
        asked: RuntimeName,
        /// What there is.
        available: String,
    },
    /// The OCI runtime cannot do this.
    #[error("runtime {runtime} cannot {operation}: use {instead}")]
    Unsupported {
        /// Which runtime.
        runtime: RuntimeName,
        /// What was asked of it.
        operation: &'static str,
        /// What can.
        instead: &'static str,
    },
    /// The node has no room for it.
    #[error("the node is full: no {0} left")]
    NodeFull(&'static str),
    /// The disk is full.
    #[error("no space left on the disk of the node")]
    NoSpace,
    /// The team holds as much of the disk as it may.
    #[error(
        "your team holds {used} of the disk, and may hold {limit} (`limits.disk_per_team`): remove \
         snapshots, or end sandboxes that are paused"
    )]
    TeamDisk {
        /// How much it holds.
        used: Mib,
        /// How much it may hold.
        limit: Mib,
    },
    /// A sandbox, or its team, holds as much of the disk as it may.
    #[error(
        "the disk quota of the sandbox or of its team is reached: remove files in the sandbox, or \
         snapshots and paused sandboxes of the team"
    )]
    DiskQuota,
    /// A step did not end, and was ended.
    #[error("cannot {step}: it takes too long: try again, or end the sandbox")]
    TooSlow {
        /// What was being done.
        step: &'static str,
        /// What did not end.
        #[source]
        detail: HostDetail,
    },
    /// A step failed.
    #[error("cannot {step}: the server's log says why")]
    Step {
        /// What was being done.
        step: &'static str,
        /// What was said.
        #[source]
        detail: HostDetail,
    },
}
