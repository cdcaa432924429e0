//! Fetches checkpoints of other nodes for pods of this one. `shoal-runsc` waits for them meanwhile.

use std::path::Path;
use std::sync::Arc;

use futures_util::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::runtime::{WatchStreamExt, watcher};
use shoal_checkpoint::{CheckpointId, IMAGES, Manifest, RESTORE_FROM, StoreError};

use crate::agent::Agent;
use crate::failure::{Failure, SaveError};
use crate::objects::{Objects, ObjectsError};
use crate::peers::{Peer, PeerError, Peers};
use crate::room::Needed;
use crate::share::Attempts;

/// A pod that starts from a checkpoint, which may be one of another node.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Wanted {
    namespace: String,
    pod: String,
    id: CheckpointId,
}

/// Watches the pods of this node as long as the program runs.
pub(crate) async fn watch(agent: Arc<Agent>) {
    let of_node = format!("spec.nodeName={}", agent.node);
    let config = watcher::Config::default().fields(&of_node);
    let pods = watcher(agent.cluster.pods(), config).default_backoff();
    let mut pods = Box::pin(pods.applied_objects());
    while let Some(seen) = pods.next().await {
        match seen {
            Ok(pod) => {
                if let Some(wanted) = wanted(&pod) {
                    agent.fetch(wanted);
                }
            }
            Err(error) => tracing::warn!(%error, "the pods of this node are not watched"),
        }
    }
}

/// The checkpoint of a pod that starts, or starts again, if the operator allows that it comes from elsewhere.
fn wanted(pod: &Pod) -> Option<Wanted> {
    let annotations = pod.metadata.annotations.as_ref()?;
    let id = annotations.get(RESTORE_FROM)?.parse().ok()?;
    let conditions = pod.status.iter().flat_map(|status| &status.conditions);
    let mut conditions = conditions.flatten();
    // It runs: its copy may have been deleted to make room.
    let is_ready = conditions.any(|one| one.type_ == "Ready" && one.status == "True");
    let starts = pod.metadata.deletion_timestamp.is_none() && !is_ready;
    (starts && annotations.contains_key(IMAGES)).then_some(Wanted {
        namespace: pod.namespace()?,
        pod: pod.name_any(),
        id,
    })
}

