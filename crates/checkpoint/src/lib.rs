//! Checkpoints of pods on a Kubernetes node. The node agent writes them, and the wrapper around runsc restores pods
//! from them: both use these rules and formats.

#![cfg_attr(test, allow(clippy::unwrap_used, reason = "tests"))]

use std::collections::BTreeMap;

mod digest;
mod id;
mod machine;
mod manifest;
mod records;
mod store;
mod volumes;

pub use self::digest::{Digested, file_digest};
pub use self::id::{CheckpointId, InvalidId, Key};
pub use self::machine::features;
pub use self::manifest::{Candidate, Contents, Manifest, Refusal, SavedContainer, SavedFile};
pub use self::records::{ContainerRecord, InvalidName, Records, Restore, SandboxRecord};
pub use self::store::{Fetch, Fetching, LARGEST_MANIFEST, MANIFEST, Staged, Store, StoreError};
pub use self::volumes::{hints, kept_volumes};

/// The annotation of a pod that names the checkpoint to start from. The operator sets it; the runtime reads it.
pub const RESTORE_FROM: &str = "shoal.dev/restore-from";
/// The annotation of a restored pod whose checkpoint may come from another node: the digests of its images by container, in
/// JSON. The operator sets it where it adds these digests to the images of the pod.
pub const IMAGES: &str = "shoal.dev/images";
/// The annotation of a pod that names the container in which the runtime starts the daemon, before the container's own
/// program and as a child of it. A hook cannot start it: processes of `exec` end in a restored pod.
pub const DAEMON: &str = "shoal.dev/daemon";
/// The volume of that container that has the daemon, and its place in the container.
pub const DAEMON_VOLUME: &str = "shoal-runtime";
/// See [`DAEMON_VOLUME`].
pub const DAEMON_PLACE: &str = "/shoal-runtime";
/// The init container that puts the daemon into that volume.
pub const DAEMON_INIT: &str = "runtime";
/// The daemon, in that volume.
pub const DAEMON_PROGRAM: &str = "/shoal-runtime/shoal-envd";
/// The prefix of annotations that the runtime obeys. Only the operator may set them on a sandbox's pod.
pub const RUNTIME_PREFIX: &str = "shoal.dev/";
/// The image of a container as its pod's template names it: a pod with the annotation [`IMAGES`] names it by its digest, too.
#[must_use]
pub fn template_image<'a>(
    annotations: Option<&BTreeMap<String, String>>,
    image: &'a str,
) -> &'a str {
    let pinned = annotations.is_some_and(|annotations| annotations.contains_key(IMAGES));
    match image.split_once('@') {
        Some((named, _)) if pinned => named,
        _ => image,
    }
}

/// The directory of a node's checkpoints.
pub const STORE: &str = "/var/lib/shoal/checkpoints";
