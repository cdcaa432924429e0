//! Why the agent does not get on.

use std::time::Duration;

use shoal_checkpoint::StoreError;

use crate::objects::ObjectsError;
use crate::room::NoRoom;

/// Why the pod cannot be saved. It is shown to the user and final.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unsaved {
    #[error("pod {0} is gone, or is not running any more")]
    Gone(String),
    #[error("the checkpoint names no pod")]
    NoPod,
    #[error("pod {pod} is on node {of}, not here")]
    Elsewhere { pod: String, of: String },
    #[error(
        "pod {0} was not started by shoal-runsc, which saves pods: give it runtimeClassName: shoal, and make it again"
    )]
    Runtime(String),
    #[error(
        "pod {pod} runs in another build of runsc than this node has now: make the pod again, and then save it"
    )]
    Replaced { pod: String },
    #[error(
        "volume {0} (emptyDir) is outside of the sandbox: make the pod through a Sandbox, or with gVisor's annotations for \
         shared volumes"
    )]
    Volume(String),
    #[error(
        "keepRunning: false ends the containers, and a pod with restartPolicy: Always would start them again: use Never or \
         OnFailure"
    )]
    Restarts,
    #[error(
        "init container {1} mounts volume {0} (emptyDir) before the others, and a restored pod has no init containers: fill the \
         volume in a container that stays"
    )]
    Filled(String, String),
    #[error(
        "the operator has not deleted the pod, and its containers would be started again: is `shoal operator` running?"
    )]
    NotDeleted,
    #[error("container {0} is a sidecar among the init containers: list it among the containers")]
    Sidecar(String),
    #[error(
        "container {0} is a debugging container, and a restored pod has none: save the pod again when it has ended"
    )]
    Ephemeral(String),
    #[error(
        "the image of container {0} is not mounted as an overlay, so nothing would tell it from another: use containerd's \
         overlayfs snapshotter"
    )]
    Layers(String),
    #[error("container {0} ended while the pod was being saved: try again")]
    Ended(String),
    #[error(
        "pod {pod} ended while it was being saved, perhaps because it used up its memory: see its events, and save it again when \
         it runs ({why})"
    )]
    Killed { pod: String, why: Box<Unsaved> },
    #[error("{0}")]
    Room(#[from] NoRoom),
    #[error("runsc {command} failed: {why}")]
    Runsc { command: &'static str, why: String },
    #[error("runsc {command} took more than {} s", limit.as_secs())]
    Slow {
        command: &'static str,
        limit: Duration,
    },
    #[error("the checkpoint cannot be kept: {0}")]
    Store(#[from] StoreError),
    #[error("the checkpoint's UID is none")]
    Uid,
}

/// Why a pass failed. It is repeated.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    #[error("{0}")]
    Api(#[from] kube::Error),
    #[error("{0}")]
    Store(#[from] StoreError),
    #[error("a task ended without a result: {0}")]
    Aborted(#[from] tokio::task::JoinError),
    #[error("the pod is saved and has not ended: {0}")]
    NotEnded(Unsaved),
    #[error("the agent stops")]
    Stopping,
    #[error("{0}")]
    Transfer(#[from] ObjectsError),
}

/// Why a save ended without a checkpoint.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SaveError {
    /// The user learns of it.
    #[error(transparent)]
    Unsaved(#[from] Unsaved),
    /// It is repeated.
    #[error(transparent)]
    Failed(#[from] Failure),
}

impl SaveError {
    /// The same when the checkpoint is complete: the user learns of nothing that failed, and it is repeated.
    pub(crate) fn after_save(self) -> Failure {
        match self {
            Self::Unsaved(why) => Failure::NotEnded(why),
            Self::Failed(failure) => failure,
        }
    }
}

impl From<kube::Error> for SaveError {
    fn from(error: kube::Error) -> Self {
        Self::Failed(error.into())
    }
}

impl From<StoreError> for SaveError {
    fn from(error: StoreError) -> Self {
        Self::Unsaved(error.into())
    }
}

impl From<tokio::task::JoinError> for SaveError {
    fn from(error: tokio::task::JoinError) -> Self {
        Self::Failed(error.into())
    }
}