/// Why a checkpoint is not on this node yet.
#[derive(Debug, thiserror::Error)]
enum FetchError {
    #[error(transparent)]
    Objects(#[from] ObjectsError),
    #[error(transparent)]
    Peer(#[from] PeerError),
    #[error("no Checkpoint has the id")]
    Unknown,
    #[error("{0}")]
    Api(#[from] kube::Error),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Room(#[from] SaveError),
    #[error(transparent)]
    Failed(#[from] Failure),
}

/// The place a checkpoint is fetched from.
enum Holder<'a> {
    Node(Peer),
    Objects(&'a Objects),
}

impl Holder<'_> {
    async fn manifest(
        &mut self,
        namespace: &str,
        id: &CheckpointId,
    ) -> Result<(Vec<u8>, Manifest), FetchError> {
        Ok(match self {
            Self::Node(peer) => peer.manifest(namespace, id).await?,
            Self::Objects(objects) => objects.manifest(namespace, id).await?,
        })
    }

    async fn get(
        &mut self,
        namespace: &str,
        id: &CheckpointId,
        manifest: &Manifest,
        into: &Path,
    ) -> Result<(), FetchError> {
        match self {
            Self::Node(peer) => peer.get(namespace, id, manifest, into).await?,
            Self::Objects(objects) => objects.get(namespace, id, manifest, into).await?,
        }
        Ok(())
    }
}

impl Agent {
    /// Begins to fetch a checkpoint, unless it is here or under way.
    fn fetch(self: &Arc<Self>, wanted: Wanted) {
        let agent = Arc::clone(self);
        let key = wanted.id.key().clone();
        self.downloads.start(&key, async move {
            if let Err(error) = agent.attempts(&wanted).await {
                let (pod, id) = (&wanted.pod, &wanted.id);
                tracing::warn!(%pod, %id, %error, "the checkpoint of a pod is not fetched");
            }
        });
    }

    /// Fetches a checkpoint as long as its pod waits for it.
    async fn attempts(&self, wanted: &Wanted) -> Result<(), FetchError> {
        let Wanted { namespace, pod, id } = wanted;
        if self.store.find(namespace, id.key())?.is_some() {
            return Ok(());
        }
        let note = self.store.begin_fetch(id.key())?;
        let mut attempts = Attempts::new();
        while let Err(error) = self.copy(namespace, id).await {
            tracing::warn!(%pod, %id, %error, "the checkpoint of a pod is not here yet");
            note.fail(&error.to_string())?;
            attempts.wait().await;
            if matches!(self.cluster.pod(namespace, pod).await, Ok(None)) {
                break;
            }
            note.begin()?;
        }
        Ok(())
    }

    /// Copies a checkpoint from the node that has it, or else from the object store.
    async fn copy(&self, namespace: &str, id: &CheckpointId) -> Result<(), FetchError> {
        let _place = self.transfers.acquire().await;
        let mut failed = FetchError::Unknown;
        if let Some(peers) = &self.peers {
            match self.copy_from_node(peers, namespace, id).await {
                Err(error) => failed = error,
                copied => return copied,
            }
        }
        match &self.objects {
            Some(objects) => {
                tracing::debug!(%id, error = %failed, "the object store is asked");
                self.keep(Holder::Objects(objects), namespace, id).await
            }
            None => Err(failed),
        }
    }

    async fn copy_from_node(
        &self,
        peers: &Peers,
        namespace: &str,
        id: &CheckpointId,
    ) -> Result<(), FetchError> {
        let holder = self.cluster.holder(namespace, id).await?;
        let holder = holder.ok_or(FetchError::Unknown)?;
        let peer = Peer::connect(peers, &holder).await?;
        self.keep(Holder::Node(peer), namespace, id).await
    }

    /// Copies a checkpoint from there, and verifies it.
    async fn keep(
        &self,
        mut from: Holder<'_>,
        namespace: &str,
        id: &CheckpointId,
    ) -> Result<(), FetchError> {
        let (bytes, manifest) = from.manifest(namespace, id).await?;
        let needed = Needed {
            kept: manifest.size(),
            scratch: 0,
        };
        let _room = self.take_room(namespace, id.key(), needed, 0)?;
        let staged = self.store.stage(id.key())?;
        from.get(namespace, id, &manifest, staged.path()).await?;
        // It reads all bytes, and waits for the disk.
        let (store, path) = (self.store.clone(), staged.keep());
        let (namespace, id) = (namespace.to_owned(), id.clone());
        let published = tokio::task::spawn_blocking(move || {
            let staged = store.staged(id.key(), path);
            staged.publish_copy(&namespace, &id, &bytes).map(|()| id)
        });
        let id = published.await.map_err(Failure::from)??;
        self.fetched.notify_one();
        tracing::info!(%id, bytes = manifest.size(), "fetched from elsewhere");
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_checkpoint_is_fetched_for_pods_that_the_operator_lets_start_anywhere() {
        let with = |annotations: serde_json::Value, ready: &str| {
            let pod = json!({
                "metadata": {"name": "p", "namespace": "ns", "annotations": annotations},
                "status": {"conditions": [{"type": "Ready", "status": ready}]},
            });
            wanted(&serde_json::from_value(pod).unwrap())
        };
        let of = |annotations| with(annotations, "False");
        let id = format!("{}-{}", "1".repeat(32), "2".repeat(24));
        let found = of(json!({RESTORE_FROM: id, IMAGES: "{}"})).unwrap();
        assert_eq!((found.namespace.as_str(), found.pod.as_str()), ("ns", "p"));
        assert_eq!(found.id.to_string(), id);
        let runs = with(json!({RESTORE_FROM: id, IMAGES: "{}"}), "True");
        assert_eq!(runs, None);
        assert_eq!(of(json!({RESTORE_FROM: id})), None, "its node has it");
        assert_eq!(of(json!({IMAGES: "{}"})), None);
        assert_eq!(of(json!({RESTORE_FROM: "../x", IMAGES: "{}"})), None);
    }
}
